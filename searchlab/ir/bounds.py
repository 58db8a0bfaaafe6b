"""Reasoning about index expressions: value ranges, proofs of inequalities, and simplification based on them.

Iteration variables are at least 0 and below their extent, knobs and run-time sizes are at least 1.  Together with the
assumptions of a program (such as `t0 * t1 == 512`), this suffices for tiled loop nests with symbolic tile sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from searchlab.ir.algebra import floordiv, from_poly, mul_monomials, poly, without
from searchlab.ir.expr import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    Binary,
    Compare,
    Const,
    Expr,
    Lookup,
    Monomial,
    Poly,
    Var,
    compare,
    extreme,
    index,
    value_of,
)
from searchlab.ir.walk import lookups, rebuild, variables

Ranges = Mapping[Var, Expr]


@dataclass(frozen=True)
class Facts:
    """Extents of iteration variables, and conditions that are assumed to hold."""

    extents: Ranges = field(default_factory=dict)
    assumptions: tuple[Expr, ...] = ()

    def having(self, extents: Ranges) -> Facts:
        """These facts extended by further extents."""
        return Facts({**self.extents, **extents}, self.assumptions)

    @cached_property
    def products(self) -> tuple[tuple[Monomial, int, Expr], ...]:
        """Assumed equalities as rewrite rules: product of atoms -> (coefficient, expression)."""
        rules = []
        for fact in self.assumptions:
            if isinstance(fact, Compare) and fact.op == "eq" and len(p := poly(fact.a)) == 1:
                ((monomial, coefficient),) = p.items()
                if len(monomial) > 1 and coefficient == 1:
                    rules.append((monomial, coefficient, fact.b))
        return tuple(rules)

    @cached_property
    def divisors(self) -> frozenset[tuple[Expr, Expr]]:
        """Pairs (a, b) for which a % b == 0 is assumed."""
        found = set()
        for fact in self.assumptions:
            if isinstance(fact, Compare) and fact.op == "eq" and fact.b == ZERO:
                m = fact.a
                if isinstance(m, Binary) and m.op == "mod":
                    found.add((m.a, m.b))
        return frozenset(found)

    # --- caching ------------------------------------------------------------------------------------------------------

    def about(self, e: Expr) -> Facts:
        """The facts that are relevant to an expression, as a shared object that caches its results.

        The sketches of a space have most of their loops in common, so a proof for one serves the others.
        """
        used = variables(e)
        found = self._about.get(used)
        if found is None:
            names = self._closure(used)
            extents = tuple((v, self.extents[v]) for v in sorted(names & self.extents.keys(), key=lambda v: v.name))
            found = self._about[used] = _shared(extents, tuple(f for f, needs in self._rules if needs <= names))
        return found

    def _closure(self, names: frozenset[Var]) -> frozenset[Var]:
        """The variables and all those that bounds and assumed equalities may substitute for them."""
        more = names.union(*(variables(self.extents[v]) for v in names if v in self.extents))
        more = more.union(*(variables(f) for f, needs in self._rules if needs <= more))
        return names if more == names else self._closure(more)

    @cached_property
    def _rules(self) -> tuple[tuple[Expr, frozenset[Var]], ...]:
        return _equalities(self.assumptions)

    @cached_property
    def _about(self) -> dict[frozenset[Var], Facts]:
        return {}

    @cached_property
    def _simplified(self) -> dict[Expr, Expr]:
        return {}

    @cached_property
    def _nonnegative(self) -> dict[Expr, bool]:
        return {}

    # --- bounds -------------------------------------------------------------------------------------------------------

    def upper(self, e: Expr, over: Ranges | None = None) -> Expr:
        """The largest value of `e` (inclusive) over the ranges of the variables in `over` (default: all known)."""
        return self._extreme(e, self.extents if over is None else over, True)

    def lower(self, e: Expr, over: Ranges | None = None) -> Expr:
        """The smallest value of `e` over the ranges of the variables in `over` (default: all known)."""
        return self._extreme(e, self.extents if over is None else over, False)

    def _extreme(self, e: Expr, over: Ranges, up: bool) -> Expr:
        if isinstance(e, Const):
            return e
        if isinstance(e, Var):
            return (over[e] - 1 if up else ZERO) if e in over else e
        if isinstance(e, Poly):
            total: dict[Monomial, int] = {}
            for monomial, coefficient in e.terms:
                if len(monomial) <= 1 and (simple := _step(monomial, over, up == (coefficient > 0))) is not None:
                    key, scale = simple  # the common case needs no arithmetic on expressions
                    total[key] = total.get(key, 0) + coefficient * scale
                    continue
                for m, c in poly(self._extreme_product(monomial, over, up == (coefficient > 0))).items():
                    total[m] = total.get(m, 0) + c * coefficient
            return from_poly(total)
        if isinstance(e, Binary):
            return self._extreme_binary(e, over, up)
        if isinstance(e, Lookup) and variables(e.load) & over.keys():
            return e.below - 1 if up else ZERO
        return e

    def _extreme_product(self, monomial: Monomial, over: Ranges, up: bool) -> Expr:
        """A product of nonnegative atoms is extreme where each atom is; other products are not bounded."""
        if len(monomial) > 1 and not all(map(self._natural, monomial)):
            return from_poly({monomial: 1})
        product: Expr = ONE
        for atom in monomial:
            product = product * self._extreme(atom, over, up)
        return product

    def _extreme_binary(self, e: Binary, over: Ranges, up: bool) -> Expr:
        if not (variables(e) & over.keys()):
            return e
        if e.op == "floordiv" and not (variables(e.b) & over.keys()):
            return floordiv(self._extreme(e.a, over, up), e.b)
        if e.op == "mod" and not (variables(e.b) & over.keys()):
            if not up:
                return ZERO
            top = self._extreme(e.a, over, True)
            return top if self.nonnegative(e.a) and self.proves(compare("lt", top, e.b)) else e.b - 1
        if e.op in ("min", "max"):
            return extreme(e.op, self._extreme(e.a, over, up), self._extreme(e.b, over, up))
        return e

    # --- proofs -------------------------------------------------------------------------------------------------------

    def proves(self, condition: Expr) -> bool:
        """Whether the condition holds for all values; False means 'not proved', not 'refuted'."""
        if condition == TRUE:
            return True
        if not isinstance(condition, Compare):
            return False
        a, b = condition.a, condition.b
        if condition.op == "lt":
            return self.nonnegative(b - a - 1)
        if condition.op == "le":
            return self.nonnegative(b - a)
        if condition.op == "eq":
            gap = self.reduce(a - b)
            return gap == ZERO or (self.nonnegative(gap) and self.nonnegative(-gap))
        return self.nonnegative(b - a - 1) or self.nonnegative(a - b - 1)

    def nonnegative(self, e: Expr) -> bool:
        """Whether `e` >= 0 can be proved."""
        known = self._nonnegative.get(e)
        if known is None:
            facts = self.about(e)
            shown = facts._is_nonnegative(e) if facts is self else facts.nonnegative(e)
            known = self._nonnegative[e] = shown
        return known

    def _is_nonnegative(self, e: Expr) -> bool:
        low = self.reduce(_lowest(self.lower(self.reduce(e))))
        known = value_of(low)
        if known is not None:
            return known >= 0
        return self._is_sum_of_naturals(low)

    def nonnegative_rounded(self, e: Expr) -> bool:
        """Whether `e` >= 0 can be proved, if need be from what rounding up to symbolic tiles adds."""
        return self.nonnegative(e) or self._is_sum_of_naturals(_rounded_less(_lowest(self.lower(self.reduce(e)))))

    def _is_sum_of_naturals(self, e: Expr) -> bool:
        terms = poly(_shift_to_zero(e))
        return all(c >= 0 for c in terms.values()) and all(self._natural(atom) for m in terms for atom in m)

    def _natural(self, atom: Expr) -> bool:
        """Whether an atom is nonnegative: variables and remainders are, other atoms if their operands are."""
        if not isinstance(atom, Binary) or atom.op == "mod":
            return True
        if atom.op == "max":
            return self.nonnegative(atom.a) or self.nonnegative(atom.b)
        return self.nonnegative(atom.a) and (atom.op == "floordiv" or self.nonnegative(atom.b))

    def reduce(self, e: Expr) -> Expr:
        """`e` with assumed products replaced (t0*t1 becomes 512) and b*(x//b) replaced by x where b divides x."""
        if not isinstance(e, Poly):
            return e
        for monomial, coefficient in e.terms:
            new = self._reduce_product(monomial)
            if new is not None:
                return self.reduce(e + (new - from_poly({monomial: 1})) * coefficient)
        return e

    def _reduce_product(self, monomial: Monomial) -> Expr | None:
        for pattern, _, value in self.products:
            left = without(monomial, pattern)
            if left is not None:
                return value * from_poly({left: 1})
        for atom in monomial:
            if isinstance(atom, Binary) and atom.op == "floordiv" and (atom.a, atom.b) in self.divisors:
                divisor = poly(atom.b)
                if len(divisor) == 1:
                    ((atoms, coefficient),) = divisor.items()
                    left = without(monomial, mul_monomials((atom,), atoms))
                    if left is not None and coefficient == 1:
                        return atom.a * from_poly({left: 1})
        return None

    # --- simplification -----------------------------------------------------------------------------------------------

    def simplify(self, e: Expr) -> Expr:
        """`e` with the divisions and conditions resolved that the facts decide."""
        if isinstance(e, (Const, Var)):
            return e
        known = self._simplified.get(e)
        if known is None:
            facts = self.about(e)
            known = self._simplified[e] = facts._simplify(e) if facts is self else facts.simplify(e)
        return known

    def _simplify(self, e: Expr) -> Expr:
        new = rebuild(e, self.simplify)
        if isinstance(new, Binary):
            return self._simplify_binary(new)
        if isinstance(new, Poly):
            return _join_divisions(new)
        return self.decide(new) if isinstance(new, Compare) and new.a.dtype == "index" else new

    def decide(self, condition: Expr) -> Expr:
        """The condition, or TRUE or FALSE if the facts decide it."""
        if self.proves(condition):
            return TRUE
        if isinstance(condition, Compare):
            negation = {"lt": ("le", condition.b, condition.a), "le": ("lt", condition.b, condition.a)}.get(
                condition.op
            )
            if negation and self.proves(compare(*negation)):
                return FALSE
            if condition.op == "eq" and self.proves(compare("ne", condition.a, condition.b)):
                return FALSE
        return condition

    def _simplify_binary(self, e: Binary) -> Expr:
        if e.op in ("floordiv", "mod"):
            if self.nonnegative(e.a) and self.proves(compare("lt", e.a, e.b)):
                return ZERO if e.op == "floordiv" else e.a
            if e.op == "mod" and (e.a, e.b) in self.divisors:
                return ZERO
            return self._drop_small_rest(e)
        if e.op in ("min", "max") and e.dtype == "index":
            if self.proves(compare("le", e.a, e.b)):
                return e.a if e.op == "min" else e.b
            if self.proves(compare("le", e.b, e.a)):
                return e.b if e.op == "min" else e.a
        return e

    def _drop_small_rest(self, e: Binary) -> Expr:
        """(4*x + y) // 8 = x // 2 where 0 <= y < 4: terms smaller than the common divisor do not carry."""
        divisor = value_of(e.b)
        if divisor is None:
            return e
        terms = poly(e.a)
        for g in sorted({abs(c) for m, c in terms.items() if m and divisor % c == 0 and abs(c) > 1}, reverse=True):
            big = from_poly({m: c // g for m, c in terms.items() if c % g == 0})
            small = from_poly({m: c for m, c in terms.items() if c % g})
            if self.nonnegative(small) and self.proves(compare("lt", small, g)):
                if e.op == "floordiv":
                    return floordiv(big, index(divisor // g))
                return (big % (divisor // g)) * g + small
        return e


@lru_cache(maxsize=1 << 8)
def _equalities(assumptions: tuple[Expr, ...]) -> tuple[tuple[Expr, frozenset[Var]], ...]:
    """The assumed equalities (other assumptions are not used), each with the variables that make it applicable."""
    return tuple((f, variables(f.a)) for f in assumptions if isinstance(f, Compare) and f.op == "eq")


@lru_cache(maxsize=1 << 12)
def _shared(extents: tuple[tuple[Var, Expr], ...], assumptions: tuple[Expr, ...]) -> Facts:
    """One shared object per set of facts, so that its caches are shared too."""
    return Facts(dict(extents), assumptions)


def _step(monomial: Monomial, over: Ranges, up: bool) -> tuple[Monomial, int] | None:
    """The extreme of a constant or variable as a multiple of a monomial, in the simple cases."""
    if not monomial:
        return (), 1
    (atom,) = monomial
    if not isinstance(atom, Var):
        return None
    extent = over.get(atom)
    if extent is None:
        return monomial, 1
    if not up:
        return (), 0
    return ((), int(extent.value) - 1) if isinstance(extent, Const) else None


def _lowest(e: Expr) -> Expr:
    """The least value of an expression over the ranges of the indices that are looked up in it."""
    if not lookups(e):
        return e
    total: Expr = ZERO
    for monomial, coefficient in poly(e).items():
        product: Expr = Const(coefficient)
        for atom in monomial:
            bound = (ZERO if coefficient > 0 else atom.below - 1) if isinstance(atom, Lookup) else atom
            product = product * bound
        total = total + product
    return total


def _shift_to_zero(e: Expr) -> Expr:
    """Substitutes 1 + x for knobs and sizes (all >= 1): then nonnegative coefficients imply a nonnegative value."""
    symbols = {v: v + 1 for v in variables(e) if v.role != "iter"}
    if not symbols or not isinstance(e, Poly):
        return e
    total: Expr = ZERO
    for monomial, coefficient in e.terms:
        product: Expr = Const(coefficient)
        for atom in monomial:
            product = product * symbols.get(atom, atom)  # type: ignore[call-overload]
        total = total + product
    return total


def _rounded_less(e: Expr) -> Expr:
    """A lower bound of `e`: b * (x // b) is at least x - b + 1, so what is rounded up to a tile is never too short."""
    total: Expr = ZERO
    for monomial, coefficient in poly(e).items():
        found = _multiple(monomial, coefficient)
        total = total + (from_poly({monomial: coefficient}) if found is None else found)
    return total


def _multiple(monomial: Monomial, coefficient: int) -> Expr | None:
    """The lower bound of a term that is a multiple of b * (x // b), for a product b of knobs and sizes."""
    for atom in monomial:
        divisor = poly(atom.b) if isinstance(atom, Binary) and atom.op == "floordiv" else {}
        if isinstance(atom, Binary) and len(divisor) == 1:
            ((atoms, scale),) = divisor.items()
            whole = scale > 0 and coefficient > 0 and coefficient % scale == 0
            if whole and all(isinstance(a, Var) and a.role != "iter" for a in atoms):
                if without(monomial, mul_monomials((atom,), atoms)) == ():
                    return (atom.a - atom.b + 1) * (coefficient // scale)
    return None


def _join_divisions(e: Poly) -> Expr:
    """b * (x // b) + x % b = x."""
    for monomial, coefficient in e.terms:
        for atom in monomial:
            if isinstance(atom, Binary) and atom.op == "mod":
                quotient = floordiv(atom.a, atom.b)
                scale = from_poly({without(monomial, (atom,)) or (): coefficient})
                partner = poly(quotient * atom.b * scale)
                if partner and all(dict(e.terms).get(m) == c for m, c in partner.items()):
                    rest = e - quotient * atom.b * scale - atom * scale
                    joined = rest + atom.a * scale
                    return _join_divisions(joined) if isinstance(joined, Poly) else joined
    return e


def facts(extents: Ranges | None = None, assumptions: Iterable[Expr] = ()) -> Facts:
    """Facts from extents and assumptions."""
    return Facts(dict(extents or {}), tuple(assumptions))
