"""StoredTask: the measured programs of one task, and StoredSpace, which answers for their features without programs.

Models see stored programs as they see those of a search: as points of a space with features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.analysis import Ragged, Tree, schema
from searchlab.errors import SpaceError
from searchlab.search import Points, RecordedSpace, Sketch, Trials, menu
from searchlab.search.knob import Floats, Ints
from searchlab.targets import Target

FLAT = ("summary", "loops", "curves")  # one row for each program
RAGGED = ("statements", "tree")  # any number of rows
STORED_VIEWS = (*FLAT, *RAGGED)
Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class StoredTask:
    """Programs of one task, one entry each in all columns; `seconds` is infinite for failures.

    `about` says how they were recorded: the workload, the versions of the views, the CPU, software, protocol, date.
    `origin` is how a program was chosen (random, favoured, child), `space` the space it belongs to, `code_bytes` the
    size of its object code (-1 where it is not known).
    """

    about: Mapping[str, Any]
    seconds: Floats
    status: npt.NDArray[np.str_]
    space: npt.NDArray[np.str_]
    origin: npt.NDArray[np.str_]
    digest: npt.NDArray[np.str_]
    build_s: Floats
    run_s: Floats
    code_bytes: Ints
    features: Arrays = field(repr=False)

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def workload(self) -> str:
        """The workload as text."""
        return str(self.about["workload"])

    @property
    def operator(self) -> str:
        """The name of the workload's operator."""
        return self.workload.partition(":")[0]

    @cached_property
    def target(self) -> Target:
        """The machine on which it was measured."""
        return Target.from_dict(self.about["target"])

    @property
    def name(self) -> str:
        """The workload, the CPU and the threads: what makes a task different from others."""
        return f"{self.workload} on {self.target.name}, {self.target.threads} threads"

    @cached_property
    def trials(self) -> Trials:
        """The programs as trials of their task, as models see them."""
        stored = StoredSpace(self)
        return Trials(self.name, stored, stored.points(), self.seconds)


class StoredSpace(RecordedSpace):
    """The programs of a stored task as points; features are looked up, programs cannot be built."""

    def __init__(self, stored: StoredTask) -> None:
        rows = np.arange(len(stored), dtype=np.int32)[:, None]
        sketch = Sketch("programs", (menu("row", range(len(stored))),), rows=rows)
        super().__init__([sketch], stored.name, coverage="pool")
        self.target = stored.target
        self._stored = stored
        self._tables: dict[str, Arrays] = {}

    def features(self, points: Points, view: str) -> Any:
        """The stored features of a view; `knobs`, whose columns are those of other spaces, are not stored."""
        rows = points.options[:, 0].astype(np.int64)
        if view not in self._tables:
            self._tables[view] = self._table(view)
        found = self._tables[view]
        if view in FLAT:
            return found[view][rows]
        starts = np.cumsum([0, *found[f"{view}_count"]])
        if view == "tree":
            return list(_trees(found, starts, rows))
        counts = found[f"{view}_count"][rows].astype(np.int64)
        return Ragged(found[view][_ranges(starts[rows], counts)], np.repeat(np.arange(len(rows)), counts), len(rows))

    def _table(self, view: str) -> Arrays:
        """What is stored, with the features of a view in the columns of today."""
        about, found = self._stored.about, self._stored.features
        known: Mapping[str, Any] = about["views"]
        if view not in known or view not in found:
            raise SpaceError(f"{self.name}: the view '{view}' is not stored; stored: {', '.join(known)}")
        now = schema(view)
        version, width = known[view]
        # what was stored before names were kept has the columns of its version without those gained since
        names = tuple(about.get("columns", {}).get(view, now.columns[:width]))
        needed = now.columns[: now.width - now.gained]
        missing = [name for name in needed if name not in names]
        if version != now.version or len(names) != width or missing:
            lacking = f", without {', '.join(missing)}" if missing else ""
            raise SpaceError(
                f"{self.name}: features of the view '{view}' were stored as version {version} ({width} columns"
                f"{lacking}), but this searchlab has version {now.version} ({now.width} columns); record the data set"
                " again"
            )
        return found if names == now.columns else {**found, view: _by_name(found[view], names, now.columns)}


def _by_name(rows: Floats, names: tuple[str, ...], wanted: tuple[str, ...]) -> Floats:
    """Columns in another order, with zeros where there are none."""
    at = {name: n for n, name in enumerate(names)}
    have = [n for n, name in enumerate(wanted) if name in at]
    found = np.zeros((len(rows), len(wanted)), rows.dtype)
    found[:, have] = rows[:, [at[wanted[n]] for n in have]]
    return found


def _ranges(starts: Ints, counts: Ints) -> Ints:
    """The numbers start, start + 1, ... of all ranges, one after the other."""
    before = np.repeat(np.cumsum(counts) - counts, counts)
    return np.arange(int(counts.sum())) - before + np.repeat(starts, counts)


def _trees(found: Arrays, starts: Ints, rows: Ints) -> Any:
    """Pairs (positions, Tree) of programs whose trees have the same form."""
    alike: dict[bytes, list[int]] = {}
    for position, row in enumerate(rows.tolist()):
        own = slice(int(starts[row]), int(starts[row + 1]))
        form = found["tree_kinds"][own].tobytes() + found["tree_parents"][own].tobytes()
        alike.setdefault(form, []).append(position)
    for positions in alike.values():
        first = slice(int(starts[rows[positions[0]]]), int(starts[rows[positions[0]] + 1]))
        each = np.stack([found["tree"][starts[rows[p]] : starts[rows[p] + 1]] for p in positions])
        kinds, parents = found["tree_kinds"][first], found["tree_parents"][first]
        yield np.array(positions), Tree(kinds.astype(np.int64), parents.astype(np.int64), each)


def gathered(parts: list[tuple[Ints, Any, Points]], count: int) -> Arrays:
    """The features of programs of several spaces, as they are stored: (numbers of the programs, space, points)."""
    found: Arrays = {}
    for view in FLAT:
        rows = np.empty((count, schema(view).width), np.float32)
        for numbers, space, points in parts:
            rows[numbers] = space.features(points, view)
        found[view] = rows
    each: list[Any] = [None] * count
    for numbers, space, points in parts:
        ragged: Ragged = space.features(points, "statements")
        order = np.argsort(ragged.segments, kind="stable")
        counts = np.bincount(ragged.segments, minlength=len(points))
        for number, own in zip(numbers.tolist(), np.split(ragged.rows[order], np.cumsum(counts)[:-1]), strict=True):
            each[number] = own
    found |= {"statements": np.concatenate(each), "statements_count": np.array([len(e) for e in each], np.int32)}
    for numbers, space, points in parts:
        for rows, tree in space.features(points, "tree"):
            for position, row in enumerate(np.asarray(rows).tolist()):
                each[int(numbers[row])] = (tree.features[position], tree.kinds, tree.parents)
    names = ("tree", "tree_kinds", "tree_parents")
    types: tuple[Any, ...] = (np.float32, np.int8, np.int16)
    found |= {n: np.concatenate([e[k] for e in each]).astype(t) for k, (n, t) in enumerate(zip(names, types))}
    return found | {"tree_count": np.array([len(e[1]) for e in each], np.int32)}
