"""What is known about the symbols of a function: their ranges, and proofs about extents based on these.

Symbols are the run-time sizes of the IR, at least 1.  The IR's prover knows ranges of iteration variables only, so a
symbol with bounds is written as its lower bound plus such a variable before anything is proved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from searchlab.errors import GraphError
from searchlab.ir.algebra import solvable
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import Const, Expr, Like, Var, compare, index, value_of
from searchlab.ir.walk import Substitution, variables


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The values that a symbol may have, both ends included; `high` is None if there is no upper bound."""

    low: int = 1
    high: int | None = None

    def __post_init__(self) -> None:
        if self.low < 1:
            raise GraphError(f"a size is at least 1, so its range cannot begin at {self.low}")
        if self.high is not None and self.high < self.low:
            raise GraphError(f"no size is at least {self.low} and at most {self.high}")

    def __str__(self) -> str:
        return f"at least {self.low}" if self.high is None else f"{self.low} to {self.high}"

    def __contains__(self, value: int) -> bool:
        return self.low <= value and (self.high is None or value <= self.high)


@dataclass(frozen=True)
class SizeFacts:
    """The ranges of symbols; those without an entry are at least 1.  Sound, not complete, as `Facts` is."""

    ranges: Mapping[Var, SizeRange] = field(default_factory=dict)

    def proves(self, condition: Expr) -> bool:
        """Whether a condition on symbols holds for all their values; False means 'not proved'."""
        return self._facts.proves(self._shifted(condition))

    def equal(self, a: Like, b: Like) -> bool:
        """Whether two extents are the same for all values of the symbols."""
        a, b = index(a), index(b)
        return a == b or self.proves(compare("eq", a, b))

    def differ(self, a: Like, b: Like) -> bool:
        """Whether two extents are different for all values of the symbols."""
        a, b = index(a), index(b)
        return a != b and self.proves(compare("ne", a, b))

    def simplify(self, e: Expr) -> Expr:
        """The expression without the divisions and extremes that the ranges decide."""
        if isinstance(e, (Const, Var)):
            return e
        shifted = self._shifted(e)
        simple = self._facts.simplify(shifted)
        return e if simple == shifted else self._back(simple)

    def upper(self, e: Expr) -> int | None:
        """The largest value of an expression, or None if the ranges do not limit it."""
        return value_of(self._facts.upper(self._shifted(e)))

    def check(self, values: Mapping[Var, int], where: str) -> None:
        """Refuses values of symbols that are out of their ranges."""
        for symbol, value in values.items():
            allowed = self.ranges.get(symbol, SizeRange())
            if value not in allowed:
                high = "" if allowed.high is None else f" <= {allowed.high}"
                raise GraphError(f"{where}: {symbol} = {value} is out of its range, {allowed.low} <= {symbol}{high}")

    @cached_property
    def _counters(self) -> dict[Var, tuple[Var, Expr]]:
        """For every symbol with bounds the variable that counts from its lower bound, and the symbol in terms of it."""
        found: dict[Var, tuple[Var, Expr]] = {}
        for symbol, known in self.ranges.items():
            if known.high is not None:
                counter = Var(symbol.name, "iter")
                found[symbol] = counter, counter + known.low
            elif known.low > 1:
                counter = Var(f"{symbol.name}'", "size")
                found[symbol] = counter, counter + (known.low - 1)
        return found

    @cached_property
    def _shifted(self) -> Substitution:
        return Substitution({symbol: value for symbol, (_, value) in self._counters.items()})

    @cached_property
    def _back(self) -> Substitution:
        return Substitution({c: symbol - (value - c) for symbol, (c, value) in self._counters.items()})

    @cached_property
    def _facts(self) -> Facts:
        bounded = ((symbol, known) for symbol, known in self.ranges.items() if known.high is not None)
        return Facts({Var(s.name, "iter"): Const(known.high - known.low + 1) for s, known in bounded if known.high})


def determined(shapes: Iterable[Expr]) -> frozenset[Var]:
    """The symbols that these extents determine when they are known: n by n itself, or by such as 4 * n."""
    return frozenset(found[0] for e in shapes if (found := solvable(e)) is not None)


def undetermined(dims: Iterable[Expr], known: Iterable[Var]) -> list[Var]:
    """The symbols of index expressions that are not among the known ones, by name."""
    used = frozenset().union(*map(variables, dims))
    return sorted(used - frozenset(known), key=lambda v: v.name)
