"""Config: what a template function defines its knobs with while it schedules.

Knobs with integers become symbols, and the primitives run on those once.  A structural choice runs the function again
for each of its options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from searchlab.dtype import BOOL
from searchlab.errors import SpaceError
from searchlab.ir.expr import Expr, knob, value_of
from searchlab.ir.walk import variables
from searchlab.schedule import Schedule
from searchlab.search.knob import Knob, Label, menu
from spaces.template import policies
from spaces.template.policies import Filter

T = TypeVar("T")


class Unsuitable(Exception):
    """The structure does not suit the task."""


class Decisions:
    """The structural choices of one run: those before it repeat, the ones it meets first take their first option."""

    def __init__(self, before: Sequence[int] = ()) -> None:
        self._before = tuple(before)
        self.made: list[tuple[str, int, int, str]] = []  # name, option, number of options, label

    def decide(self, name: str, labels: Sequence[str]) -> int:
        """The option to take at the next choice."""
        at = len(self.made)
        option = self._before[at] if at < len(self._before) else 0
        self.made.append((name, option, len(labels), labels[option]))
        return option

    def next(self) -> tuple[int, ...] | None:
        """The choices to repeat for the next structure, depth first; None after the last."""
        options = [(option, count) for _, option, count, _ in self.made]
        while options:
            option, count = options.pop()
            if option + 1 < count:
                return (*(o for o, _ in options), option + 1)
        return None


class Config:
    """The knobs, structural choices and conditions of one structure, collected while its template runs."""

    def __init__(self, schedule: Schedule, decisions: Decisions | None = None) -> None:
        self._s = schedule
        self._decisions = decisions or Decisions()
        self._names: set[str] = set()
        self.knobs: list[Knob] = []
        self.conditions: list[Expr] = []

    # --- knobs --------------------------------------------------------------------------------------------------------

    def split(
        self,
        name: str,
        loop: str,
        parts: int = 2,
        policy: str = "factors",
        max_inner: int | None = None,
        max_factor: int | None = None,
        filter: Filter | None = None,
        candidates: Sequence[Sequence[int]] | None = None,
        tail: bool = False,
        sizes: Sequence[int] | None = None,
    ) -> list[str]:
        """Splits a loop into nested ones, outermost first, by the symbols name1, name2, ... of one knob.

        The policies are factors (exact), power2, verbose (divisors and powers of two) and candidate; `max_inner` limits
        the innermost factor, `max_factor` all but the outermost, `filter` takes a row of factors.  With `tail`, sizes
        need not divide: every inner loop has a knob of its own called after its symbol; `sizes` lists the innermost.
        """
        if parts < 2:
            raise SpaceError(f"knob '{name}': a split makes at least 2 parts, not {parts}")
        if tail:
            return self._rounded_up(name, loop, parts, max_inner, max_factor, sizes)
        extent = self._static(name, loop)
        try:
            table = policies.kept(policies.splits(extent, parts, policy, candidates), max_inner, max_factor, filter)
        except SpaceError as e:
            raise SpaceError(f"knob '{name}': {e}") from None
        if not len(table):
            raise SpaceError(f"knob '{name}': no way to split {extent} into {parts} parts is left by its limits")
        exact = bool((table.prod(axis=1) == extent).all())
        symbols = tuple(f"{name}{n}" for n in range(parts))
        # with tails the outermost factor follows from the others, and no prime factor moves between them
        made = Knob(name, "split", symbols, table) if exact else Knob(name, "menu", symbols[1:], table[:, 1:])
        self._add(made)
        return self._s.split(loop, [None, *map(knob, symbols[1:])], tail=not exact)

    def _rounded_up(
        self,
        name: str,
        loop: str,
        parts: int,
        max_inner: int | None,
        max_factor: int | None,
        sizes: Sequence[int] | None,
    ) -> list[str]:
        extent = value_of(self._s.program.loops[loop].extent)
        most = extent if extent is not None else max_factor or 512
        self._claim(name)
        factors: list[Expr] = []
        for n in range(1, parts):
            last = n == parts - 1
            limit = min(most, *(m for m in (max_factor, max_inner if last else None) if m is not None), most)
            self._add(menu(f"{name}{n}", sizes if sizes and last else policies.sizes(limit)))
            factors.append(knob(f"{name}{n}"))
        if extent is not None and parts > 2:
            self._refuse_idle(extent, factors)
        return self._s.split(loop, [None, *factors], tail=True)

    def _refuse_idle(self, extent: int, factors: Sequence[Expr]) -> None:
        """Middle sizes of which a smaller one would cover the extent as well make the same program again."""
        inner = factors[-1]
        for f in reversed(factors[:-1]):
            self.require((f - 1) * inner < extent)
            inner = inner * f

    def knob(self, name: str, values: Sequence[Label]) -> Expr:
        """A symbol for one of several values in their order; words and fractions are numbered from 0."""
        self._add(menu(name, values))
        return knob(name)

    def annotate(self, name: str, loops: Sequence[str], policy: str = "try_unroll") -> None:
        """Leaves the kinds of loops to one knob; a policy names them, such as try_unroll_vec."""
        words, rows = policies.kinds(len(loops), policy)
        symbols = tuple(f"{name}{n}" for n in range(len(loops)))
        labels = tuple(".".join(words[k] for k in row) for row in rows)
        self._add(Knob(name, "category", symbols, np.array(rows, dtype=np.int64), labels))
        for loop, symbol in zip(loops, symbols, strict=True):
            self._s.choose_kind(loop, [policies.KINDS[w] for w in words], knob(symbol))

    def unrolled(self, name: str, loops: Sequence[str], most: int = 32) -> None:
        """A knob for how many of some loops, the innermost (last) first, are unrolled: to at most `most` copies."""
        copies = np.cumprod([self._static(name, x) for x in reversed(loops)])
        inner = list(reversed(loops))[: int((copies <= most).sum())]
        count = self.knob(name, range(len(inner) + 1))
        for n, loop in enumerate(inner):
            # 1 if that many loops are unrolled that it is among them, else 0
            self._s.choose_kind(loop, ["serial", "unrolled"], (count + len(inner) - n - 1) // len(inner))

    # --- structure ----------------------------------------------------------------------------------------------------

    def choose(self, name: str, options: Sequence[T], label: Callable[[T], str] = str) -> T:
        """One of several options for the template to act on; each becomes a sketch of its own."""
        if not options:
            raise SpaceError(f"choice '{name}' has no options")
        self._claim(name)
        if len(options) == 1:
            return options[0]
        labels = [label(o) for o in options]
        if len(set(labels)) != len(labels):
            raise SpaceError(f"choice '{name}' lists an option twice: {', '.join(labels)}")
        return options[self._decisions.decide(name, labels)]

    def reorder(self, name: str, loops: Sequence[str], policy: str = "all", **options: Any) -> list[str]:
        """Puts loops into one of the orders of a policy (see `policies.orders`); each becomes a sketch of its own."""
        try:
            found = policies.orders(loops, policy, **options)
        except (SpaceError, TypeError) as e:
            raise SpaceError(f"choice '{name}': {e}") from None
        chosen = self.choose(name, found, ".".join)
        if len(chosen) > 1:
            self._s.reorder(*chosen)
        return list(chosen)

    def skip(self, reason: str) -> None:
        """Leaves this structure out of the space."""
        raise Unsuitable(reason)

    # --- conditions ---------------------------------------------------------------------------------------------------

    def require(self, condition: Expr) -> None:
        """Points must meet a condition on symbols, such as rows * columns <= 32."""
        if not isinstance(condition, Expr) or condition.dtype != BOOL:
            raise SpaceError(f"require takes a condition on symbols such as rows * columns <= 32, not {condition!r}")
        if value_of(condition) is None:
            self.conditions.append(condition)
        elif not value_of(condition):
            raise Unsuitable("a condition fails for every point")

    # --- inside -------------------------------------------------------------------------------------------------------

    def _add(self, made: Knob) -> None:
        self._claim(made.name)
        taken = {s for k in self.knobs for s in k.symbols} & set(made.symbols)
        if taken:
            raise SpaceError(f"knob '{made.name}': another knob has the symbol '{sorted(taken)[0]}' already")
        self.knobs.append(made)

    def _claim(self, name: str) -> None:
        if not name.isidentifier() or name in self._names:
            why = "is used twice" if name in self._names else "is not made of letters, digits and underscores"
            raise SpaceError(f"the name '{name}' of a knob or choice {why}")
        self._names.add(name)

    def _static(self, name: str, loop: str) -> int:
        loops = self._s.program.loops
        if loop not in loops:
            raise SpaceError(f"knob '{name}': there is no loop '{loop}'; loops: {', '.join(loops)}")
        extent = value_of(loops[loop].extent)
        if extent is None:
            symbols = {v.role for v in variables(loops[loop].extent)}
            why = "depends on another knob" if "knob" in symbols else "is known only at run time"
            what = f"the extent {loops[loop].extent} of loop '{loop}' {why}"
            raise SpaceError(f"knob '{name}': {what}; pass tail=True, which takes sizes that need not divide it")
        return extent
