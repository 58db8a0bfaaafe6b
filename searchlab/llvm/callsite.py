"""Calls of intrinsics: the elements of their operands as addresses in a kernel."""

from __future__ import annotations

import re
from abc import abstractmethod

from searchlab.dtype import DTYPES
from searchlab.errors import BuildError
from searchlab.intrinsics import CallSite, Intrinsic, Match, find_intrinsic, match
from searchlab.ir.alpha import Difference
from searchlab.ir.bounds import Facts
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Loop, Stmt, Tensorized
from searchlab.llvm.ssa import Function, Linear
from searchlab.llvm.values import BufferPlace, ValueWriter
from searchlab.targets import Target

_VECTOR = re.compile(r"<(\d+) x \w+>")


def check_intrinsics(name: str, body: Stmt, target: Target) -> None:
    """Refuses a program that calls an intrinsic which the target lacks."""
    for used in dict.fromkeys(s.intrinsic for s in statements(body) if isinstance(s, Tensorized)):
        if missing := find_intrinsic(used).needs.missing(target):
            raise BuildError(f"{name}: intrinsic '{used}' needs {', '.join(missing)}, which {target.name} lacks")


def emit_call(s: Tensorized, function: Function, values: ValueWriter) -> None:
    """Writes one call of an intrinsic, after matching its description with what lowering left of the loops."""
    intrinsic = find_intrinsic(s.intrinsic)
    facts = Facts({lp.var: lp.extent for lp in statements(s.body) if isinstance(lp, Loop)})
    found = match(intrinsic, s.body, {n: place.buffer for n, place in values.places.items()}, facts)
    if isinstance(found, Difference):
        raise BuildError(f"intrinsic '{s.intrinsic}' does not fit the lowered loops: {found.words}")
    site = _MatchedSite(intrinsic, found, function, values)
    site.check_alignment()
    intrinsic.emit(site)
    values.forget(found.operands[intrinsic.output].buffer)  # an implementation may store by an instruction of its own


class WrittenSite(CallSite):
    """A call site in a function that is being written; how operands are found in it, its kinds say."""

    def __init__(self, intrinsic: Intrinsic, function: Function, values: ValueWriter) -> None:
        self.intrinsic, self.f, self.w = intrinsic, function, values

    @abstractmethod
    def place(self, operand: str) -> BufferPlace:
        """Where the buffer of an operand is."""

    @abstractmethod
    def form(self, operand: str, at: dict[str, int]) -> Linear:
        """The offset of an element: the loops of the description have the given values, or 0."""

    def address(self, operand: str, **at: int) -> str:
        """The address of an element, a `ptr`."""
        place = self.place(operand)
        return self.f.pointer(place.pointer, place.buffer.dtype, self.form(operand, at))

    def let(self, instruction: str) -> str:
        """The result of an instruction without side effects; written once for all calls in a row."""
        known = self.f.known.values
        if instruction not in known:
            known[instruction] = self.f.let(instruction)
        return known[instruction]

    def line(self, instruction: str) -> None:
        """An instruction without a result."""
        self.f.line(instruction)

    def declare(self, text: str) -> None:
        """Adds a declaration to the module, once."""
        self.f.declare(text)


class _MatchedSite(WrittenSite):
    """A call of one thread, whose operands are where the description was matched."""

    def __init__(self, intrinsic: Intrinsic, found: Match, function: Function, values: ValueWriter) -> None:
        super().__init__(intrinsic, function, values)
        self.found = found

    def place(self, operand: str) -> BufferPlace:
        return self.w.places[self.found.operands[operand].buffer]

    def form(self, operand: str, at: dict[str, int]) -> Linear:
        access = self.found.operands[operand]
        for name, v in self.found.loops.items():
            self.f.env[v] = Linear(at.get(name, 0))
        return self.f.linear(self.w.offset(access.buffer, access.indices))

    def stride(self, operand: str, loop: str) -> str:
        start, after = self.form(operand, {}), self.form(operand, {loop: 1})
        steps = dict(after.terms)
        for name, c in start.terms:
            steps[name] = steps.get(name, 0) - c
        size = DTYPES[self.place(operand).buffer.dtype].bytes
        terms = tuple((name, c * size) for name, c in sorted(steps.items()) if c)
        return self.f.value(Linear((after.const - start.const) * size, terms))

    def load(self, operand: str, type_: str, **at: int) -> str:
        form, buffer = self.form(operand, at), self.found.operands[operand].buffer
        loaded = self.f.known.loads.setdefault(buffer, {})
        key = (form, type_)
        if key not in loaded:
            align = self.alignment(operand, form, type_)
            loaded[key] = self.f.let(f"load {type_}, ptr {self.address(operand, **at)}, align {align}")
        return loaded[key]

    def store(self, operand: str, type_: str, value: str, **at: int) -> None:
        align = self.alignment(operand, self.form(operand, at), type_)
        self.f.line(f"store {type_} {value}, ptr {self.address(operand, **at)}, align {align}")
        self.w.forget(self.found.operands[operand].buffer)

    def alignment(self, operand: str, form: Linear, type_: str) -> int:
        found = _VECTOR.match(type_)
        return self.w.align(self.place(operand), form, int(found[1]) if found else 1)

    def check_alignment(self) -> None:
        for operand, wanted in self.intrinsic.needs.alignment.items():
            size = DTYPES[self.place(operand).buffer.dtype].bytes
            if self.w.align(self.place(operand), self.form(operand, {}), wanted // size) < wanted:
                buffer = self.place(operand).buffer.name
                raise BuildError(
                    f"intrinsic '{self.intrinsic.name}' needs {operand} aligned to {wanted} bytes, "
                    f"which is not known of '{buffer}'"
                )
