"""Calls of instructions that a warp runs together: every lane loads and stores its own elements of the operands."""

from __future__ import annotations

from searchlab.dtype import DTYPES
from searchlab.errors import BuildError
from searchlab.intrinsics import find_intrinsic
from searchlab.ir.expr import Var
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Loop, Store, Tensorized
from searchlab.ir.walk import loads, variables
from searchlab.llvm.callsite import WrittenSite
from searchlab.llvm.ssa import Function, Linear
from searchlab.llvm.values import BufferPlace, ValueWriter

_LANE = Var(LoopKind.THREAD_X.value)
_WORD = 32


class WarpSite(WrittenSite):
    """One call; positions are added to those at which a lane's elements begin (`Fragments`)."""

    def __init__(self, call: Tensorized, function: Function, values: ValueWriter) -> None:
        super().__init__(find_intrinsic(call.intrinsic), function, values)
        described = self.intrinsic.nest
        loops = [s for s in statements(call.body) if isinstance(s, Loop)]
        self.loops = {v.name: lp.var for v, lp in zip(described.variables, loops, strict=True)}
        (store,) = (s for s in statements(call.body) if isinstance(s, Store))
        self.store_ = store
        factors = [ld for ld in loads(store.value) if ld.buffer != store.buffer]
        names = [ld.buffer for ld in loads(described.store.value) if ld.buffer != self.intrinsic.output]
        # the factors may stand in either order: that of A moves with i
        if self.loops["i"] not in {v for e in factors[0].indices for v in variables(e)}:
            factors.reverse()
        self.operands = dict(zip(names, factors, strict=True))

    def place(self, operand: str) -> BufferPlace:
        """Where the buffer of a factor is."""
        return self.w.places[self.operands[operand].buffer]

    def form(self, operand: str, at: dict[str, int]) -> Linear:
        """The offset of a lane's element."""
        assert self.intrinsic.fragments is not None
        lanes = self.intrinsic.fragments.lanes[operand]
        own = self.f.value(self.f.env[_LANE])
        for name, var in self.loops.items():
            terms: tuple[tuple[str, int], ...] = ()
            if name in lanes:
                divisor, modulus, factor = lanes[name]
                # an unsigned quotient: LLVM knows that lanes are no negative numbers, and so do addresses
                part = (
                    own if divisor == 1 else self.f.hoist(f"lshr {self.f.index} {own}, {divisor.bit_length() - 1}", own)
                )
                part = self.f.hoist(f"and {self.f.index} {part}, {modulus - 1}", part)
                terms = ((part, factor),)
            self.f.env[var] = Linear(at.get(name, 0), terms)
        access = self.operands[operand]
        return self.f.linear(self.w.offset(access.buffer, access.indices))

    def stride(self, operand: str, loop: str) -> str:
        """The distance of neighbouring iterations, in bytes."""
        raise BuildError(f"intrinsic '{self.intrinsic.name}': the strides of {operand} are those of fragments")

    def load(self, operand: str, type_: str, **at: int) -> str:
        """A value of the result, or a word of neighbours along the last loop."""
        if operand == self.intrinsic.output:
            return self.f.let(f"load {type_}, ptr {self._result(at)}, align {_WORD // 8}")
        form, place = self.form(operand, at), self.place(operand)
        size = DTYPES[place.buffer.dtype].bits
        steps = [self.form(operand, at | {"k": at.get("k", 0) + n}) for n in range(_WORD // size)]
        dense = all(x == Linear(form.const + n, form.terms) for n, x in enumerate(steps))
        if dense and self.w.align(place, form, len(steps)) >= _WORD // 8:
            return self._fetched(place, form, "i32")
        word = ""
        for n, x in enumerate(steps):
            part = self._fetched(place, x, f"i{size}")
            wide = self.f.let(f"zext i{size} {part} to i32") if size < _WORD else part
            moved = self.f.let(f"shl i32 {wide}, {n * size}") if n else wide
            word = self.f.let(f"or disjoint i32 {word}, {moved}") if word else moved
        return word

    def _fetched(self, place: BufferPlace, form: Linear, type_: str) -> str:
        loaded = self.f.known.loads.setdefault(place.buffer.name, {})
        key = (form, type_)
        if key not in loaded:
            address = self.f.pointer(place.pointer, place.buffer.dtype, form)
            loaded[key] = self.f.let(f"load {type_}, ptr {address}, align {int(type_[1:]) // 8}")
        return loaded[key]

    def store(self, operand: str, type_: str, value: str, **at: int) -> None:
        """Stores a value of the result."""
        self.f.line(f"store {type_} {value}, ptr {self._result(at)}, align {_WORD // 8}")
        self.w.forget(self.store_.buffer)

    def _result(self, at: dict[str, int]) -> str:
        """Where a lane has an element of its results."""
        for name, var in self.loops.items():
            self.f.env[var] = Linear(at.get(name, 0))
        place = self.w.places[self.store_.buffer]
        form = self.f.linear(self.w.offset(self.store_.buffer, self.store_.indices))
        return self.f.pointer(place.pointer, place.buffer.dtype, form)
