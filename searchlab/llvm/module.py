"""Plain loops as an LLVM module: loops, vector chunks, parallel bodies, buffers, and one entry point (see `abi`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from searchlab.dtype import BOOL, DTYPES, INDEX
from searchlab.errors import BuildError
from searchlab.ir.algebra import poly
from searchlab.ir.expr import ZERO, Compare, Expr, Select, Var, index, value_of
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.statement_tree import expressions, touches
from searchlab.ir.stmt import Alloc, Buffer, If, Loop, Prefetch, Seq, Stmt, Store, Tensorized, parts_of
from searchlab.ir.sums import as_sum
from searchlab.ir.visitor import Visitor
from searchlab.ir.walk import loads, variables, walk
from searchlab.llvm import abi
from searchlab.llvm.callsite import check_intrinsics, emit_call
from searchlab.llvm.ssa import TYPES, Function, Known, Linear, Module
from searchlab.llvm.values import BufferPlace, Lanes, ValueWriter
from searchlab.lower.passes import Lowered
from searchlab.lower.registers import REGISTER
from searchlab.targets import CpuTarget, Target

STACK = 16 * 1024  # larger buffers go to scratch memory
CHUNKS = 8  # a vectorised loop that spans more registers becomes a loop over registers
MOST_JOINED = 96  # limit on the registers of one vectorised reduction
MOST_IN_PIECES = 500  # instructions of a vector that are repeated for the end of a run-time length
SINGLE_LANES = 16  # limit on unrolling a vectorised loop that cannot run in lanes
UNROLL = 512  # limit on copies; beyond it compile time outweighs the benefit, and the loop stays a loop


@dataclass
class Scratch:
    """Allocator of scratch memory for buffers, in bytes that may depend on run-time sizes."""

    used: Expr = ZERO
    offsets: dict[Buffer, Expr] = field(default_factory=dict)

    def place(self, buffer: Buffer) -> Expr:
        """The offset of a buffer, shared by copies that loop partitioning made of it: they are never live together."""
        if buffer not in self.offsets:
            count: Expr = index(DTYPES[buffer.dtype].bytes)
            for extent in buffer.shape:
                count = count * extent
            self.offsets[buffer] = self.used
            self.used = self.used + abi.padded(count)
        return self.offsets[buffer]


@dataclass(frozen=True)
class KernelCode:
    """LLVM IR of one kernel and the scratch memory it needs (bytes, in terms of run-time sizes).

    A `parallel` one calls the thread pool.
    """

    ir: str
    entry: str
    shared: Expr
    private: Expr
    sizes: tuple[str, ...]
    parallel: bool


def generate(lowered: Lowered, target: CpuTarget) -> KernelCode:
    """The LLVM module of a lowered program."""
    check_intrinsics(lowered.name, lowered.body, target)
    return _Generator(lowered, target).run()


class Generation:
    """What the functions of one module have in common: the module, the target, and its vectors."""

    def __init__(self, name: str, target: Target) -> None:
        self.target = target
        self.module = Module(name)
        self.shared, self.private = Scratch(), Scratch()
        self.bodies = 0  # of parallel loops
        self._lanes: dict[int, int] = {}

    def lanes(self, s: Loop) -> int:
        """The iterations per full register, 0 if the loop cannot run in lanes; cached for the copies of the loop."""
        found = self._lanes.get(id(s))
        if found is None:
            able = _VECTORIZABLE.visit(s.body, s.var)
            found = self._lanes[id(s)] = min(self.target.lanes(d) for d in _dtypes(s.body)) if able else 0
        return found


class _Generator(Generation):
    def __init__(self, lowered: Lowered, target: CpuTarget) -> None:
        super().__init__(lowered.name, target)
        self.lowered = lowered
        found = {v for p in lowered.parameters for e in p.shape for v in variables(e)}
        found |= {v for e in expressions(lowered.body) for v in variables(e)}
        self.sizes = sorted((v for v in found if v.role == "size"), key=lambda v: v.name)

    def run(self) -> KernelCode:
        names = [f"%b{n}" for n in range(len(self.lowered.parameters))]
        size_names = [f"%s{n}" for n in range(len(self.sizes))]
        buffers = [f"ptr noalias nonnull {n}" for n in names]
        main = Function("main", [*buffers, *(f"i64 {s}" for s in size_names), *abi.CONTEXT], self.module)
        places = {
            b.name: BufferPlace(b, n, DTYPES[b.dtype].bytes)
            for b, n in zip(self.lowered.parameters, names, strict=True)
        }
        for v, n in zip(self.sizes, size_names, strict=True):
            main.env[v] = Linear(0, ((n, 1),))
        BodyWriter(self, main, places, inside=False).visit(self.lowered.body)
        self.module.functions.append(main.text())
        self.module.functions.append(self._entry(names, size_names))
        sizes, parallel = tuple(v.name for v in self.sizes), self.bodies > 0
        return KernelCode(self.module.text(), abi.ENTRY, self.shared.used, self.private.used, sizes, parallel)

    def _entry(self, names: list[str], size_names: list[str]) -> str:
        lines = [f"define void @{abi.ENTRY}({', '.join(abi.PARAMETERS)}) #0 {{"]
        for n, name in enumerate(names):
            lines += [f"  %p{n} = getelementptr ptr, ptr %args, i64 {n}", f"  {name} = load ptr, ptr %p{n}"]
        for n, name in enumerate(size_names):
            lines += [f"  %q{n} = getelementptr i64, ptr %sizes, i64 {n}", f"  {name} = load i64, ptr %q{n}"]
        passed = [*(f"ptr {n}" for n in names), *(f"i64 {n}" for n in size_names)]
        lines += [f"  call void @main({', '.join([*passed, *abi.CONTEXT])})", "  ret void", "}"]
        return "\n".join(lines)


class BodyWriter(Visitor[[], None]):
    """Writes statements into one function."""

    def __init__(
        self, generator: Generation, function: Function, places: dict[str, BufferPlace], *, inside: bool
    ) -> None:
        self.g = generator
        self.f = function
        self.inside = inside  # of a parallel loop
        self.w = ValueWriter(function, dict(places), generator.target)

    def other(self, s: Stmt) -> None:
        raise BuildError(f"cannot generate code for a {type(s).__name__}")

    def visit_store(self, s: Store) -> None:
        self.w.store(s.buffer, s.indices, s.value)

    def visit_prefetch(self, s: Prefetch) -> None:
        self.w.prefetch(s.buffer, s.indices)

    def visit_seq(self, s: Seq) -> None:
        for p in s.body:
            self.visit(p)

    def visit_if(self, s: If) -> None:
        self.f.branch(self.w.condition(s.condition).text, lambda: self.visit(s.body))

    def visit_tensorized(self, s: Tensorized) -> None:
        emit_call(s, self.f, self.w)

    # --- loops --------------------------------------------------------------------------------------------------------

    def visit_loop(self, s: Loop) -> None:
        if s.kind == LoopKind.PARALLEL and self.g.target.threads > 1 and not self.inside and self.w.lanes is None:
            self.parallel(s)
        elif s.kind == LoopKind.VECTORIZED and self.w.lanes is None and self.g.lanes(s):
            self.vector(s)
        elif s.kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED) and 0 <= (
            value_of(s.extent) or -1
        ) <= self._most_copies(s):
            self.unrolled(s)
        else:
            self.serial(s)

    def _most_copies(self, s: Loop) -> int:
        """The unrolling limit, low for loops that cannot run in lanes unless they index a register tile."""
        lanes = s.kind == LoopKind.VECTORIZED and not _uses_registers(s.body, s.var, self.w.places)
        return SINGLE_LANES if lanes else UNROLL

    def serial(self, s: Loop) -> None:
        self.f.iterate(s.var, self.f.linear(s.extent), lambda: self.visit(s.body))

    def unrolled(self, s: Loop) -> None:
        for n in range(value_of(s.extent) or 0):
            self.f.env[s.var] = Linear(n)
            self.visit(s.body)

    # --- vectors ------------------------------------------------------------------------------------------------------

    def vector(self, s: Loop) -> None:
        """Emits full registers first, then decreasing powers of two, which a run-time extent has or has not.

        Where that would repeat too many instructions, such an extent ends in scalar iterations.
        """
        width = self.g.lanes(s)
        extent = value_of(s.extent)
        if extent is None:
            self._vector_of_any_length(s, width)
            return
        full = extent // width
        if full > 1 and self._joined(s, width, full):
            pass
        elif full > CHUNKS and not _uses_registers(s.body, s.var, self.w.places):
            self._chunk_loop(s, Linear(full), width)
        else:
            for n in range(full):
                self._chunk(s, Linear(n * width), width)
        done = full * width
        while done < extent:
            piece = 1 << ((extent - done).bit_length() - 1)
            self._chunk(s, Linear(done), piece)
            done += piece

    def _joined(self, s: Loop, width: int, full: int) -> bool:
        """Emits x = x <op> term over several registers: these are combined first, so lanes are reduced only once."""
        *others, store = parts_of(s.body)
        if not all(isinstance(x, Prefetch) for x in others):
            return False
        if not isinstance(store, Store) or full > MOST_JOINED or any(s.var in variables(i) for i in store.indices):
            return False
        found = as_sum(store)
        assert found is not None
        dtype, self.w.lanes = store.value.dtype, Lanes(s.var, width)
        terms = []
        for n in range(full):
            self.f.env[s.var] = Linear(n * width)
            for x in others:
                self.visit(x)
            terms.append(self.w.spread(self.w.write(found.term), dtype, width))
        type_ = self.w.type(dtype, width)
        while len(terms) > 1:
            pairs = [
                self.w.operate(found.op, a, b, dtype, type_) for a, b in zip(terms[::2], terms[1::2], strict=False)
            ]
            terms = pairs + terms[len(pairs) * 2 :]
        self.w.join(store.buffer, store.indices, found.op, terms[0])
        self.w.lanes = None
        return True

    def _chunk_loop(self, s: Loop, count: Linear, width: int) -> None:
        self.f.loop(count, lambda i: self._chunk(s, Linear(0, ((i, width),)), width))

    def _vector_of_any_length(self, s: Loop, width: int) -> None:
        before = self.g.module.size
        self._chunk_loop(s, self.f.linear(s.extent // width), width)
        piece = width
        if self.g.module.size - before > MOST_IN_PIECES:
            start = self.f.value(self.f.linear(s.extent // width * width))
            self.f.loop(self.f.linear(s.extent), lambda i: self._chunk(s, Linear(0, ((i, 1),)), 1), start)
            return
        while piece > 1:
            whole, piece = piece, piece // 2
            base, enough = self.f.linear(s.extent // whole * whole), s.extent % whole >= piece
            self.f.branch(self.w.condition(enough).text, partial(self._chunk, s, base, piece))

    def _chunk(self, s: Loop, base: Linear, width: int) -> None:
        self.f.env[s.var] = base
        self.w.lanes = Lanes(s.var, width) if width > 1 else None
        self.visit(s.body)
        self.w.lanes = None

    # --- threads ------------------------------------------------------------------------------------------------------

    def parallel(self, s: Loop) -> None:
        """Outlines the loop's body into a function that the pool calls with a range of iterations."""
        name = f"body{self.g.bodies}"
        self.g.bodies += 1
        places = [p for p in self.w.places.values() if touches(s.body, p.buffer.name)]
        used = {v for e in expressions(s.body) for v in variables(e)} - {s.var}
        live = {v: form for v, form in self.f.env.items() if form.terms and (v in used or v.role == "size")}
        ints = [*(self.f.value(form) for form in live.values()), "%stride"]
        self._call_pool(name, s, [p.pointer for p in places], ints)
        numbers = [f"%v{n}" for n in range(len(live))]
        body = self._body(name, places, numbers)
        inner = body.f
        inner.env = {v: form for v, form in self.f.env.items() if not form.terms}
        inner.env.update({v: Linear(0, ((n, 1),)) for v, n in zip(live, numbers, strict=True)})
        inner.iterate(s.var, Linear(0, (("%end", 1),)), lambda: body.visit(s.body), "%begin")
        self.g.module.functions.append(inner.text())
        self.g.module.functions.append(_trampoline(name, len(places), len(numbers)))

    def _body(self, name: str, places: list[BufferPlace], numbers: list[str]) -> BodyWriter:
        """The outlined function for the body of a parallel loop that uses these buffers and numbers."""
        own = [BufferPlace(p.buffer, f"%b{n}", p.align) for n, p in enumerate(places)]
        buffers = [f"ptr noalias nonnull align {p.align} {p.pointer}" for p in own]
        rest = ["i64 %stride", "ptr %private", "i64 %begin", "i64 %end", "i64 %slot"]
        function = Function(name, [*buffers, *(f"i64 {n}" for n in numbers), *rest], self.g.module)
        return BodyWriter(self.g, function, {p.buffer.name: p for p in own}, inside=True)

    def _call_pool(self, name: str, s: Loop, pointers: list[str], ints: list[str]) -> None:
        """Calls the pool, passing everything the body needs in a record on the stack."""
        record = self.f.alloca(f"[{len(pointers) + len(ints) + 1} x i64]", 8)
        items = [("ptr", p) for p in (*pointers, "%private")] + [("i64", i) for i in ints]
        for n, (type_, item) in enumerate(items):
            slot = self.f.let(f"getelementptr i64, ptr {record}, i64 {n}")
            self.f.line(f"store {type_} {item}, ptr {slot}")
        extent = self.f.value(self.f.linear(s.extent))
        self.f.line(f"call void %pool(ptr @{name}.run, ptr {record}, i64 {extent}, i64 %threads)")
        self.f.known = Known()  # the loop may have written anything

    # --- memory -------------------------------------------------------------------------------------------------------

    def visit_alloc(self, s: Alloc) -> None:
        buffer = s.buffer
        count = 1
        for extent in buffer.shape:
            count *= value_of(extent) or 0
        if buffer.scope == REGISTER or 0 < count * DTYPES[buffer.dtype].bytes <= STACK:
            pointer = self.f.alloca(f"[{count} x {TYPES[buffer.dtype]}]")
        else:
            pointer = self._scratch(buffer)
        outer = self.w.places.get(buffer.name)
        self.w.put(BufferPlace(buffer, pointer, abi.LINE))
        self.visit(s.body)
        if outer is not None:
            self.w.put(outer)

    def _scratch(self, buffer: Buffer) -> str:
        offset = (self.g.private if self.inside else self.g.shared).place(buffer)
        base = "%shared"
        if self.inside:
            mine = self.f.hoist("mul nsw i64 %slot, %stride", "%slot")
            base = self.f.hoist(f"getelementptr inbounds i8, ptr %private, i64 {mine}", mine)
        at = self.f.value(self.f.linear(offset))
        return self.f.hoist(f"getelementptr inbounds i8, ptr {base}, i64 {at}", base, at)


