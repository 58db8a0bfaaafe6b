"""Space: a few sketches and the operations of searches on their points, vectorised over whole populations.

Validity is decided in one place and holds for samples, mutants, children and neighbours alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from searchlab.errors import SpaceError
from searchlab.ir.program import Program
from searchlab.search import choices, moves, population
from searchlab.search.flat import Flat
from searchlab.search.knob import Floats, Ints, Keys
from searchlab.search.parts import MOST_LISTED, Mask
from searchlab.search.points import Options, Points, Sample
from searchlab.search.population import OwnRows
from searchlab.search.sketch import Sketch
from searchlab.targets import Target

_ROUNDS = 16  # draws for unseen points when the space cannot be enumerated


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a space: all combinations of options, and the valid ones among them, counted or estimated."""

    cartesian: int
    valid: int
    exact: bool

    @property
    def share(self) -> float:
        """The share of combinations that are valid."""
        return self.valid / self.cartesian

    def __str__(self) -> str:
        return f"{'' if self.exact else 'about '}{self.valid} of {self.cartesian}"


class Space:
    """Sketches with their knobs; points are rows of integers, and all methods work on batches of them.

    `version` changes when points with the same values no longer give the same programs.  `target` is the machine for
    which features are computed.
    """

    def __init__(
        self, sketches: Sequence[Sketch], name: str = "space", version: str = "1", target: Target | None = None
    ) -> None:
        self.sketches = tuple(sketches)
        self.name = name
        self.version = version
        self.target = target
        if not self.sketches:
            raise SpaceError(f"space '{name}' has no sketches")
        if len({s.name for s in self.sketches}) != len(self.sketches):
            raise SpaceError(f"space '{name}': two sketches have the same name")
        self.width = max(len(s.knobs) for s in self.sketches)
        self._open: Ints | None = None  # the sketches from which populations are drawn; None for all
        self._find_seeds: Callable[[], Points] | None = None

    @cached_property
    def tensorized(self) -> bool:
        """Whether some of its programs call tensor intrinsics."""
        return any(s.tensorized for s in self.sketches)

    def within(self, sketches: Sequence[int]) -> Self:
        """The same space, but `sample` draws only from these sketches, and `mutate` does not move to others.

        Both share points and compiled features.  This is meant for spaces of hundreds of sketches, where a population
        spread over all of them would need the features of all.
        """
        part = copy(self)
        part.__dict__["_flat"] = self._flat  # shared, so that it is built once
        part._open = np.unique(np.asarray(sketches, np.int64))
        return part

    @property
    def drawn(self) -> Ints:
        """The numbers of the sketches from which `sample` draws."""
        return np.arange(len(self.sketches)) if self._open is None else self._open

    def seed_with(self, find: Callable[[], Points]) -> None:
        """Says how its `seeds` are found; they are not looked for before somebody asks."""
        self._find_seeds = find
        self.__dict__.pop("seeds", None)

    @cached_property
    def seeds(self) -> Points:
        """Points from which a search should start, best first: few, valid and distinct; none for recorded tables."""
        return Points.empty(self.width) if self._find_seeds is None else self._find_seeds()

    def __repr__(self) -> str:
        return f"<space {self.name}: {len(self.sketches)} sketches, {self.size} points valid>"

    @cached_property
    def size(self) -> Size:
        """The number of points."""
        exact = all(s.exact for s in self.sketches)
        return Size(sum(s.cartesian for s in self.sketches), sum(s.count for s in self.sketches), exact)

    @cached_property
    def hash(self) -> str:
        """A short hash that identifies exactly this space, the same in every process."""
        h = hashlib.blake2b(f"{self.name} {self.version}".encode(), digest_size=8)
        for s in self.sketches:
            program = s.program.hash if s.program is not None else ""
            h.update(f"{s.name} {program} {s.conditions}".encode())
            for k in s.knobs:
                h.update(f"{k.name} {k.kind} {k.symbols} {k.labels}".encode() + k.options.tobytes())
            if s.rows is not None:
                h.update(np.ascontiguousarray(s.rows, dtype=np.int32).tobytes())
        return h.hexdigest()

    # --- drawing ------------------------------------------------------------------------------------------------------

    def sample(self, n: int, rng: np.random.Generator) -> Points:
        """n valid points, drawn independently, each equally likely.

        Sketches are weighted by their sizes, so the draw is exactly uniform only if those are exact.
        """
        found = self._draw(n, rng, self._open)
        if len(found) < n:
            raise SpaceError(self._no_more(n, len(found)))
        return found

    def sample_of(self, sketch: int, n: int, rng: np.random.Generator) -> Points:
        """Up to n valid points of one sketch, drawn independently."""
        return self._points(sketch, self.sketches[sketch].draw(n, rng))

    def continued(self, points: Points, lengths: Ints, rng: np.random.Generator) -> tuple[Points, Mask]:
        """Random valid points of the same sketches with the same first `lengths` options, and which points have one."""
        options, found = points.options.copy(), np.ones(len(points), np.bool_)
        for _, sketch, rows, own in self._by_sketch(points):
            options[rows, : len(sketch.knobs)], found[rows] = sketch.complete(own, lengths[rows], rng)
        return Points(points.sketch, options), found

    def sample_new(self, n: int, rng: np.random.Generator, seen: Keys | Collection[int] = ()) -> Sample:
        """n different valid points whose keys are not among `seen`, each set of them equally likely.

        Fewer are returned, with a reason, if there are no more or none are found in a bounded number of draws.
        """
        known = seen.astype(np.uint64) if isinstance(seen, np.ndarray) else np.fromiter(seen, np.uint64, len(seen))
        if self._listable and self.size.valid <= max(1 << 13, 4 * (n + len(known))):
            return self._rest(n, rng, known)
        found = Points.empty(self.width)
        for _ in range(_ROUNDS):
            asked = n + n // 2 + 16
            more = self._draw(asked, rng)
            drawn = Points.concat([found, more])
            keys = self.key(drawn)
            first = np.sort(np.unique(keys, return_index=True)[1])
            found = drawn[first[~np.isin(keys[first], known)]][:n]
            if len(found) == n:
                return Sample(found)
            if len(more) < asked:  # the draw gave up, and would again
                break
        return self._rest(n, rng, known) if self._listable else Sample(found, self._no_more(n, len(found)))

    def _rest(self, n: int, rng: np.random.Generator, known: Keys) -> Sample:
        left = np.flatnonzero(~np.isin(self._all_keys, known))
        chosen = self._all[rng.permutation(left)[:n]]
        if len(chosen) == n:
            return Sample(chosen)
        return Sample(chosen, f"space '{self.name}' is exhausted: {len(left)} of its {len(self._all)} points were left")

    def _draw(self, n: int, rng: np.random.Generator, among: Ints | None = None) -> Points:
        """Up to n valid points."""
        weights = self._weigh(lambda s: float(s.count), among)
        if not weights.sum():
            # an estimated size of zero proves nothing: every sketch that is not known to be empty is tried
            weights = self._weigh(lambda s: 0.0 if s.exact else 1.0, among)
            if not weights.sum():
                return Points.empty(self.width)
        chosen = np.zeros(n, np.int32)
        if len(self.sketches) > 1:
            chosen = rng.choice(len(weights), size=n, p=weights / weights.sum()).astype(np.int32)
        options = self._flat.draw(chosen, rng)
        keep = np.ones(n, np.bool_)
        for s in np.flatnonzero(~self._flat.free).tolist():
            sketch, rows = self.sketches[s], np.flatnonzero(chosen == s)
            drawn = sketch.draw(len(rows), rng)
            options[rows[: len(drawn)], : len(sketch.knobs)] = drawn
            keep[rows[len(drawn) :]] = False
        return Points(chosen, options) if keep.all() else Points(chosen, options)[keep]

    def _weigh(self, weight: Callable[[Sketch], float], among: Ints | None) -> Floats:
        """The relative probability with which each sketch is drawn; zero for those not in `among`."""
        weights = np.zeros(len(self.sketches))
        for n in range(len(self.sketches)) if among is None else among.tolist():
            weights[n] = weight(self.sketches[n])
        return weights

    def _no_more(self, wanted: int, found: int) -> str:
        empty = [s for s in self.sketches if s.exact and not s.count]
        if len(empty) == len(self.sketches):
            blamed = sorted({str(c) for s in empty for c in s.conditions})
            cause = f": nothing meets {', '.join(blamed)}" if blamed else ""
            return f"space '{self.name}' has no valid point{cause}"
        return f"space '{self.name}': {found} of {wanted} points found in a bounded number of draws ({self.size} valid)"

    # --- listing ------------------------------------------------------------------------------------------------------

    @cached_property
    def _listable(self) -> bool:
        return self.size.exact and self.size.valid <= MOST_LISTED

    def enumerate(self) -> Points:
        """All valid points, in the order of their index; only for spaces small enough."""
        if not self._listable:
            raise SpaceError(f"space '{self.name}' is too large to be listed: {self.size} points")
        return self._all

    @cached_property
    def _all(self) -> Points:
        found = [self._points(s, sketch.all()) for s, sketch in enumerate(self.sketches)]
        points = Points.concat(found)
        return points[np.argsort(np.array(self.index(points)), kind="stable")] if len(points) else points

    @cached_property
    def _all_keys(self) -> Keys:
        return self.key(self._all)

    def index(self, points: Points) -> list[int]:
        """Every point as one integer below `size.cartesian`: its position among all combinations, valid or not."""
        return population.index(self.sketches, points)

    def at(self, indices: Sequence[int]) -> Points:
        """The points with these indices."""
        for i in indices:
            if not 0 <= i < self.size.cartesian:
                raise SpaceError(f"space '{self.name}' has no index {i}: it has {self.size.cartesian} combinations")
        return Points.of([population.row_at(self.sketches, i) for i in indices], self.width)

    # --- moving -------------------------------------------------------------------------------------------------------

    def mutate(
        self,
        points: Points,
        rng: np.random.Generator,
        local: float = 0.5,
        structure: float = 0.05,
        weights: Callable[[Sketch], Floats] | None = None,
    ) -> Points:
        """Changes one knob of every point: to a neighbouring option with probability `local`, else to any other.

        With several sketches, a point moves to another sketch instead with probability `structure`, keeping the options
        of all knobs that both have.  All results are valid; a point without a valid single change is returned
        unchanged.  `weights` gives the relative probability of every knob of a sketch.
        """
        self._check_width(points)
        chances = None if weights is None else self._flat.table([weights(s) for s in self.sketches])
        options = self._flat.change_one(points.sketch, points.options, rng, local, chances)
        for s in np.flatnonzero(~self._flat.free).tolist():
            sketch, rows = self.sketches[s], np.flatnonzero(points.sketch == s)
            own = points.options[rows, : len(sketch.knobs)]
            mine = None if weights is None else weights(sketch)
            options[rows, : len(sketch.knobs)] = moves.mutate(sketch, own, rng, local, mine)
        changed = Points(points.sketch.copy(), options)
        if len(self.sketches) > 1 and structure > 0:
            self._restructure(points, changed, rng, np.flatnonzero(rng.random(len(points)) < structure))
        return changed

    def step(self, points: Points, rng: np.random.Generator) -> Points:
        """Sets one knob of every point to any other option; where the result is invalid, the point stays unchanged.

        Moves from x to y and from y to x are equally likely, which `mutate`, since it retries, does not guarantee.
        """
        options = points.options.copy()
        for _, sketch, rows, own in self._by_sketch(points):
            tried = moves.change_one(sketch, own, rng, local=0.0)
            options[rows, : len(sketch.knobs)] = np.where(sketch.valid(tried)[:, None], tried, own)
        return Points(points.sketch, options)

    def _restructure(self, points: Points, changed: Points, rng: np.random.Generator, rows: Ints) -> None:
        """Moves the points in `rows` to randomly drawn other sketches where their options are valid there."""
        if self._open is None:
            step = rng.integers(1, len(self.sketches), size=len(rows))
            to = ((points.sketch[rows] + step) % len(self.sketches)).astype(np.int32)
        else:
            to = rng.choice(self._open, size=len(rows)).astype(np.int32)
            rows, to = rows[to != points.sketch[rows]], to[to != points.sketch[rows]]
        self._flat.restructure(points, changed, rows, to, rng)

    def crossover(self, a: Points, b: Points, rng: np.random.Generator) -> Points:
        """Children that take each knob from either parent; the first parent, if the two differ in structure."""
        if len(a) != len(b):
            raise SpaceError(f"crossover of {len(a)} points with {len(b)}")
        options = a.options.copy()
        for s, sketch, rows, own in self._by_sketch(a):
            same = b.sketch[rows] == s
            other = np.where(same[:, None], b.options[rows, : len(sketch.knobs)], own)
            options[rows, : len(sketch.knobs)] = moves.crossover(sketch, own, other, rng)
        return Points(a.sketch, options)

    def neighbours(self, point: Points, adjacent: bool = True) -> Points:
        """All valid points that differ from this one in one knob: by a neighbouring option, or by any option."""
        ((s, sketch, _, own),) = self._by_sketch(self._one(point))
        return self._points(s, moves.one_knob_changes(sketch, own, adjacent)[1])

    # --- looking ------------------------------------------------------------------------------------------------------

    def valid(self, points: Points) -> Mask:
        """Which points exist and satisfy all conditions."""
        result = np.zeros(len(points), np.bool_)
        if points.width != self.width:
            return result
        for s in np.unique(points.sketch).tolist():
            if not 0 <= s < len(self.sketches):
                continue
            sketch, rows = self.sketches[s], np.flatnonzero(points.sketch == s)
            own = points.options[rows, : len(sketch.knobs)]
            fits = sketch.in_range(own) & (points.options[rows, len(sketch.knobs) :] == -1).all(axis=1)
            result[rows[fits]] = sketch.valid(own[fits])
        return result

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `encode`; sketches with the same symbol share its column."""
        kinds = [f"sketch={s.name}" for s in self.sketches] if len(self.sketches) > 1 else []
        return tuple(dict.fromkeys([*kinds, *(c for s in self.sketches for k in s.knobs for c in k.columns)]))

    def encode(self, points: Points) -> Floats:
        """A row of numbers per point for surrogate models: logarithms of ordered values, one-hot categories.

        Columns that a sketch lacks are zero.
        """
        if len(self.sketches) == 1:
            return self.sketches[0].encode(points.options)
        return population.encoded(list(self._by_sketch(points)), self.columns, len(points))

    def features(self, points: Points, view: str) -> Any:
        """The features of a view for cost models (see searchlab.analysis): one row per point, for most views.

        `statements` returns a Ragged, since sketches differ in their number of statements; `tree` returns pairs
        (rows, Tree), one for each sketch that occurs.  `knobs` is `encode`.
        """
        if view == "knobs":
            return self.encode(points)
        return population.features(list(self._by_sketch(points)), view, self.target, len(points))

    def key(self, points: Points) -> Keys:
        """A 64-bit key of each point for records: the same in every process, and unchanged when options are added."""
        result = np.zeros(len(points), np.uint64)
        for _, sketch, rows, own in self._by_sketch(points):
            result[rows] = sketch.keys(own)
        return result

    def values(self, points: Points) -> dict[str, Ints]:
        """The integers of all symbols; -1 for symbols that a point's sketch does not have."""
        names = dict.fromkeys(s for sketch in self.sketches for s in sketch.symbols)
        result = {s: np.full(len(points), -1, np.int64) for s in names}
        for _, sketch, rows, own in self._by_sketch(points):
            for s, v in sketch.values(own).items():
                result[s][rows] = v
        return result

    def program(self, point: Points) -> Program:
        """The program of a point, with integers substituted for symbols, ready to be built."""
        ((_, sketch, _, own),) = self._by_sketch(self._one(point))
        return sketch.substitute({s: int(v[0]) for s, v in sketch.values(own).items()})

    def text(self, point: Points) -> str:
        """A point in readable form: `packed(i=64x4, j=2x128, unroll=4)`."""
        ((_, sketch, _, own),) = self._by_sketch(self._one(point))
        return choices.text_of(sketch, own[0].tolist())

    def read(self, text: str) -> Points:
        """The point for a text that `text` wrote, or for an index."""
        if text.strip().isdecimal():
            return self._one(self.at([int(text)]))
        return self.chosen(choices.choice_in(text, self.sketches))

    def choice(self, point: Points) -> dict[str, Any]:
        """A point as plain data for records: the sketch's name, and the chosen value (or values) of every knob."""
        ((_, sketch, _, own),) = self._by_sketch(self._one(point))
        return choices.choice_of(sketch, own[0].tolist())

    def chosen(self, choice: Mapping[str, Any]) -> Points:
        """The point that `choice` described, here or in another process."""
        return self._one(Points.of([choices.row_of(choice, self.sketches, self.name)], self.width))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _by_sketch(self, points: Points) -> Iterator[OwnRows]:
        """For each sketch that occurs: its number, the sketch, its rows and their options."""
        self._check_width(points)
        if len(self.sketches) == 1:
            yield OwnRows(0, self.sketches[0], slice(None), points.options)
            return
        order = np.argsort(points.sketch, kind="stable")
        ends = np.searchsorted(points.sketch[order], np.arange(len(self.sketches) + 1)).tolist()
        for s, sketch in enumerate(self.sketches):
            if ends[s] < ends[s + 1]:
                rows = order[ends[s] : ends[s + 1]]
                yield OwnRows(s, sketch, rows, points.options[rows, : len(sketch.knobs)])

    def _check_width(self, points: Points) -> None:
        if points.width != self.width:
            raise SpaceError(f"space '{self.name}' has points of {self.width} options, not {points.width}")

    @cached_property
    def _flat(self) -> Flat:
        return Flat(self.sketches, self.width)

    def _points(self, s: int, options: Options) -> Points:
        padded = np.full((len(options), self.width), -1, np.int32)
        padded[:, : options.shape[1]] = options
        return Points(np.full(len(options), s, np.int32), padded)

    def _one(self, point: Points) -> Points:
        if len(point) != 1 or not self.valid(point).all():
            raise SpaceError(f"space '{self.name}': expected one valid point, got {point.rows()}")
        return point
