"""Space: a few sketches and all that searches do with their points, on whole populations at once.

Validity is decided in one place and meets samples, mutants, children and neighbours alike.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from searchlab.analysis import Ragged, schema
from searchlab.errors import SpaceError
from searchlab.ir.program import Program
from searchlab.registry import nearest
from searchlab.search import moves
from searchlab.search.flat import Flat
from searchlab.search.knob import Floats, Ints, Keys
from searchlab.search.parts import MOST_LISTED, Mask
from searchlab.search.points import Options, Points
from searchlab.search.progress import say
from searchlab.search.sketch import Sketch
from searchlab.targets import Target

_ROUNDS = 16  # draws for points that were not seen before, when the space cannot be listed


@dataclass(frozen=True, slots=True)
class Size:
    """How many points a space has: all combinations of options, and the valid ones among them, counted or estimated."""

    cartesian: int
    valid: int
    exact: bool

    @property
    def share(self) -> float:
        """The share of combinations that are valid."""
        return self.valid / self.cartesian

    def __str__(self) -> str:
        return f"{'' if self.exact else 'about '}{self.valid} of {self.cartesian}"


class Sample(NamedTuple):
    """Points that were not seen before; when there are fewer than asked for, `reason` says why."""

    points: Points
    reason: str = ""

    @property
    def exhausted(self) -> bool:
        """Whether there are fewer points than were asked for."""
        return bool(self.reason)


class Space:
    """Sketches with their knobs; points are rows of integers, and everything works on batches of them.

    `version` changes when points of the same values are no longer the same programs.  `target` is the machine that
    features are made for.
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
        self._common: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        self._open: Ints | None = None  # numbers of the sketches that populations are drawn from, if not all

    def within(self, sketches: Sequence[int]) -> Self:
        """The same space, but `sample` draws from these sketches only, and `mutate` moves to no other.

        Points are the same in both, and so are their features, which are made once.  It is for spaces of hundreds of
        sketches: a population that is spread over all of them needs the features of all.
        """
        part = copy(self)
        part.__dict__["_flat"] = self._flat  # made once, whoever asks first
        part._open = np.unique(np.asarray(sketches, np.int64))
        return part

    def __repr__(self) -> str:
        return f"<space {self.name}: {len(self.sketches)} sketches, {self.size} points valid>"

    @cached_property
    def size(self) -> Size:
        """How many points the space has."""
        exact = all(s.exact for s in self.sketches)
        return Size(sum(s.cartesian for s in self.sketches), sum(s.count for s in self.sketches), exact)

    @cached_property
    def hash(self) -> str:
        """A short name for exactly this space, the same in every process."""
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

        Across sketches that is exact where their sizes are; an estimated size weighs its sketch.
        """
        found = self._draw(n, rng, self._open)
        if len(found) < n:
            raise SpaceError(self._no_more(n, len(found)))
        return found

    def sample_of(self, sketch: int, n: int, rng: np.random.Generator) -> Points:
        """Up to n valid points of one sketch, drawn independently."""
        return self._points(sketch, self.sketches[sketch].draw(n, rng))

    def sample_new(self, n: int, rng: np.random.Generator, seen: Keys | Collection[int] = ()) -> Sample:
        """n different valid points whose keys are not among `seen`, each set of them equally likely.

        Fewer come back, with a reason, when there are no more or none are found in a bounded number of draws.
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
            # estimated sizes of zero are no proof: whatever is not known to be empty is tried
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
        """How often each sketch is drawn, compared with the others; those that are not `among` them never."""
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
        """Every point as one integer below `size.cartesian`: its place among all combinations, valid or not."""
        # Python's integers where 64 bits do not suffice
        dtype = np.int64 if self.size.cartesian < 1 << 62 else object
        result = np.zeros(len(points), dtype)
        start = 0
        for s, sketch in enumerate(self.sketches):
            rows = points.sketch == s
            code = np.zeros(int(rows.sum()), dtype)
            for n, size in enumerate(sketch.sizes.tolist()):
                code = code * size + points.options[rows, n].astype(dtype)
            result[rows] = code + start
            start += sketch.cartesian
        return [int(i) for i in result]

    def at(self, indices: Sequence[int]) -> Points:
        """The points with these indices."""
        rows = []
        for i in indices:
            if not 0 <= i < self.size.cartesian:
                raise SpaceError(f"space '{self.name}' has no index {i}: it has {self.size.cartesian} combinations")
            s = 0
            while i >= self.sketches[s].cartesian:
                i -= self.sketches[s].cartesian
                s += 1
            row = []
            for size in reversed(self.sketches[s].sizes.tolist()):
                i, option = divmod(i, size)
                row.append(option)
            rows.append([s, *reversed(row)])
        return Points.of(rows, self.width)

    # --- moving -------------------------------------------------------------------------------------------------------

    def mutate(
        self,
        points: Points,
        rng: np.random.Generator,
        local: float = 0.5,
        structure: float = 0.05,
        weights: Callable[[Sketch], Floats] | None = None,
    ) -> Points:
        """Every point with one knob changed: a share `local` to a neighbouring option, the rest to any other.

        Where there are several sketches, a share `structure` moves to another one instead, and keeps the options of all
        knobs that both have.  All are valid; a point that no single change keeps valid comes back as it was.
        `weights` gives a number for every knob of a sketch: how often it is the one, compared with the others.
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
        """Every point with one knob set to any other option, or as it was where that is not valid.

        From x to y is as likely as from y to x, which `mutate`, in trying again, does not promise.
        """
        options = points.options.copy()
        for _, sketch, rows, own in self._by_sketch(points):
            tried = moves.change_one(sketch, own, rng, local=0.0)
            options[rows, : len(sketch.knobs)] = np.where(sketch.valid(tried)[:, None], tried, own)
        return Points(points.sketch, options)

    def _restructure(self, points: Points, changed: Points, rng: np.random.Generator, rows: Ints) -> None:
        """Moves the points of some rows to other sketches, in place, where their options are valid there."""
        if self._open is None:
            step = rng.integers(1, len(self.sketches), size=len(rows))
            to = ((points.sketch[rows] + step) % len(self.sketches)).astype(np.int32)
        else:
            to = rng.choice(self._open, size=len(rows)).astype(np.int32)
            rows, to = rows[to != points.sketch[rows]], to[to != points.sketch[rows]]
        easy = self._flat.free[to]
        at = rows[easy]
        changed.options[at] = self._flat.move(points.sketch[at], to[easy], points.options[at], rng)
        changed.sketch[at] = to[easy]
        rows, to = rows[~easy], to[~easy]
        for s, t in sorted(set(zip(points.sketch[rows].tolist(), to.tolist(), strict=True))):
            mine = rows[(points.sketch[rows] == s) & (to == t)]
            sketch = self.sketches[t]
            drawn = sketch.draw(len(mine), rng)
            mine = mine[: len(drawn)]
            here, there = self._shared(s, t)
            drawn[:, there] = points.options[mine][:, here]
            good = sketch.valid(drawn)
            placed = self._points(t, drawn[good])
            changed.sketch[mine[good]] = t
            changed.options[mine[good]] = placed.options

    def _shared(self, s: int, t: int) -> tuple[list[int], list[int]]:
        """The positions of knobs that two sketches have in common, in the one and in the other."""
        if (s, t) not in self._common:
            other = {k.name: n for n, k in enumerate(self.sketches[t].knobs)}
            pairs = [(n, other[k.name]) for n, k in enumerate(self.sketches[s].knobs) if k.name in other]
            pairs = [(n, m) for n, m in pairs if self.sketches[s].knobs[n].same_options(self.sketches[t].knobs[m])]
            self._common[s, t] = [n for n, _ in pairs], [m for _, m in pairs]
        return self._common[s, t]

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
        """All valid points that differ from this one in one knob: by a neighbouring option, or by any."""
        ((s, sketch, _, own),) = self._by_sketch(self._one(point))
        return self._points(s, moves.one_knob_changes(sketch, own, adjacent)[1])

    # --- looking ------------------------------------------------------------------------------------------------------

    def valid(self, points: Points) -> Mask:
        """Which points exist and meet all conditions."""
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
        """Names of the columns of `encode`; sketches share the columns of symbols that they share."""
        kinds = [f"sketch={s.name}" for s in self.sketches] if len(self.sketches) > 1 else []
        return tuple(dict.fromkeys([*kinds, *(c for s in self.sketches for k in s.knobs for c in k.columns)]))

    def encode(self, points: Points) -> Floats:
        """A row of numbers per point for surrogate models: logarithms of ordered values, one-hot categories.

        What a sketch does not have is zero.
        """
        if len(self.sketches) == 1:
            return self.sketches[0].encode(points.options)
        place = {c: n for n, c in enumerate(self.columns)}
        result = np.zeros((len(points), len(place)))
        for s, sketch, rows, own in self._by_sketch(points):
            result[rows, s] = 1
            at = np.array([place[c] for k in sketch.knobs for c in k.columns])
            result[np.arange(len(points))[rows][:, None], at] = sketch.encode(own)
        return result

    def features(self, points: Points, view: str) -> Any:
        """What a cost model sees (see searchlab.analysis): one row per point, for most views.

        `statements` gives a Ragged, since sketches differ in how many they have; `tree` gives pairs (rows, Tree), one
        for each sketch that occurs.  `knobs` is `encode`.
        """
        if view == "knobs":
            return self.encode(points)
        found = [(rows, sketch, own) for _, sketch, rows, own in self._by_sketch(points)]
        count = sum(not sketch.compiled(view, self.target) for _, sketch, _ in found)
        parts, left = [], count
        for rows, sketch, own in found:
            if not sketch.compiled(view, self.target):
                say(f"compiling features ({count - left} of {count} structures)")
                left -= 1
            parts.append((rows, sketch.features(own, view, self.target)))
        every = np.arange(len(points))
        if view == "tree":
            return [(every[rows], made) for rows, made in parts]
        if view == "statements":
            return Ragged.join([(every[rows], made) for rows, made in parts], schema(view).width, len(points))
        if len(parts) == 1:
            return parts[0][1]
        result = np.empty((len(points), schema(view).width), np.float32)
        for rows, made in parts:
            result[rows] = made
        return result

    def key(self, points: Points) -> Keys:
        """64 bits that stand for each point in records: the same in every process, and when options are added."""
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
        """The program of a point: integers in place of symbols, ready to be built."""
        ((_, sketch, _, own),) = self._by_sketch(self._one(point))
        return sketch.substitute({s: int(v[0]) for s, v in sketch.values(own).items()})

    def text(self, point: Points) -> str:
        """A point for people: `packed(i=64x4, j=2x128, unroll=4)`."""
        ((_, sketch, _, own),) = self._by_sketch(self._one(point))
        chosen = (f"{k.name}={k.label(o)}" for k, o in zip(sketch.knobs, own[0].tolist(), strict=True))
        return f"{sketch.name}({', '.join(chosen)})"

    def read(self, text: str) -> Points:
        """The point that a text stands for: what `text` prints, or an index."""
        if text.strip().isdecimal():
            return self._one(self.at([int(text)]))
        inside = text.strip().removesuffix(")")
        # names may hold brackets themselves, so those that there are come first
        known = [s.name for s in self.sketches if inside.startswith(f"{s.name}(")]
        head = max(known, key=len, default=inside.partition("(")[0])
        rest = inside[len(head) + 1 :]
        pairs = [part.partition("=") for part in re.split(r",\s*(?=[^,=]+=)", rest) if part]
        sketch = next((s for s in self.sketches if s.name == head), None)
        knobs = {k.name: k for k in sketch.knobs} if sketch is not None else {}
        given = {k.strip(): v.strip() for k, _, v in pairs}
        return self.chosen(
            {"sketch": head, "knobs": {k: knobs[k].read(v) if k in knobs else v for k, v in given.items()}}
        )

    def choice(self, point: Points) -> dict[str, Any]:
        """A point as plain data for records: the sketch's name, and the chosen value (or values) of every knob."""
        ((_, sketch, _, own),) = self._by_sketch(self._one(point))
        pairs = zip(sketch.knobs, own[0].tolist(), strict=True)
        return {"sketch": sketch.name, "knobs": {k.name: k.value(o) for k, o in pairs}}

    def chosen(self, choice: Mapping[str, Any]) -> Points:
        """The point that `choice` described, here or in another process."""
        names = [s.name for s in self.sketches]
        name, values = choice.get("sketch"), choice.get("knobs", {})
        if name not in names:
            raise SpaceError(f"space '{self.name}' has no sketch '{name}'{nearest(str(name), names)}")
        if not isinstance(values, Mapping):
            raise SpaceError(f"space '{self.name}', sketch '{name}': knobs are names with values, not {values!r}")
        sketch = self.sketches[names.index(name)]
        row = [names.index(name)]
        for k in sketch.knobs:
            if k.name not in values:
                raise SpaceError(f"space '{self.name}', sketch '{name}': no value for knob '{k.name}'")
            row.append(k.option(values[k.name]))
        if unknown := [v for v in values if v not in {k.name for k in sketch.knobs}]:
            known = nearest(unknown[0], [k.name for k in sketch.knobs])
            raise SpaceError(f"space '{self.name}', sketch '{name}': unknown knob '{unknown[0]}'{known}")
        return self._one(Points.of([row], self.width))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _by_sketch(self, points: Points) -> Iterator[tuple[int, Sketch, Any, Options]]:
        """For each sketch that occurs: its number, itself, the rows it has and their options."""
        self._check_width(points)
        if len(self.sketches) == 1:
            yield 0, self.sketches[0], slice(None), points.options
            return
        order = np.argsort(points.sketch, kind="stable")
        ends = np.searchsorted(points.sketch[order], np.arange(len(self.sketches) + 1)).tolist()
        for s, sketch in enumerate(self.sketches):
            if ends[s] < ends[s + 1]:
                rows = order[ends[s] : ends[s + 1]]
                yield s, sketch, rows, points.options[rows, : len(sketch.knobs)]

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
