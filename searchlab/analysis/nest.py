"""The loops, statements and accesses of a program, with columns for what depends on symbols."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from searchlab.analysis.graph import Graph, Node
from searchlab.analysis.operations import count, flops
from searchlab.analysis.ranges import NONE, Range, Ranges, Vars
from searchlab.dtype import DTYPES
from searchlab.errors import IRError
from searchlab.intrinsics import Intrinsic, find_intrinsic
from searchlab.ir.algebra import poly
from searchlab.ir.expr import TRUE, Expr, Select, Var
from searchlab.ir.loopkind import LOOP_KINDS
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Buffer, Loop, Seq, Stmt, Store, Tensorized
from searchlab.ir.visitor import Visitor
from searchlab.ir.walk import Substitution, loads, walk

T = TypeVar("T")
KINDS = tuple(kind.value for kind in LOOP_KINDS)


@dataclass(frozen=True, eq=False)
class LoopColumns:
    """A loop: its extent, whether it runs more than once, and a mask for each kind that it may be of."""

    loop: Loop
    depth: int
    extent: Node
    alive: Node
    kinds: dict[str, Node]

    @property
    def var(self) -> Var:
        """The loop's variable."""
        return self.loop.var


@dataclass(frozen=True, eq=False)
class Access:
    """All accesses of one buffer by one statement; `indices` holds the different ones in loop variables.

    `inside`: the ranges of the indices are known to lie within the buffer.
    """

    buffer: Buffer
    indices: tuple[tuple[Expr, ...], ...]
    reads: bool
    writes: bool
    inside: bool

    @property
    def bytes(self) -> int:
        """The size of one element."""
        return DTYPES[self.buffer.dtype].bytes


@dataclass(frozen=True)
class CalledLoops:
    """An intrinsic that computes the loops of a statement from a depth inwards."""

    intrinsic: Intrinsic
    depth: int


@dataclass(frozen=True, eq=False)
class Statement:
    """A leaf block in its loops, outermost first; its init is not a statement of its own and is not counted.

    Where an intrinsic is `called`, the loops that it replaces are among the others.
    """

    block: Block
    loops: tuple[LoopColumns, ...]
    bindings: tuple[Expr, ...]
    accesses: tuple[Access, ...]
    counts: Counter[str]
    called: CalledLoops | None = None

    @property
    def flops(self) -> int:
        """Arithmetic operations of one iteration."""
        return flops(self.counts)

    def running(self, depth: int) -> Vars:
        """The variables of the loops from that depth inwards."""
        return frozenset(lp.var for lp in self.loops[depth:])


Outer = tuple[LoopColumns, ...]


@dataclass(frozen=True)
class _Statements(Visitor[[Outer, Substitution, bool], Iterator[Statement]]):
    """The leaf blocks in a statement; the last argument says that a predicate leaves some iterations out."""

    nest: Nest

    def visit_seq(self, s: Seq, around: Outer, put: Substitution, cut: bool) -> Iterator[Statement]:
        for part in s.body:
            yield from self.visit(part, around, put, cut)

    def visit_loop(self, s: Loop, around: Outer, put: Substitution, cut: bool) -> Iterator[Statement]:
        yield from self.visit(s.body, (*around, self.nest._loop(s, len(around), around, put)), put, cut)

    def visit_block(self, s: Block, around: Outer, put: Substitution, cut: bool) -> Iterator[Statement]:
        bound = tuple(put(e) for e in s.bindings)
        inner = Substitution({**put.mapping, **{it.var: e for it, e in zip(s.iters, bound, strict=True)}})
        cut = cut or s.predicate != TRUE
        if isinstance(s.body, Store):
            yield Statement(s, around, bound, self.nest._accesses(s.body, inner, cut), count(s.body.value))
        else:
            yield from self.visit(s.body, around, inner, cut)

    def visit_tensorized(self, s: Tensorized, around: Outer, put: Substitution, cut: bool) -> Iterator[Statement]:
        called = CalledLoops(find_intrinsic(s.intrinsic), len(around))
        yield from (replace(inside, called=called) for inside in self.visit(s.body, around, put, cut))

    def other(self, s: Stmt, around: Outer, put: Substitution, cut: bool) -> Iterator[Statement]:
        raise IRError(f"{self.nest.program.name}: analysis takes blocks in loops, not {type(s).__name__.lower()}")


