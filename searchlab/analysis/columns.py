"""Schema: what the columns of a view are; Ragged and Tree: features of candidates that differ in structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Schema:
    """The columns of a view; `version` changes with what any of them means.

    Columns that are gained later do not change the version: they come last, and `groups` says how many at a time.
    Features that were stored before have zeros in their place, which tell models nothing.
    """

    name: str
    version: int
    columns: tuple[str, ...]
    groups: tuple[int, ...] = ()

    @property
    def gained(self) -> int:
        """How many columns were gained."""
        return sum(self.groups)

    @property
    def width(self) -> int:
        """How many columns there are."""
        return len(self.columns)

    def __str__(self) -> str:
        return f"{self.name} v{self.version}: {self.width} columns"


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of all candidates, any number for each: row r belongs to candidate `segments[r]` of `count`."""

    rows: Floats
    segments: Ints
    count: int

    @staticmethod
    def join(parts: Sequence[tuple[Ints, Floats]], width: int, count: int) -> Ragged:
        """The rows of several groups of candidates, given as (numbers of the candidates, (candidates, rows, width))."""
        rows = [found.reshape(-1, width) for _, found in parts]
        segments = [np.repeat(numbers, found.shape[1]) for numbers, found in parts]
        return Ragged(
            np.concatenate(rows) if len(rows) > 1 else rows[0] if rows else np.empty((0, width), np.float32),
            np.concatenate([np.empty(0, np.int64), *segments]),
            count,
        )

    def total(self, values: Floats) -> Floats:
        """The sum of one number per row over the rows of every candidate."""
        return np.bincount(self.segments, values, self.count)


@dataclass(frozen=True, eq=False)
class Tree:
    """A program as a tree that is the same for a population, with the features of all nodes of all candidates.

    Nodes are in preorder, so a parent comes before its children; the root is node 0 and has parent -1.  `kinds` are
    positions in NODE_KINDS.
    """

    kinds: Ints
    parents: Ints
    features: Floats

    def __len__(self) -> int:
        return len(self.kinds)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The children of every node."""
        found: list[list[int]] = [[] for _ in range(len(self))]
        for node, parent in enumerate(self.parents.tolist()[1:], 1):
            found[parent].append(node)
        return tuple(map(tuple, found))

    @cached_property
    def heights(self) -> Ints:
        """How far every node is from the deepest leaf below it."""
        height = np.zeros(len(self), np.int64)
        for node in range(len(self) - 1, 0, -1):
            height[self.parents[node]] = max(height[self.parents[node]], height[node] + 1)
        return height

    @cached_property
    def levels(self) -> tuple[Ints, ...]:
        """Nodes by height, leaves first: every node comes after its children, and a level is computed at once."""
        return tuple(np.flatnonzero(self.heights == h) for h in range(int(self.heights.max()) + 1))
