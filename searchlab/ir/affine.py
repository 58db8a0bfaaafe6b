"""Validation of bindings: whether loops visit the domain of a block at most once, at least once, or exactly once.

The bindings of a block map iterations of the loops around it to values of its iteration variables, wherever its
predicate holds.  The map is brought into a normal form first: a loop becomes the digits that the bindings take of it
(`f // 4` and `f % 4` are two independent variables), and the loops of a number that a condition limits become that
number (`4*i_0 + i_1 < 10` leaves one variable below 10).  Then the loops are solved for (`apart`), and the solution is
a certificate: it lies in the loops' ranges, satisfies the conditions, and maps back to the values it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from searchlab.ir.algebra import divide, floordiv, from_poly, mod, poly, without
from searchlab.ir.apart import recovered
from searchlab.ir.bounds import Facts, Ranges
from searchlab.ir.expr import ONE, TRUE, ZERO, Binary, Compare, Expr, Var, all_of, compare, conditions
from searchlab.ir.statement_tree import path_to
from searchlab.ir.stmt import Block, Iter, Loop, Stmt
from searchlab.ir.walk import Substitution, transform, variables, walk

ROUNDS = 32  # of the normal form; each removes a condition or a division, so that real programs need a few


class Need(StrEnum):
    """What a caller relies on; all of them include that the map does not leave the domain."""

    INJECTIVE = "injective"  # no element is visited twice
    COVERING = "covering"  # every element is visited
    BIJECTIVE = "bijective"


@dataclass(frozen=True, slots=True)
class IterationMap:
    """Bindings as a map from loops to iteration variables, where a condition holds; `shared` are parallel loops."""

    iters: tuple[Iter, ...]
    bindings: tuple[Expr, ...]
    loops: Ranges
    where: Expr = TRUE
    shared: frozenset[Var] = frozenset()


@dataclass(frozen=True, slots=True)
class Inverse:
    """A proof that a map is as needed: the loops as expressions of the iteration variables.

    It is empty where an overlapping map covers its domain, because then several iterations could be named.
    """

    loops: Mapping[Var, Expr]


@dataclass(frozen=True, slots=True)
class Rejection:
    """A readable reason why a map is not, or is not known to be, as needed; it is falsy."""

    words: str

    def __bool__(self) -> bool:
        return False


def validated(m: IterationMap, need: Need, facts: Facts) -> Inverse | Rejection:
    """Decides whether bindings are a quasi-affine map of the needed kind; of `facts`, only assumptions are used.

    Accepted are bindings that take independent loops apart and put them together: v1 = i // 4 and v2 = i % 4 is
    bijective, v1 = i and v2 = 2*i is not.  What cannot be proved is rejected.
    """
    try:
        words = parallel_reduction(m.iters, m.bindings, m.shared)
        if words is not None:
            raise _Unproved(words)
        normal = _normal(m, facts.assumptions)
        _check_inside(m, normal)
        found: Mapping[Var, Expr] = {}
        if need is not Need.COVERING:
            found = _determined(m, normal)
        if need is not Need.INJECTIVE:
            found = _covering(m, normal) or found
        return Inverse(found)
    except _Unproved as e:
        return Rejection(str(e))


def iteration_map(root: Stmt, block: Block) -> IterationMap:
    """The bindings of a block as a map from all loops around it, resolved through enclosing blocks."""
    bindings, where = resolved(root, block)
    loops = [s for s in path_to(root, block) if isinstance(s, Loop)]
    shared = frozenset(lp.var for lp in loops if any(kind.is_apart for kind in lp.kinds))
    return IterationMap(block.iters, bindings, {lp.var: lp.extent for lp in loops}, where, shared)


def resolved(root: Stmt, block: Block) -> tuple[tuple[Expr, ...], Expr]:
    """A block's bindings and predicate in terms of loop variables, resolved through the blocks around it in `root`."""
    mapping: dict[Expr, Expr] = {}
    found: tuple[Expr, ...] = ()
    where: Expr = TRUE
    for s in path_to(root, block):
        if isinstance(s, Block):
            put = Substitution(mapping)
            found, where = tuple(put(e) for e in s.bindings), all_of((where, put(s.predicate)))
            mapping = {**mapping, **{it.var: e for it, e in zip(s.iters, found, strict=True)}}
    return found, where


def parallel_reduction(iters: Iterable[Iter], bindings: Iterable[Expr], shared: Iterable[Var]) -> str | None:
    """Says which reduction is bound to a loop whose iterations run at once, if one is."""
    at_once = frozenset(shared)
    for it, e in zip(iters, bindings, strict=True):
        for v in sorted(variables(e) & at_once, key=str) if it.kind == "reduce" else ():
            return f"reduction '{it.var}' is bound to parallel loop '{v}'; use rfactor first"
    return None


