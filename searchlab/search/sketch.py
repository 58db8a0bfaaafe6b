"""Sketch: one structure of a program, with the knobs that assign integers to its symbols."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.analysis import Extractor, extractor
from searchlab.dtype import BOOL
from searchlab.errors import SpaceError
from searchlab.ir.expr import Expr
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import statements
from searchlab.ir.walk import variables
from searchlab.search.adjacency import Adjacency
from searchlab.search.garbage import uncollected
from searchlab.search.knob import Floats, Ints, Keys, Knob, hash_text
from searchlab.search.parts import Free, Listed, Mask, Part, parts_of
from searchlab.search.points import Options
from searchlab.targets import Target


@dataclass(frozen=True, eq=False)
class Sketch:
    """A program with symbols, the knobs that assign integers to them, and the conditions that these must satisfy.

    Assumptions of the schedule about knobs (for example, that a tile divides an extent) become conditions by
    themselves.  If `rows` are given, with one option per knob, they are the valid points: a table of measurements has
    no program.
    """

    name: str
    knobs: tuple[Knob, ...]
    constraints: tuple[Expr, ...] = ()
    program: Program | None = None
    rows: Options | None = None

    def __post_init__(self) -> None:
        _refuse_repeats(self.name, "knob", (k.name for k in self.knobs))
        _refuse_repeats(self.name, "symbol", self.symbols)
        if not self.knobs:
            raise SpaceError(f"sketch '{self.name}' has no knobs")
        for c in self.constraints:
            if c.dtype != BOOL:
                raise SpaceError(f"sketch '{self.name}': '{c}' is not a condition")
            for v in variables(c):
                if v.name not in self.symbols:
                    known = ", ".join(self.symbols)
                    raise SpaceError(f"sketch '{self.name}': no knob gives '{v.name}' in '{c}'; symbols: {known}")
        if self.program is not None:
            missing = [s for s in self.program.knobs if s not in self.symbols]
            if missing:
                raise SpaceError(f"sketch '{self.name}': no knob gives {', '.join(missing)} of the program")

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """All symbols, in the order of the knobs."""
        return tuple(s for k in self.knobs for s in k.symbols)

    @cached_property
    def tensorized(self) -> bool:
        """Whether its program calls tensor intrinsics."""
        return self.program is not None and self.program.tensorized

    @cached_property
    def conditions(self) -> tuple[Expr, ...]:
        """The constraints, and the program's assumptions about knobs."""
        assumed = self.program.assumptions if self.program is not None else ()
        known = set(self.symbols)
        return (*self.constraints, *(a for a in assumed if {v.name for v in variables(a)} <= known))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The independent parts; the sketch is their Cartesian product."""
        if self.rows is None:
            return parts_of(self.knobs, self.conditions)
        rows = np.asarray(self.rows, dtype=np.int32)
        if rows.ndim != 2 or rows.shape[1] != len(self.knobs) or not self.in_range(rows).all():
            raise SpaceError(f"sketch '{self.name}': its rows are not one option for each of {len(self.knobs)} knobs")
        return (Listed(range(len(self.knobs)), self.knobs, rows),)

    # --- size ---------------------------------------------------------------------------------------------------------

    @cached_property
    def sizes(self) -> Ints:
        """The number of options of every knob."""
        return np.array([len(k) for k in self.knobs])

    @cached_property
    def cartesian(self) -> int:
        """The number of all combinations of options, valid or not."""
        return math.prod(len(k) for k in self.knobs)

    @cached_property
    def count(self) -> int:
        """How many valid points there are (estimated, unless `exact`)."""
        return math.prod(p.count for p in self.parts)

    @cached_property
    def exact(self) -> bool:
        """Whether `count` was counted rather than estimated."""
        return all(p.exact for p in self.parts) or any(p.exact and p.count == 0 for p in self.parts)

    # --- points: rows of one option per knob --------------------------------------------------------------------------

    def in_range(self, options: Options) -> Mask:
        """Which rows have an existing option for every knob."""
        return np.asarray(((options >= 0) & (options < self.sizes)).all(axis=1))

    def valid(self, options: Options) -> Mask:
        """Which rows, all in range, satisfy the conditions."""
        result = np.ones(len(options), np.bool_)
        for part in self._bound:
            result &= part.contains(_columns(options, part))
        return result

    @cached_property
    def _bound(self) -> tuple[Part, ...]:
        return tuple(p for p in self.parts if not isinstance(p, Free))

    @property
    def unconditional(self) -> bool:
        """Whether every combination of options is valid."""
        return not self._bound

    def draw(self, n: int, rng: np.random.Generator) -> Options:
        """n valid rows, each equally likely; fewer if valid combinations of a part are too rare."""
        drawn = [part.draw(n, rng) for part in self.parts]
        found = np.empty((min(len(d) for d in drawn), len(self.knobs)), np.int32)
        for part, d in zip(self.parts, drawn, strict=True):
            found[:, part.at] = d[: len(found)]
        return found

    def complete(self, options: Options, lengths: Ints, rng: np.random.Generator) -> tuple[Options, Mask]:
        """Valid rows that begin with the first `lengths` options of each row, and which rows have one.

        Of the ways to complete a row each is equally likely.
        """
        result, found = options.copy(), np.ones(len(options), np.bool_)
        for part in self.parts:
            given = np.searchsorted(part.at, lengths)
            result[:, part.at], known = part.complete(options[:, part.at], given, rng)
            found &= known
        return result, found

    def all(self) -> Options:
        """Every valid row; only for sketches small enough to enumerate."""
        rest = np.arange(self.count)
        found = np.empty((self.count, len(self.knobs)), np.int32)
        for part in reversed(self.parts):
            rest, here = np.divmod(rest, max(part.count, 1))
            found[:, part.at] = part.at_position(here)
        return found

    def values(self, options: Options) -> dict[str, Ints]:
        """The integers of all symbols."""
        flat, start, knob = self._table
        return dict(zip(self.symbols, flat[start + options.T[knob]], strict=True))

    @cached_property
    def _table(self) -> tuple[Ints, Ints, Ints]:
        """All values of all symbols in one array, the offset of each symbol, and its knob: one gather reads all."""
        columns = [(n, column) for n, k in enumerate(self.knobs) for column in k.options.T]
        ends = np.cumsum([len(column) for _, column in columns])
        starts = np.concatenate([[0], ends[:-1]])[:, None]
        return np.concatenate([column for _, column in columns]), starts, np.array([n for n, _ in columns])

    def encode(self, options: Options) -> Floats:
        """The encodings of all knobs side by side, as surrogate models take them."""
        return np.concatenate([k.encoding[options[:, n]] for n, k in enumerate(self.knobs)], axis=1)

    def features(self, options: Options, view: str, target: Target | None = None) -> Any:
        """The features of a view (see searchlab.analysis); the feature extractor is compiled once."""
        return self._extractor(view, target)(self.values(options))

    def features_at(self, values: Mapping[str, Any], view: str, target: Target | None = None) -> Any:
        """The features of a view for any numbers in place of the symbols, even ones between options."""
        return self._extractor(view, target)(values)

    @property
    def has_program(self) -> bool:
        """Whether there is a program, known without building it."""
        return self.program is not None

    def compiled(self, view: str, target: Target | None = None) -> bool:
        """Whether the features of a view have been compiled."""
        return (view, target) in self._extractors

    def _extractor(self, view: str, target: Target | None) -> Extractor:
        found = self._extractors.get((view, target))
        if found is None:
            with uncollected():
                found = self._extractors[view, target] = extractor(self._analysed, view, target)
        return found

    @property
    def _analysed(self) -> Program:
        if self.program is None:
            raise SpaceError(f"sketch '{self.name}' has no program: its points have knobs only, as view 'knobs'")
        return self.program

    @cached_property
    def _extractors(self) -> dict[tuple[str, Target | None], Extractor]:
        return {}

    def keys(self, options: Options) -> Keys:
        """A 64-bit key for every row that depends on names and values only."""
        # each option of each knob has its own hash; the key of a row is their exclusive or
        result = np.full(len(options), hash_text(f"sketch {self.name}"), np.uint64)
        for n, k in enumerate(self.knobs):
            result ^= k.hashes[options[:, n]]
        return result

    @cached_property
    def moves(self) -> Adjacency:
        """The neighbours of all options."""
        return Adjacency.of(self.knobs)

    def substitute(self, values: dict[str, int]) -> Program:
        """The program with integers substituted for symbols."""
        if self.program is None:
            raise SpaceError(f"sketch '{self.name}' has no program: its points are recorded, not built")
        return self.program.substitute({s: v for s, v in values.items() if s in self._used})

    @cached_property
    def _used(self) -> frozenset[str]:
        """Symbols that occur in the program; the outermost factor of a split, for example, is often inferred."""
        assert self.program is not None
        found = {*self.program.knobs, *(v.name for a in self.program.assumptions for v in variables(a))}
        for s in statements(self.program.body):
            for _, note in getattr(s, "annotations", ()):
                if isinstance(note, Expr):
                    found |= {v.name for v in variables(note)}
        return frozenset(found)


class Deferred(Sketch):
    """A sketch whose program is built on first use: drawing points needs the knobs alone.

    `assumed` holds the conditions among knobs that can exclude points; `make` returns the sketch with its program, of
    which `tensorized` says whether it will call intrinsics.
    """

    def __init__(
        self,
        name: str,
        knobs: tuple[Knob, ...],
        assumed: Sequence[Expr],
        make: Callable[[], Sketch],
        constraints: tuple[Expr, ...] = (),
        tensorized: bool = False,
    ) -> None:
        super().__init__(name, knobs, constraints)
        del self.__dict__["program"]
        self.__dict__.update(_assumed=tuple(assumed), _make=make, tensorized=tensorized)

    @cached_property
    def program(self) -> Program | None:
        """The program, built on first use, whose knobs must be the planned ones."""
        made: Sketch = self.__dict__["_make"]()
        same = len(made.knobs) == len(self.knobs) and all(
            a.name == b.name and a.symbols == b.symbols and a.same_options(b)
            for a, b in zip(made.knobs, self.knobs, strict=True)
        )
        if not same:
            planned, found = ([k.name for k in s.knobs] for s in (self, made))
            raise SpaceError(f"sketch '{self.name}' was to have the knobs {planned}, its program has {found}")
        return made.program

    @property
    def has_program(self) -> bool:
        """Always True: a sketch without a program has nothing to defer."""
        return True

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The independent parts, derived from the planned conditions."""
        known = set(self.symbols)
        assumed = self.__dict__["_assumed"]
        mine = [a for a in assumed if {v.name for v in variables(a)} <= known]
        return parts_of(self.knobs, [*self.constraints, *mine])


def _columns(options: Options, part: Part) -> Options:
    """The columns of a part; a view if the part has all of them."""
    if len(part.at) == options.shape[1]:
        return options
    columns: npt.NDArray[np.int32] = options[:, part.at]
    return columns


def _refuse_repeats(sketch: str, what: str, names: Sequence[str] | Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SpaceError(f"sketch '{sketch}' has two {what}s '{name}'")
        seen.add(name)
