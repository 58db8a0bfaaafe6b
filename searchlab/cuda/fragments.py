"""Results of tensor cores in fragments: a warp holds a tile of 16 x 8 elements, four in the registers of each lane.

    C_local[b, i, j]     =>     C_local.w[lane(i, j), b, i // 16, j // 8, register(i, j)]        in the memory of a warp

Buffers in the memory of a warp have the lane as first index; calls say which dimensions are rows and columns.  Outside
of calls every thread accesses what it holds itself, which is proved here; inside, the instruction says which lane holds
what.  So each thread needs its own part, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from searchlab.dtype import DTYPES
from searchlab.errors import BuildError
from searchlab.intrinsics import Match, find_intrinsic, match
from searchlab.intrinsics.warp_products import room_between_rows
from searchlab.ir.alpha import Difference
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ZERO, Expr, Load, Var, index, value_of
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import kept, map_accesses, statements, stores, swap, touches
from searchlab.ir.stmt import Alloc, Buffer, If, Loop, Stmt, Store, Tensorized, Update, seq
from searchlab.ir.visitor import Rewriter
from searchlab.ir.walk import Substitution, loads, variables
from searchlab.targets.cuda import WARP

SCOPE = "warp"
REGISTERS = 4
_ROWS, _COLUMNS = 16, 8
_LANE = Var(LoopKind.THREAD_X.value)


def with_fragments(where: str, program: Program, body: Stmt) -> tuple[Stmt, dict[str, Buffer]]:
    """What a thread does, with the results of calls in fragments, and the buffers of these."""
    calls = [s for s in statements(body) if isinstance(s, Tensorized)]
    if not calls:
        return body, {}
    tiles: dict[str, _Tiles] = {}
    lanes = next((lp.extent for lp in statements(body) if isinstance(lp, Loop) and lp.var == _LANE), index(1))
    if value_of(lanes) != WARP:
        raise BuildError(f"{where}: instructions of warps need {WARP} threads along threadIdx.x, not {lanes}")
    for call in calls:
        found = _matched(where, call, program.buffers)
        result = found.operands[find_intrinsic(call.intrinsic).output]
        if program.buffers[result.buffer].scope != "local":
            raise BuildError(f"{where}: '{result.buffer}' is a result of '{call.intrinsic}'; keep it in local memory")
        rows, columns = (_dimension(where, result, found.loops[loop]) for loop in ("i", "j"))
        tiles[result.buffer] = _Tiles(rows, columns)
    body = kept(_Calls(tiles).visit(body, ()))
    made = {}
    for name, t in tiles.items():
        new = t.fragments(program.buffers[name])
        made[new.name] = new
        body = kept(_Places(where, name, new.name, t).visit(body, Facts()))
    return body, made


def padded_rows(body: Stmt) -> Callable[[Buffer], Buffer]:
    """Gives buffers whose rows are operands of calls some room between rows, so that these are in different banks."""
    calls = [s for s in statements(body) if isinstance(s, Tensorized)]
    names = {ld.buffer for call in calls for store in stores(call) for ld in loads(store.value)}

    def padded(buffer: Buffer) -> Buffer:
        *outer, row = buffer.shape
        size, elements = DTYPES[buffer.dtype].bytes, value_of(row)
        if buffer.scope != "shared" or buffer.name not in names or elements is None:
            return buffer
        return replace(buffer, shape=(*outer, index(elements + room_between_rows(elements * size) // size)))

    return padded


def without_lanes(body: Stmt) -> Stmt:
    """A kernel in which each thread has its own part of the buffers of warps."""
    names = {s.buffer.name for s in statements(body) if isinstance(s, Alloc) and s.buffer.scope == SCOPE}

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Alloc) and s.buffer.name in names:
            return Alloc(replace(s.buffer, shape=s.buffer.shape[1:], scope="local"), visit(s.body))
        return kept(s.map_children(visit)) if s.children() else s

    return map_accesses(visit(body), lambda p: (p[0], p[1][1:]) if p[0] in names else p) if names else body


def _matched(where: str, call: Tensorized, buffers: Mapping[str, Buffer]) -> Match:
    facts = Facts({lp.var: lp.extent for lp in statements(call.body) if isinstance(lp, Loop)})
    found = match(find_intrinsic(call.intrinsic), call.body, buffers, facts)
    if isinstance(found, Difference):
        raise BuildError(f"{where}: intrinsic '{call.intrinsic}' does not fit the lowered loops: {found.words}")
    return found


def _dimension(where: str, result: Load, loop: Var) -> int:
    """The dimension of a result that a loop of a call runs along."""
    found = [d for d, i in enumerate(result.indices) if loop in variables(i)]
    if len(found) != 1:
        raise BuildError(f"{where}: rows and columns of a call must be dimensions of '{result.buffer}' of their own")
    return found[0]


@dataclass(frozen=True)
class _Tiles:
    """The dimensions of a result that are the rows and the columns of its tiles."""

    rows: int
    columns: int

    def fragments(self, old: Buffer) -> Buffer:
        """The buffer of a warp in place of a result."""
        sides = {self.rows: _ROWS, self.columns: _COLUMNS}
        shape = [-(-(value_of(e) or 1) // sides.get(d, 1)) for d, e in enumerate(old.shape)]
        return Buffer(f"{old.name}.w", tuple(map(index, (WARP, *shape, REGISTERS))), old.dtype, SCOPE)

    def place(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Where an element is: lane, tile and register."""
        i, j = indices[self.rows], indices[self.columns]
        tile = {self.rows: i // _ROWS, self.columns: j // _COLUMNS}
        others = (tile.get(d, e) for d, e in enumerate(indices))
        return (i % 8) * 4 + j % 8 // 2, *others, (i % _ROWS // 8) * 2 + j % 2

    def own(self, indices: tuple[Expr, ...], row: Expr, column: Expr) -> tuple[Expr, ...]:
        """The element of a lane in a tile that begins at `indices`: one of its two rows, and of its two columns."""
        mine = {self.rows: row * 8 + _LANE // 4, self.columns: (_LANE % 4) * 2 + column}
        return tuple(e + mine.get(d, ZERO) for d, e in enumerate(indices))


@dataclass(frozen=True)
class _Calls(Rewriter[[tuple[Loop, ...]]]):
    """Takes the inits of sums out of calls, to before the outermost loop that carries the sum."""

    tiles: Mapping[str, _Tiles]

    def visit_loop(self, s: Loop, around: tuple[Loop, ...]) -> Stmt | None:
        body = kept(self.visit(s.body, (*around, s)))
        before = []
        for call in (x for x in statements(body) if isinstance(x, Tensorized)):
            (update,) = stores(call)
            outer = [lp for lp in around if isinstance(update, Update) and lp.var in variables(update.first)]
            if isinstance(update, Update) and s.var in variables(update.first) and not outer:
                before.append(self.init(s.with_body(body), call, update))
                body = kept(swap(body, call, _plain(call, update)))
        return seq(*before, s.with_body(body))

    def visit_tensorized(self, s: Tensorized, around: tuple[Loop, ...]) -> Stmt | None:
        (update,) = stores(s)
        carried = isinstance(update, Update) and any(lp.var in variables(update.first) for lp in around)
        if carried or not isinstance(update, Update):
            return s
        return seq(self.init(s, s, update), _plain(s, update))

    def init(self, outer: Stmt, call: Tensorized, update: Update) -> Stmt:
        """Each thread initialises its part of all tiles that the calls in a loop add to."""
        inside = {lp.var: ZERO for lp in statements(call.body) if isinstance(lp, Loop)}
        first = tuple(Substitution(inside)(e) for e in update.indices)
        r, c = Var("fragment.r"), Var("fragment.c")
        nest: Stmt = Store(update.buffer, self.tiles[update.buffer].own(first, r, c), update.init)
        moving = {v for e in first for v in variables(e)}
        loops = [s for s in statements(outer) if isinstance(s, Loop) and s.var in moving]
        for var in (c, r):
            nest = Loop(var, index(2), nest, LoopKind.UNROLLED)
        for lp in reversed([lp for lp in loops if touches(lp, update.buffer)]):
            nest = lp.with_body(nest)
        return nest


def _plain(call: Tensorized, update: Update) -> Tensorized:
    """The call without its init; its loops are not unrolled where they run as loops, and so not kept elsewhere."""
    body = kept(swap(call.body, update, Store(update.buffer, update.indices, update.value)))

    def visit(s: Stmt) -> Stmt:
        s = kept(s.map_children(visit)) if s.children() else s
        return replace(s, kind=LoopKind.SERIAL) if isinstance(s, Loop) else s

    return Tensorized(call.intrinsic, visit(body))


@dataclass(frozen=True)
class _Places(Rewriter[[Facts]]):
    """Accesses to a buffer as accesses to its fragments."""

    where: str
    old: str
    new: str
    tiles: _Tiles

    def visit_loop(self, s: Loop, facts: Facts) -> Stmt | None:
        return s.with_body(kept(self.visit(s.body, facts.having({s.var: s.extent}))))

    def visit_if(self, s: If, facts: Facts) -> Stmt | None:
        return If(s.condition, kept(self.visit(s.body, facts)))

    def visit_tensorized(self, s: Tensorized, facts: Facts) -> Stmt | None:
        inside = facts.having({lp.var: lp.extent for lp in statements(s.body) if isinstance(lp, Loop)})
        return Tensorized(s.intrinsic, self.placed(s.body, inside, own=False))

    def visit_store(self, s: Store, facts: Facts) -> Stmt | None:
        return self.placed(s, facts, own=True)

    def placed(self, s: Stmt, facts: Facts, *, own: bool) -> Stmt:
        def place(p: tuple[str, tuple[Expr, ...]]) -> tuple[str, tuple[Expr, ...]]:
            if p[0] != self.old:
                return p
            lane, *rest = (facts.simplify(facts.simplify(e)) for e in self.tiles.place(p[1]))
            if own and lane != _LANE:
                raise BuildError(
                    f"{self.where}: '{self.old}' is held by a warp in fragments, but a thread accesses what lane "
                    f"{lane} has; give lane g*4 + q rows g, g + 8 and columns 2*q, 2*q + 1"
                )
            return self.new, (lane if not own else _LANE, *rest)

        return map_accesses(s, place)
