"""Matching: whether a nest of loops computes what an intrinsic describes, and which buffers and loops are which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from searchlab.errors import IRError
from searchlab.intrinsics.intrinsic import Intrinsic
from searchlab.intrinsics.known import find_intrinsic
from searchlab.intrinsics.plain import PlainNest, blocks_around, plain_nest, strides
from searchlab.ir.alpha import Difference
from searchlab.ir.apart import told_apart
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import TRUE, Binary, Call, Cast, Const, Expr, Load, Select, Var
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import path_to, statements, stores
from searchlab.ir.stmt import Block, Buffer, Stmt, Tensorized
from searchlab.ir.sums import as_sum
from searchlab.ir.walk import Substitution, loads

COMMUTATIVE = ("add", "mul", "min", "max")
_KEPT = 256  # matches that are not looked for again: most primitives change neither a call nor its operands
_matched: set[tuple[Any, ...]] = set()


@dataclass(frozen=True)
class Match:
    """The program's variable for each loop of a description, and the program's element for each of its operands."""

    loops: Mapping[str, Var]
    operands: Mapping[str, Load]


def match(
    intrinsic: Intrinsic,
    s: Stmt,
    buffers: Mapping[str, Buffer],
    facts: Facts,
    around: Substitution | None = None,
) -> Match | Difference:
    """The match of a nest of loops with the description of an intrinsic, or the first difference, in words."""
    try:
        nest = plain_nest(s, facts, around)
        return _Comparison(intrinsic, nest, buffers, facts).run()
    except IRError as e:
        return Difference(str(e))


def match_in(program: Program, s: Stmt, intrinsic: Intrinsic) -> Match | Difference:
    """The match of a nest inside a program that is not lowered."""
    return match(intrinsic, s, program.buffers, program.facts, blocks_around(program, s))


def check_tensorized(program: Program) -> None:
    """Refuses a program with a tensorised statement that is no longer what its intrinsic describes."""
    for s in statements(program.body):
        if type(s) is not Tensorized:
            continue
        intrinsic = find_intrinsic(s.intrinsic)
        around = tuple(x for x in path_to(program.body, s)[:-1] if isinstance(x, Block))
        used = {x.buffer for x in stores(s)} | {ld.buffer for x in stores(s) for ld in loads(x.value)}
        key = (intrinsic, s, around, tuple(program.buffers[n] for n in sorted(used)))
        if key in _matched:
            continue
        found = match_in(program, s.body, intrinsic)
        if isinstance(found, Difference):
            raise IRError(f"a nest that is tensorised with '{s.intrinsic}' would change: {found.words}")
        if len(_matched) >= _KEPT:
            _matched.clear()
        _matched.add(key)


@dataclass
class _Comparison:
    intrinsic: Intrinsic
    nest: PlainNest
    buffers: Mapping[str, Buffer]
    facts: Facts
    operands: dict[str, Load] = field(default_factory=dict)

    def run(self) -> Match:
        self.loops()
        store, described = self.nest.store, self.intrinsic.nest.store
        found = as_sum(store)
        if found is None or found.op != self.intrinsic.sum.op:
            raise IRError(
                f"the description has '{described.buffer}[...] = {described.value}', "
                f"the loop '{store.buffer}[...] = {store.value}'"
            )
        self.operand(Load(described.buffer, described.indices, described.value.dtype),
                     Load(store.buffer, store.indices, store.value.dtype))  # fmt: skip
        if any(ld.buffer == store.buffer for ld in loads(found.term)):
            raise IRError(f"the description reads its output once, the loop reads other elements of '{store.buffer}'")
        self.values(self.intrinsic.sum.term, found.term)
        self.strides()
        pairs = zip(self.intrinsic.nest.variables, self.nest.variables, strict=True)
        return Match({v.name: w for v, w in pairs}, self.operands)

    def loops(self) -> None:
        ours, theirs = self.intrinsic.nest.loops, self.nest.loops
        if len(ours) != len(theirs):
            raise IRError(
                f"the description has {len(ours)} loops ({_extents(ours)}), the loop nest {len(theirs)} "
                f"({_extents(theirs)})"
            )
        for a, b in zip(ours, theirs, strict=True):
            if a.extent != b.extent:
                raise IRError(f"the description has loop {a.name} of extent {a.extent}, the loop '{b.name}' {b.extent}")

    def values(self, a: Expr, b: Expr) -> None:
        """Compares what is added; the operands of commutative operations may stand in any order."""
        if isinstance(a, Load) and isinstance(b, Load):
            self.operand(a, b)
            return
        if type(a) is not type(b) or _own(a) != _own(b) or len(a.children()) != len(b.children()):
            raise IRError(f"the description has '{a}', the loop '{b}'")
        if isinstance(a, Binary) and a.op in COMMUTATIVE and isinstance(b, Binary):
            known = dict(self.operands)
            try:
                self.values(a.a, b.a)
                self.values(a.b, b.b)
                self.strides()
                return
            except IRError as first:
                straight, self.operands = self.operands, known
                try:
                    self.values(a.a, b.b)
                    self.values(a.b, b.a)
                    self.strides()
                    return
                except IRError:
                    self.operands = straight
                    raise first from None
        for x, y in zip(a.children(), b.children(), strict=True):
            self.values(x, y)

    def operand(self, a: Load, b: Load) -> None:
        """Compares the types and memories of two buffers; what an operand is, is settled where it occurs first."""
        ours, theirs = self.intrinsic.description.buffers[a.buffer], self.buffers[b.buffer]
        if ours.dtype != theirs.dtype:
            raise IRError(f"the description has {ours.dtype} {ours.name}, the loop {theirs.dtype} '{theirs.name}'")
        if ours.scope not in ("global", theirs.scope):
            raise IRError(f"the description has {ours.name} in {ours.scope} memory, '{b.buffer}' is in {theirs.scope}")
        self.operands[a.buffer] = b

    def strides(self) -> None:
        """Compares how the operands found so far move in memory with the loops."""
        for name, access in self.operands.items():
            steps = strides(access, self.buffers, self.nest.variables, self.facts)
            if steps is None:
                raise IRError(f"'{access}' does not move evenly with the loops")
            ours = self.intrinsic.accesses[name]
            for v, lp in zip(self.intrinsic.nest.variables, self.nest.loops, strict=True):
                if steps[lp.var] != ours[v] and not self.intrinsic.is_free(name, v):
                    raise IRError(
                        f"the description moves {ours[v]} elements of {name} with {v}, "
                        f"the loop '{lp.name}' {steps[lp.var]} of '{access.buffer}'"
                    )
        self.apart()

    def apart(self) -> None:
        """Refuses outputs that coincide in the program, where the description has different ones."""
        name = self.intrinsic.output
        ours, pairs = self.intrinsic.accesses[name], zip(self.intrinsic.nest.variables, self.nest.loops, strict=True)
        moving = {lp.var: lp.extent for v, lp in pairs if ours[v] != Const(0)}
        access = self.operands[name]
        if not told_apart(access.indices, moving, TRUE, self.facts):
            raise IRError(f"the description has different elements of {name}, those of '{access.buffer}' may coincide")


def _extents(loops: tuple[Stmt, ...] | tuple[object, ...]) -> str:
    return " x ".join(str(getattr(lp, "extent", "?")) for lp in loops)


def _own(e: Expr) -> tuple[object, ...]:
    """What an expression of values says apart from its operands."""
    if isinstance(e, Const):
        return (e.value, e.type)
    if isinstance(e, Cast):
        return (e.type,)
    if isinstance(e, Call):
        return (e.function,)
    if isinstance(e, Binary):
        return (e.op,)
    return () if isinstance(e, (Load, Select)) else (e,)