class _Unproved(Exception):
    """Raised with the reason where a proof ends."""


# --- normal form ------------------------------------------------------------------------------------------------------


@dataclass
class _Normal:
    """Independent variables with their extents, and the bindings and conditions in terms of them.

    New variables are named by what they stand for, so that messages speak of the loops.
    """

    loops: dict[Var, Expr]
    values: list[Expr]
    where: list[Expr]
    origin: dict[Var, Expr]  # the loops in terms of the variables
    assumptions: tuple[Expr, ...]
    facts: Facts = field(init=False)

    def __post_init__(self) -> None:
        self.facts = Facts(self.loops, self.assumptions)

    def put(self, mapping: Mapping[Var, Expr], extents: Ranges) -> None:
        """Replaces variables by expressions of new ones; a variable of one value becomes that value."""
        still = Substitution({v: ZERO for v, extent in extents.items() if extent == ONE})
        moving = {v: extent for v, extent in extents.items() if extent != ONE}
        self.loops = {**{v: e for v, e in self.loops.items() if v not in mapping}, **moving}
        self.facts = Facts(self.loops, self.assumptions)
        put = Substitution({v: still(e) for v, e in mapping.items()})
        self.values = [_tidy(put(e), self.facts) for e in self.values]
        self.where = [c for c in (_tidy(put(c), self.facts) for c in self.where) if c != TRUE]
        self.origin = {v: _tidy(put(e), self.facts) for v, e in self.origin.items()}


def _normal(m: IterationMap, assumptions: tuple[Expr, ...]) -> _Normal:
    same: dict[Var, Expr] = {v: v for v in m.loops}
    normal = _Normal({}, list(m.bindings), list(conditions(m.where)), dict(same), assumptions)
    normal.put(same, m.loops)
    for _ in range(ROUNDS):
        if not any(_cut(v, normal) for v in list(normal.loops)) and not any(_absorb(c, normal) for c in normal.where):
            break
    return normal


def _tidy(e: Expr, facts: Facts) -> Expr:
    return facts.simplify(transform(facts.simplify(e), _unnested))


def _unnested(e: Expr) -> Expr | None:
    """(x % 12) // 4 = (x // 4) % 3 and (x % 12) % 4 = x % 4."""
    if not (isinstance(e, Binary) and e.op in ("floordiv", "mod")):
        return None
    inner = e.a
    if not (isinstance(inner, Binary) and inner.op == "mod"):
        return None
    count, rest = divide(inner.b, e.b)
    if rest != ZERO:
        return None
    return mod(floordiv(inner.a, e.b), count) if e.op == "floordiv" else mod(inner.a, e.b)


def _cut(v: Var, normal: _Normal) -> bool:
    """Replaces a variable by the digits that are taken of it, if these divide its extent."""
    wanted = {p for e in (*normal.values, *normal.where) for x in walk(e) for p in _cuts(x, v)}
    extent, facts = normal.loops[v], normal.facts
    chain = _chain(wanted - {ONE, extent}, facts)
    if not chain or facts.simplify(mod(extent, chain[-1])) != ZERO:
        return False
    whole: Expr = ZERO
    extents: dict[Var, Expr] = {}
    for low, high in zip([ONE, *chain], [*chain, extent], strict=True):
        size = facts.simplify(floordiv(high, low))
        quotient = f"({v} // {low})" if low != ONE else f"{v}"
        digit = Var(quotient if high == extent else f"({quotient} % {size})")
        extents[digit] = size
        whole = whole + digit * low
    normal.put({v: whole}, extents)
    return True


def _cuts(e: Expr, v: Var) -> Iterator[Expr]:
    """The bounds of the digit of a variable that a division or remainder takes."""
    if isinstance(e, Binary) and e.op in ("floordiv", "mod"):
        if e.a == v:
            yield e.b
        elif e.op == "mod" and isinstance(e.a, Binary) and e.a.op == "floordiv" and e.a.a == v:
            yield e.a.b
            yield e.a.b * e.b


def _chain(points: set[Expr], facts: Facts) -> list[Expr]:
    """The numbers in an order in which each divides the next; empty if there is none."""
    chain: list[Expr] = []
    left = sorted(points, key=str)
    while left:
        first = next((p for p in left if all(facts.simplify(mod(q, p)) == ZERO for q in left if q != p)), None)
        if first is None:
            return []
        chain.append(first)
        left.remove(first)
    return chain