def _trampoline(name: str, pointers: int, numbers: int) -> str:
    """Unpacks the record, so that the body itself gets its buffers as arguments that do not alias."""
    lines = [f"define internal void @{name}.run(i64 %begin, i64 %end, i64 %slot, ptr %record) #0 {{"]
    passed = []
    kinds = ["ptr"] * (pointers + 1) + ["i64"] * (numbers + 1)
    for n, type_ in enumerate(kinds):
        lines += [f"  %a{n} = getelementptr i64, ptr %record, i64 {n}", f"  %x{n} = load {type_}, ptr %a{n}"]
        passed.append(f"{type_} %x{n}")
    order = [*passed[:pointers], *passed[pointers + 1 :], passed[pointers]]
    lines += [f"  call void @{name}({', '.join([*order, 'i64 %begin', 'i64 %end', 'i64 %slot'])})", "  ret void", "}"]
    return "\n".join(lines)


class _Vectorizable(Visitor[[Var], bool]):
    """Whether a body can run in lanes: no divergent control flow, and no store to an element that lanes share."""

    def other(self, s: Stmt, v: Var) -> bool:
        return all(self.visit(c, v) for c in s.children())

    def visit_if(self, s: If, v: Var) -> bool:
        return v not in variables(s.condition) and self.visit(s.body, v)

    def visit_loop(self, s: Loop, v: Var) -> bool:
        return s.kind != LoopKind.PARALLEL and v not in variables(s.extent) and self.visit(s.body, v)

    def visit_tensorized(self, s: Tensorized, v: Var) -> bool:
        return False

    def visit_store(self, s: Store, v: Var) -> bool:
        return not any(_selects_by_index(x, v) for x in walk(s.value)) and _stores_apart(s, v)


