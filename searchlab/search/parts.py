"""The independent parts of a sketch: knobs that no constraint ties to the others.

A sketch is the Cartesian product of its parts, so uniform draws from all parts make a uniform draw from the sketch, and
their sizes multiply.  A small part is enumerated once: its size is then exact, and drawing from it needs no rejection.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.errors import SpaceError
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import Expr
from searchlab.ir.walk import variables
from searchlab.search.knob import Ints, Knob
from searchlab.search.points import Options

Mask = npt.NDArray[np.bool_]

MOST_LISTED = 1 << 22  # limit of enumeration: combinations of a part, points of a space
MOST_DRAWS = 1 << 23  # attempts per call, about a second, before a part counts as too sparse to draw from
_COMPLETIONS = 64  # attempts to complete a row whose conditions can only be tested
_BATCH = 1 << 17  # fits the caches; larger batches are slower


class Part(ABC):
    """A group of knobs with the conditions among them; `at` holds the positions of these knobs in the sketch."""

    exact = True

    def __init__(self, at: Sequence[int], knobs: Sequence[Knob]) -> None:
        self.at = tuple(at)
        self.knobs = tuple(knobs[n] for n in at)
        self.shape = tuple(len(k) for k in self.knobs)
        self.cartesian = math.prod(self.shape)

    @property
    @abstractmethod
    def count(self) -> int:
        """How many combinations are valid (estimated, unless `exact`)."""

    @abstractmethod
    def draw(self, n: int, rng: np.random.Generator) -> Options:
        """n valid combinations, each equally likely; fewer if valid ones are too rare."""

    @abstractmethod
    def complete(self, options: Options, given: Ints, rng: np.random.Generator) -> tuple[Options, Mask]:
        """Valid combinations that begin with the first `given` options of each row, and which rows have one found."""

    @abstractmethod
    def contains(self, options: Options) -> Mask:
        """Which rows (options of this part's knobs) are valid."""

    def at_position(self, positions: Ints) -> Options:
        """Valid combinations by their rank among all valid ones."""
        raise SpaceError(f"the valid values of {self.names} are too many to be listed")

    @property
    def names(self) -> str:
        """The names of the knobs, for error messages."""
        return ", ".join(k.name for k in self.knobs)

    def codes(self, options: Options) -> Ints:
        """Combinations as single numbers."""
        code = options[:, 0].astype(np.int64)
        for n, size in enumerate(self.shape[1:], 1):
            code = code * size + options[:, n]
        return code

    def options(self, codes: Ints) -> Options:
        """Combinations from single numbers."""
        found = np.empty((len(codes), len(self.shape)), np.int32)
        for n in range(len(self.shape) - 1, -1, -1):
            codes, found[:, n] = np.divmod(codes, self.shape[n])
        return found


class Free(Part):
    """A knob without conditions."""

    @property
    def count(self) -> int:
        """The number of combinations, all of which are valid."""
        return self.cartesian

    def draw(self, n: int, rng: np.random.Generator) -> Options:
        """Draws random combinations."""
        return np.stack([rng.integers(size, size=n, dtype=np.int32) for size in self.shape], axis=1)

    def complete(self, options: Options, given: Ints, rng: np.random.Generator) -> tuple[Options, Mask]:
        """Draws what is not given."""
        return _kept(options, given, self.draw(len(options), rng)), np.ones(len(options), np.bool_)

    def contains(self, options: Options) -> Mask:
        """Every row is valid."""
        return np.ones(len(options), np.bool_)

    def at_position(self, positions: Ints) -> Options:
        """Combinations by their number."""
        return self.options(positions)


class Listed(Part):
    """Knobs whose valid combinations have been enumerated."""

    def __init__(self, at: Sequence[int], knobs: Sequence[Knob], rows: Options) -> None:
        super().__init__(at, knobs)
        if self.cartesian >= 1 << 62:
            raise SpaceError(f"{self.names}: {self.cartesian:.1e} combinations are too many to be numbered")
        self.rows = rows
        codes = self.codes(rows)
        self._order = np.argsort(codes, kind="stable")
        self._codes = codes[self._order]
        if (self._codes[1:] == self._codes[:-1]).any():
            raise SpaceError(f"a combination of {self.names} is listed twice")

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def draw(self, n: int, rng: np.random.Generator) -> Options:
        """Rows of the list, each equally likely."""
        return self.rows[rng.integers(len(self.rows), size=n)] if len(self.rows) else self.rows

    def complete(self, options: Options, given: Ints, rng: np.random.Generator) -> tuple[Options, Mask]:
        """Rows of the list with this beginning: a range of the codes, which are in lexicographic order."""
        low = self.codes(_kept(options, given, np.zeros_like(options)))
        left = np.array([math.prod(self.shape[n:]) for n in range(len(self.shape) + 1)])
        first, end = np.searchsorted(self._codes, np.stack([low, low + left[given]]))
        found = end > first
        place = np.minimum(first + (rng.random(len(options)) * (end - first)).astype(np.int64), len(self._codes) - 1)
        return (self.rows[self._order[place]] if len(self.rows) else options), found

    def contains(self, options: Options) -> Mask:
        """Which rows are on the list."""
        if self._known is not None:
            return self._known[self.codes(options)]
        return self.find(options) >= 0

    @cached_property
    def _known(self) -> Mask | None:
        """A bitmap of all combinations if there are few enough, which is faster than a search."""
        if self.cartesian > MOST_LISTED:
            return None
        known = np.zeros(self.cartesian, np.bool_)
        known[self._codes] = True
        return known

    def find(self, options: Options) -> Ints:
        """The row number of each combination, -1 where it is not listed."""
        if not len(self.rows):
            return np.full(len(options), -1)
        codes = self.codes(options)
        place = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        return np.where(self._codes[place] == codes, self._order[place], -1)

    def at_position(self, positions: Ints) -> Options:
        """Rows by their position in the list."""
        return self.rows[positions]


class Tested(Part):
    """Knobs with too many combinations to enumerate: drawn by rejection sampling."""

    exact = False

    def __init__(self, at: Sequence[int], knobs: Sequence[Knob], constraints: Sequence[Expr]) -> None:
        super().__init__(at, knobs)
        self.constraints = tuple(constraints)

    @cached_property
    def share(self) -> float:
        """The estimated share of valid combinations; the same in every process."""
        return float(self._try(1 << 16, np.random.default_rng(0))[1].mean())

    @property
    def count(self) -> int:
        """The estimated number of valid combinations."""
        return int(self.share * self.cartesian)

    def draw(self, n: int, rng: np.random.Generator) -> Options:
        """Draws combinations and keeps the valid ones, up to a bounded number of draws."""
        found: list[Options] = []
        missing, draws = n, 0
        while missing > 0 and draws < MOST_DRAWS:
            tries = int(min(_BATCH, 64 + 1.2 * missing / max(self.share, 1e-6)))
            options, good = self._try(tries, rng)
            found.append(options[good][:missing])
            missing -= len(found[-1])
            draws += tries
        return np.concatenate(found) if found else np.empty((0, len(self.shape)), np.int32)

    def complete(self, options: Options, given: Ints, rng: np.random.Generator) -> tuple[Options, Mask]:
        """Tries random completions, up to a bounded number of rounds."""
        result, found = options.copy(), np.zeros(len(options), np.bool_)
        for _ in range(_COMPLETIONS):
            left = np.flatnonzero(~found)
            if not len(left):
                break
            tried = _kept(options[left], given[left], self._random(len(left), rng))
            good = self.contains(tried)
            result[left[good]], found[left[good]] = tried[good], True
        return result, found

    def contains(self, options: Options) -> Mask:
        """Which rows satisfy the conditions."""
        values = {s: k.options[options[:, n], c] for n, k in enumerate(self.knobs) for c, s in enumerate(k.symbols)}
        return holds(self.constraints, values, (len(options),))

    def _try(self, n: int, rng: np.random.Generator) -> tuple[Options, Mask]:
        options = self._random(n, rng)
        return options, self.contains(options)

    def _random(self, n: int, rng: np.random.Generator) -> Options:
        return np.stack([rng.integers(size, size=n, dtype=np.int32) for size in self.shape], axis=1)


def _kept(options: Options, given: Ints, others: Options) -> Options:
    """The first `given` options of each row, followed by those of other rows."""
    return np.where(np.arange(options.shape[1]) < given[:, None], options, others)


def holds(constraints: Sequence[Expr], values: dict[str, Any], shape: tuple[int, ...]) -> Mask:
    """Where all conditions hold, for arrays of values that broadcast to the shape."""
    result = np.ones(shape, np.bool_)
    for c in constraints:
        result &= np.asarray(evaluate(c, values), dtype=np.bool_)
    return result


def parts_of(knobs: Sequence[Knob], constraints: Sequence[Expr]) -> tuple[Part, ...]:
    """The independent parts of a product of knobs under conditions."""
    owner = {s: n for n, k in enumerate(knobs) for s in k.symbols}
    groups: list[tuple[set[int], list[Expr]]] = [({n}, []) for n in range(len(knobs))]
    for c in constraints:
        tied = {owner[v.name] for v in variables(c)}
        touched = [g for g in groups if g[0] & tied] or groups[:1]  # a condition without symbols may go to any group
        groups = [g for g in groups if g not in touched]
        groups.append((set().union(*(g[0] for g in touched)), [e for g in touched for e in g[1]] + [c]))
    return tuple(_part(sorted(at), knobs, found) for at, found in sorted(groups, key=lambda g: min(g[0])))


def _part(at: list[int], knobs: Sequence[Knob], constraints: list[Expr]) -> Part:
    plain = Free(at, knobs)
    if not constraints:
        return plain
    if plain.cartesian > MOST_LISTED:
        return Tested(at, knobs, constraints)
    values = {}
    for n, k in enumerate(plain.knobs):
        along = [1] * len(at)
        along[n] = len(k)
        values.update({s: k.options[:, c].reshape(along) for c, s in enumerate(k.symbols)})
    good = np.flatnonzero(holds(constraints, values, plain.shape).ravel())
    return plain if len(good) == plain.cartesian else Listed(at, knobs, plain.options(good))
