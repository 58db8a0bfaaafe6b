"""Region inference: the part of a buffer that blocks access, in closed form over symbols, and the tiles they write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from searchlab.ir.algebra import divide, from_poly, poly, without
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ONE, TRUE, ZERO, Binary, Compare, Expr, Var, compare, conditions
from searchlab.ir.statement_tree import accesses, path_to, statements, stores
from searchlab.ir.stmt import Block, Loop, Stmt
from searchlab.ir.walk import Substitution, variables
from searchlab.schedule.primitive import check


@dataclass(frozen=True, slots=True)
class Interval:
    """The integers [low, low + extent)."""

    low: Expr
    extent: Expr

    def at(self, step: Expr) -> Expr:
        """The integer at a position."""
        return self.low + step


Region = tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Digits:
    """The integers `high * base + low` of two intervals, in the order of their digits."""

    high: Interval
    low: Interval
    base: Expr

    @property
    def extent(self) -> Expr:
        """Their number."""
        return self.high.extent * self.low.extent

    def at(self, step: Expr) -> Expr:
        """The integer at a position."""
        if self.low == Interval(ZERO, self.base):
            return self.high.low * self.base + step
        return self.high.at(step // self.low.extent) * self.base + self.low.at(step % self.low.extent)


@dataclass(frozen=True, slots=True)
class ReadDimensions:
    """The dimensions of a buffer that one variable indexes: one of them, or two with its quotient and remainder."""

    high: int
    low: int | None = None
    base: Expr = ONE

    def span(self, region: Region) -> Interval | Digits:
        """The values of the variable for which a region is read."""
        return region[self.high] if self.low is None else Digits(region[self.high], region[self.low], self.base)


def read_dimensions(indices: Sequence[Expr]) -> dict[Var, ReadDimensions] | None:
    """The dimensions that each variable indexes, if different values of the variables read different elements.

    [i, j] reads so, and [i // 4, j, i % 4] too.  None otherwise.
    """
    found: dict[Var, ReadDimensions] = {}
    for n, e in enumerate(indices):
        if isinstance(e, Var) and e not in found:
            found[e] = ReadDimensions(n)
        elif isinstance(e, Binary) and e.op == "floordiv" and isinstance(e.a, Var) and e.a not in found:
            rest = [m for m, other in enumerate(indices) if other == e.a % e.b]
            if len(rest) != 1 or variables(e.b):
                return None
            found[e.a] = ReadDimensions(n, rest[0], e.b)
        elif not (isinstance(e, Binary) and e.op == "mod"):
            return None
    used = sum(1 if d.low is None else 2 for d in found.values())
    return found if used == len(indices) else None


def bindings_within(root: Stmt, block: Block) -> Substitution:
    """Iteration variables of a block (and of enclosing blocks) as expressions of loop variables."""
    mapping: dict[Expr, Expr] = {}
    for s in path_to(root, block):
        if isinstance(s, Block):
            put = Substitution(mapping)
            mapping.update({it.var: put(e) for it, e in zip(s.iters, s.bindings, strict=True)})
    return Substitution(mapping)


def loops_inside(root: Loop) -> dict[Var, Expr]:
    """The extents of the loops inside a loop by their variables."""
    return {lp.var: lp.extent for lp in statements(root.body) if isinstance(lp, Loop)}


def touched(
    root: Loop, blocks: Iterable[Block], buffer: str, shape: tuple[Expr, ...], facts: Facts, *, writes: bool
) -> Region:
    """The part of a buffer that blocks inside `root` read (or write) in one iteration of it.

    Loops inside `root` are relaxed over their full ranges; `root` and the loops around it stay symbolic.
    """
    inside = loops_inside(root)
    regions = []
    for block in blocks:
        put = bindings_within(root, block)
        found = (
            [s.indices for s in stores(block) if s.buffer == buffer]
            if writes
            else [ld.indices for ld in accesses(block) if ld.buffer == buffer]
        )
        for indices in dict.fromkeys(found):
            regions.append(tuple(_interval(facts.simplify(put(i)), inside, facts) for i in indices))
    return tuple(_steady(_union([r[d] for r in regions], shape[d], facts), shape[d], facts) for d in range(len(shape)))


def _steady(part: Interval, whole: Expr, facts: Facts) -> Interval:
    """The interval with its largest extent over all iterations: loop extents must not depend on loop variables."""
    if not _moves(part.extent):
        return part
    most = facts.simplify(facts.reduce(facts.upper(part.extent)))
    return Interval(ZERO, whole) if _moves(most) or not facts.proves(most < whole) else Interval(part.low, most)


def _moves(e: Expr) -> bool:
    return any(v.role == "iter" for v in variables(e))


def _interval(e: Expr, inside: dict[Var, Expr], facts: Facts) -> Interval:
    low, high = facts.simplify(facts.lower(e, inside)), facts.simplify(facts.upper(e, inside))
    return Interval(low, facts.simplify(facts.reduce(high - low + 1)))


def _union(parts: list[Interval], whole: Expr, facts: Facts) -> Interval:
    """The smallest interval containing all parts if it can be determined, else the whole dimension."""
    result = parts[0]
    for p in parts[1:]:
        if p == result:
            continue
        a_end, b_end = result.low + result.extent, p.low + p.extent
        if facts.proves(compare("le", result.low, p.low)):
            low = result.low
        elif facts.proves(compare("le", p.low, result.low)):
            low = p.low
        else:
            return Interval(ZERO, whole)
        if facts.proves(compare("le", a_end, b_end)):
            end = b_end
        elif facts.proves(compare("le", b_end, a_end)):
            end = a_end
        else:
            return Interval(ZERO, whole)
        result = Interval(low, facts.simplify(end - low))
    return result


# --- tiles ------------------------------------------------------------------------------------------------------------


def check_tile(root: Loop, maker: Block, reader: str) -> None:
    """Refuses a loop unless each iteration writes a dense, disjoint tile, which is what the reader runs on."""
    inner = loops_inside(root)
    put = bindings_within(root, maker)
    for i in map(put, maker.store.indices):
        message = f"one iteration of loop '{root.name}' does not write a separate tile: '{maker.store.buffer}' at '{i}'"
        check(_is_tile(i, inner), f"{message}; '{reader}' is accepted where the inner loops of splits are all inside")


def _is_tile(e: Expr, inner: dict[Var, Expr]) -> bool:
    """Whether the inner loops enumerate exactly the least significant digits of an index."""
    scales: dict[Var, Expr] = {}
    outside = []
    for monomial, c in poly(e).items():
        mine = [a for a in monomial if variables(a) & inner.keys()]
        if not mine:
            outside.append((monomial, c))
        elif len(mine) == 1 and isinstance(mine[0], Var) and mine[0] not in scales:
            scales[mine[0]] = from_poly({without(monomial, (mine[0],)) or (): c})
        elif any(inner[v] != ONE for v in variables(from_poly({monomial: c})) & inner.keys()):
            return False
    tile = _tile({v: scale for v, scale in scales.items() if inner[v] != ONE}, inner)
    return tile is not None and all(divide(from_poly({m: c}), tile)[1] == ZERO for m, c in outside if m)


def _tile(scales: dict[Var, Expr], inner: dict[Var, Expr]) -> Expr | None:
    """The size of the tile that the digits of an index span, if they are contiguous."""
    tile: Expr = ONE
    while scales:
        v = next((v for v, scale in scales.items() if scale == tile), None)
        if v is None:
            return None
        del scales[v]
        tile = tile * inner[v]
    return tile


def tile_conditions(root: Loop, maker: Block, reader: str) -> list[Expr]:
    """The conditions under which one iteration of a loop writes its tile, written entirely or not at all."""
    inner = loops_inside(root)
    put = bindings_within(root, maker)
    found = [put(c) for s in path_to(root, maker) if isinstance(s, Block) for c in conditions(s.predicate)]
    domain = {put(it.var) - it.extent for it in maker.iters}  # the reader checks its own domain
    space = {v for it in maker.iters if it.kind == "space" for v in variables(put(it.var))}
    start = Substitution({v: ZERO for v in inner})
    result = []
    for c in found:
        if not isinstance(c, Compare):  # a number: the bindings decide it
            check(c == TRUE, f"'{maker.name}', which writes for '{reader}', never runs")
            continue
        if variables(c) & inner.keys() and c.a - c.b in domain:
            continue
        moving = {v: inner[v] for v in variables(c) & inner.keys() & space if inner[v] != ONE}
        message = f"'{c}' cuts off a part of what one iteration of loop '{root.name}' writes for '{reader}'"
        check(not moving or _holds_for_all_or_none(c, start, moving), message)
        result.append(start(c))
    return [c for c in result if _moves(c)]


def _holds_for_all_or_none(c: Compare, start: Substitution, moving: dict[Var, Expr]) -> bool:
    """Whether a condition that holds at the start of the moving loops holds in all their iterations."""
    span = Facts().upper(c.a - start(c.a), moving) + 1
    return c.op == "lt" and divide(start(c.b - c.a), span)[1] == ZERO