class Nest:
    """A program taken apart once; columns are nodes of `graph`."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.graph = Graph()
        self.loops: dict[str, LoopColumns] = {}
        self._extents: dict[Var, Node] = {}
        self._made: dict[Hashable, Any] = {}
        self.ranges = Ranges(self.graph, self._extents)
        self.statements = tuple(_Statements(self).visit(program.body, (), Substitution({}), False))
        if not self.statements:
            raise IRError(f"{program.name} has no blocks: only programs that are not lowered can be analysed")

    def made(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made before under that key."""
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    @cached_property
    def intermediate(self) -> frozenset[str]:
        """The buffers that are neither passed in nor out."""
        return frozenset(self.program.buffers) - {*self.program.inputs, *self.program.outputs}

    def touching(self, buffer: str) -> list[tuple[Statement, Access]]:
        """The statements that access a buffer."""
        return [(s, a) for s in self.statements for a in s.accesses if a.buffer.name == buffer]

    def _accesses(self, store: Store, put: Substitution, cut: bool) -> tuple[Access, ...]:
        """The stored buffer first, then those that are loaded, in order."""
        found: dict[str, dict[tuple[Expr, ...], None]] = {store.buffer: {tuple(put(i) for i in store.indices): None}}
        read = [ld for part in (store.value, *store.indices) for ld in loads(part)]
        for ld in read:
            found.setdefault(ld.buffer, {})[tuple(put(i) for i in ld.indices)] = None
        names = {ld.buffer for ld in read}
        guarded = cut or any(isinstance(e, Select) for e in walk(store.value))
        return tuple(
            Access(self.program.buffers[b], tuple(at), b in names, b == store.buffer, not guarded and _affine(at))
            for b, at in found.items()
        )

    def _loop(self, lp: Loop, depth: int, around: tuple[LoopColumns, ...], put: Substitution) -> LoopColumns:
        extent = self.ranges.of(put(lp.extent), frozenset(x.var for x in around))[1]
        self._extents[lp.var] = extent
        alive = (extent - 1).least(1)
        made = LoopColumns(lp, depth, extent, alive, self._kinds(lp))
        self.loops[lp.name] = made
        return made

    def _kinds(self, lp: Loop) -> dict[str, Node]:
        """Masks of the kinds, as code generation will see them."""
        g = self.graph
        if len(lp.kinds) == 1:
            masks: dict[str, Node] = {lp.kind: g.one}
        else:
            choice = self.ranges.value(dict(lp.annotations)["kind"])
            masks = {kind: choice.equals(n) for n, kind in enumerate(lp.kinds)}
        masks = {kind: g.zero for kind in KINDS} | masks
        product, limit = self._written_out(lp)
        if masks["serial"] is not g.zero and limit is not g.zero:
            fits = masks["serial"] * product.at_most(limit)
            masks["unrolled"] = masks["unrolled"] + fits
            masks["serial"] = masks["serial"] - fits
        return masks

    def _written_out(self, lp: Loop) -> tuple[Node, Node]:
        """The product of a loop and those directly nested in it, and what the block inside lets be unrolled."""
        nest, s = [lp.extent], lp
        while isinstance(s.body, Loop):
            s = s.body
            nest.append(s.extent)
        product = self.graph.product(self.ranges.of(e, NONE)[1] for e in reversed(nest))
        notes: dict[str, Any] = dict(s.body.annotations) if isinstance(s.body, Block) else {}
        return product, self.number(notes.get("unroll_up_to", 0))

    def number(self, note: Any) -> Node:
        """The value of a note that is a number or an expression of symbols."""
        return self.ranges.value(note) if isinstance(note, Expr) else self.graph.const(int(note))

    # --- products and regions -----------------------------------------------------------------------------------------

    def iterations(self, s: Statement, first: int = 0, last: int | None = None) -> Node:
        """How often the loops of a statement from depth `first` up to `last` run together."""
        # in the order in which neighbouring depths share their products
        chosen = reversed(s.loops[first:]) if last is None else s.loops[first:last]
        return self.graph.product(lp.extent for lp in chosen)

    def domain(self, s: Statement) -> Node:
        """How often a statement runs: iterations of the rounded loops around it that are beyond its domain do not."""
        return self.graph.product(self.ranges.value(it.extent) for it in s.block.iters)

    def region(self, access: Access, running: Vars, ranges: Ranges | None = None) -> tuple[Node, ...]:
        """The sides of the smallest box of a buffer that holds what is touched while some loops run.

        Other `ranges` let the loops run to other extents.
        """
        parts = [(at, running) for at in access.indices]
        return self._box(access.buffer, parts, ranges or self.ranges, access.inside)

    def _box(
        self, buffer: Buffer, parts: list[tuple[tuple[Expr, ...], Vars]], ranges: Ranges, inside: bool
    ) -> tuple[Node, ...]:
        sides = [_side([ranges.of(at[d], running) for at, running in parts]) for d in range(len(buffer.shape))]
        if inside:
            return tuple(sides)
        return tuple(x.least(self.ranges.value(whole)) for x, whole in zip(sides, buffer.shape, strict=True))

    def touched(self, access: Access, running: Vars, ranges: Ranges | None = None) -> Node:
        """How many bytes that box has."""
        return self.graph.product(self.region(access, running, ranges)) * access.bytes

    def footprint(self, s: Statement, depth: int) -> Node:
        """Bytes of all buffers that a statement touches while its loops from a depth inwards run."""

        def make() -> Node:
            running = s.running(depth)
            return self.graph.total(self.touched(a, running) for a in s.accesses)

        return self.made(("footprint", id(s), depth), make)

    def allocation(self, buffer: str, read: bool = False) -> tuple[int, Node]:
        """How many loops are around all uses of an intermediate buffer, and the bytes needed inside them.

        With `read`, only what is read counts: copies that are dealt out to threads run beyond their ends.
        """
        depth, sides = self.allocated(buffer, read)
        return depth, self.graph.product(sides) * DTYPES[self.program.buffers[buffer].dtype].bytes

    def allocated(self, buffer: str, read: bool = False) -> tuple[int, tuple[Node, ...]]:
        """How many loops are around all uses of an intermediate buffer, and the sides of what is used inside them."""
        uses = self.touching(buffer)
        depth = min(common(uses[0][0], s) for s, _ in uses)
        uses = [(s, a) for s, a in uses if a.reads or not read] or uses
        parts = [(at, s.running(depth)) for s, a in uses for at in a.indices]
        held = self.program.buffers[buffer]
        return depth, self._box(held, parts, self.ranges, all(a.inside for _, a in uses))


def _side(found: list[Range]) -> Node:
    """The length of the smallest interval around all ranges."""
    low, high = found[0]
    for a, b in dict.fromkeys(found):
        low, high = low.least(a), high.most(b)
    return high - low + 1


def _affine(found: Iterable[tuple[Expr, ...]]) -> bool:
    """Whether all indices are sums of multiples of variables."""
    return all(isinstance(atom, Var) for at in found for e in at for monomial in poly(e) for atom in monomial)


def common(a: Statement, b: Statement) -> int:
    """How many loops two statements have in common."""
    return sum(x is y for x, y in zip(a.loops, b.loops, strict=False))


def plainly(e: Expr, lp: LoopColumns) -> bool:
    """Whether a loop variable is a term of an index by itself."""
    return any(lp.var in monomial for monomial in poly(e))