def _absorb(c: Expr, normal: _Normal) -> bool:
    """Replaces the variables of a number that a condition limits by that number, with the limit as its extent."""
    room = _room(c)
    if room is None:
        return False
    scales: dict[Var, Expr] = {}
    limit: Expr = ZERO
    for monomial, k in poly(room).items():
        mine = [a for a in monomial if variables(a) & normal.loops.keys()]
        if not mine:
            limit = limit + from_poly({monomial: k})
        elif len(mine) == 1 and isinstance(mine[0], Var) and mine[0] not in scales:
            scales[mine[0]] = from_poly({without(monomial, (mine[0],)) or (): -k})
        else:
            return False
    total = _contiguous(scales, normal)
    if total is None or not _reaches(total, limit, normal.facts):
        return False
    number = Var(f"({limit - room})") if len(scales) > 1 else Var(f"({next(iter(scales))})")
    top = next(v for v, scale in scales.items() if normal.facts.reduce(scale * normal.loops[v] - total) == ZERO)
    mapping = {v: floordiv(number, s) for v, s in scales.items()}
    mapping |= {v: mod(e, normal.loops[v]) for v, e in mapping.items() if v != top}
    normal.where.remove(c)
    normal.put(mapping, {number: limit})
    return True


def _room(c: Expr) -> Expr | None:
    """`limit - x` for a condition x < limit."""
    if not isinstance(c, Compare) or c.op not in ("lt", "le") or c.a.dtype != "index":
        return None
    return c.b - c.a if c.op == "lt" else c.b - c.a + 1


def _contiguous(scales: Mapping[Var, Expr], normal: _Normal) -> Expr | None:
    """The size of the range of a sum of variables, if it takes every value of it exactly once."""
    total: Expr = ONE
    left = dict(scales)
    while left:
        v = next((v for v, scale in left.items() if normal.facts.reduce(scale - total) == ZERO), None)
        if v is None:
            return None
        del left[v]
        total = total * normal.loops[v]
    return total if scales else None


def _reaches(total: Expr, limit: Expr, facts: Facts) -> bool:
    """Whether limit <= total, also for totals that were rounded up: b * (x // b) >= x - b + 1."""
    wanted = compare("le", limit, total)
    if wanted == TRUE or wanted in facts.assumptions or facts.proves(wanted):
        return True
    for monomial, c in poly(total).items():
        for atom in monomial:
            if isinstance(atom, Binary) and atom.op == "floordiv":
                scale, rest = divide(from_poly({without(monomial, (atom,)) or (): c}), atom.b)
                if rest == ZERO and facts.nonnegative(scale):
                    least = total - from_poly({monomial: c}) + scale * (atom.a - atom.b + 1)
                    return facts.proves(compare("le", limit, least))
    return False


# --- proofs -----------------------------------------------------------------------------------------------------------


def _check_inside(m: IterationMap, normal: _Normal) -> None:
    """Proves that the map does not leave the domain."""
    for it, binding, e in zip(m.iters, m.bindings, normal.values, strict=True):
        for c in (compare("le", ZERO, e), compare("lt", e, it.extent)):
            if not normal.facts.proves(c) and not any(_implies(x, c, normal.facts) for x in normal.where):
                raise _Unproved(f"'{it.var}' = '{binding}' may leave its domain of {it.extent}")


def _implies(known: Expr, c: Expr, facts: Facts) -> bool:
    ours, theirs = _room(c), _room(known)
    return ours is not None and theirs is not None and facts.nonnegative(facts.simplify(ours - theirs))


def _determined(m: IterationMap, normal: _Normal) -> Mapping[Var, Expr]:
    """Proves that the values of the bindings determine the loops; the inverse."""
    xs = _symbols(m, normal)
    found = recovered(zip(normal.values, xs, strict=True), normal.loops, all_of(normal.where), normal.facts)
    for v in normal.loops:
        if v not in found:
            idle = not any(v in variables(e) for e in normal.values)
            said = "is in no binding" if idle else "does not follow from the values of the bindings"
            raise _Unproved(f"'{v}' {said}, so that iterations repeat")
    return _inverse(m, normal, found, xs)


def _symbols(m: IterationMap, normal: _Normal) -> list[Expr]:
    """Variables for the values of the iteration variables, apart from those of the loops."""
    own = (it.var if it.var not in normal.loops else Var(f"({it.var}')") for it in m.iters)
    return [v if it.extent != ONE else ZERO for v, it in zip(own, m.iters, strict=True)]


def _domain(m: IterationMap, normal: _Normal, xs: Sequence[Expr]) -> Facts:
    extents = {x: it.extent for x, it in zip(xs, m.iters, strict=True) if isinstance(x, Var)}
    return Facts(extents, normal.assumptions)