_VECTORIZABLE = _Vectorizable()


def _selects_by_index(e: Expr, v: Var) -> bool:
    """Whether an expression selects between values by an index condition on `v`."""
    if not isinstance(e, Select) or v not in variables(e.condition):
        return False
    return any(isinstance(c, Compare) and c.a.dtype == INDEX for c in walk(e.condition))


def _stores_apart(s: Store, v: Var) -> bool:
    """Whether lanes store to distinct elements, or reduce into a common one."""
    moving = [i for i in s.indices if v in variables(i)]
    if moving:
        # no two lanes may accumulate into the same element
        return all((v,) in poly(i) for i in moving) or _leaves_alone(s.value, s.buffer)
    found = as_sum(s)
    return found is not None and _leaves_alone(found.term, s.buffer)


def _leaves_alone(e: Expr, buffer: str) -> bool:
    return all(ld.buffer != buffer for ld in loads(e))


def _dtypes(s: Stmt) -> set[str]:
    found = {e.dtype for x in expressions(s) for e in walk(x)} & DTYPES.keys() - {BOOL}  # conditions take any number
    return found or {"float32"}


def _uses_registers(s: Stmt, v: Var, places: dict[str, BufferPlace]) -> bool:
    """Whether a body indexes a register tile, which requires constant indices."""
    if isinstance(s, Alloc) and s.buffer.scope == REGISTER:
        return True
    if isinstance(s, Store):
        names = {s.buffer} if any(v in variables(i) for i in s.indices) else set()
        names |= {ld.buffer for ld in loads(s.value) if any(v in variables(i) for i in ld.indices)}
        return any(n in places and places[n].buffer.scope == REGISTER for n in names)
    return any(_uses_registers(c, v, places) for c in s.children())