def _inverse(m: IterationMap, normal: _Normal, found: Mapping[Var, Expr], xs: Sequence[Expr]) -> Mapping[Var, Expr]:
    facts = _domain(m, normal, xs)
    put = Substitution(found)
    back = Substitution({x: it.var for x, it in zip(xs, m.iters, strict=True) if isinstance(x, Var)})
    return {v: back(_tidy(put(e), facts)) for v, e in normal.origin.items()}


def _covering(m: IterationMap, normal: _Normal) -> Mapping[Var, Expr]:
    """Proves that every element of the domain is visited; the inverse, empty if iterations overlap."""
    for it, binding, e in zip(m.iters, m.bindings, normal.values, strict=True):
        if it.extent != ONE and not variables(e) & normal.loops.keys():
            raise _Unproved(f"'{it.var}' = '{binding}' does not move, but its domain has extent {it.extent}")
    for c in normal.where:
        if not variables(c) & normal.loops.keys():  # of no group: it holds always or never
            raise _Unproved(f"condition '{c}' may exclude the whole domain")
    xs = _symbols(m, normal)
    found: dict[Var, Expr] = {}
    for group in _groups(normal):
        try:
            found |= _certified(m, normal, group, xs)
        except _Unproved:
            if not _overlapping(m, normal, group):
                raise
    return _inverse(m, normal, found, xs) if len(found) == len(normal.loops) else {}


def _groups(normal: _Normal) -> list[frozenset[Var]]:
    """The variables in groups that no binding and no condition connects."""
    groups: list[frozenset[Var]] = []
    for used in [frozenset((v,)) for v in normal.loops] + [variables(e) for e in (*normal.values, *normal.where)]:
        mine = used & normal.loops.keys()
        touching = [g for g in groups if g & mine]
        groups = [g for g in groups if not g & mine] + ([mine.union(*touching)] if mine else [])
    return groups


def _certified(m: IterationMap, normal: _Normal, group: frozenset[Var], xs: Sequence[Expr]) -> dict[Var, Expr]:
    """A solution that is in the loops' ranges, satisfies the conditions and maps to the values it is made of."""
    at = [n for n, e in enumerate(normal.values) if variables(e) & group]
    where = [c for c in normal.where if variables(c) & group]
    extents = {v: e for v, e in normal.loops.items() if v in group}
    solved = recovered([(normal.values[n], xs[n]) for n in at], extents, all_of(where), normal.facts)
    facts = _domain(m, normal, xs)
    found = {v: _tidy(solved.get(v, ZERO), facts) for v in extents}  # any iteration of an idle loop will do
    put = Substitution(found)
    for n in at:
        if _tidy(put(normal.values[n]), facts) != xs[n]:
            it, binding = m.iters[n], m.bindings[n]
            raise _Unproved(f"'{it.var}' = '{binding}' does not take every value below {it.extent} for all others")
    for v, e in found.items():
        if not (facts.proves(compare("le", ZERO, e)) and facts.proves(compare("lt", e, extents[v]))):
            raise _Unproved(f"'{v}' would have to be '{e}', which may not be below {extents[v]}")
    for c in where:
        if not facts.proves(_tidy(put(c), facts)):
            raise _Unproved(f"condition '{c}' may exclude elements of the domain")
    return found


def _overlapping(m: IterationMap, normal: _Normal, group: frozenset[Var]) -> bool:
    """Whether a sum of variables, each used only in it, takes all values below the extent, some perhaps repeatedly."""
    at = [n for n, e in enumerate(normal.values) if variables(e) & group]
    if len(at) != 1:
        return False
    e, extent, facts = normal.values[at[0]], m.iters[at[0]].extent, normal.facts
    scales: dict[Var, Expr] = {}
    base: Expr = ZERO
    for monomial, c in poly(e).items():
        mine = [a for a in monomial if variables(a) & group]
        if not mine:
            base = base + from_poly({monomial: c})
        elif len(mine) == 1 and isinstance(mine[0], Var) and mine[0] not in scales:
            scales[mine[0]] = from_poly({without(monomial, (mine[0],)) or (): c})
        else:
            return False
    reach: Expr = ZERO
    while scales:  # a step that is not longer than the range reached so far leaves no gap
        v = next((v for v, s in scales.items() if facts.proves(s >= ONE) and facts.proves(s <= reach + 1)), None)
        if v is None:
            return False
        reach = reach + scales.pop(v) * (normal.loops[v] - 1)
    limits = (compare("le", base, ZERO), compare("le", extent - 1, base + reach))
    # what keeps the sum inside its domain excludes nothing
    inside = (compare("le", ZERO, e), compare("lt", e, extent))
    where = [c for c in normal.where if variables(c) & group]
    return all(map(facts.proves, limits)) and all(any(_implies(c, x, facts) for c in inside) for x in where)
