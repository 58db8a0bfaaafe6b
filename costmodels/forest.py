"""The loop trees of many candidates as one list of nodes, so that a network evaluates them level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from searchlab.analysis import Tree
from searchlab.search.knob import Ints

Features = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class CandidateTrees:
    """Trees of several candidates: their nodes concatenated, tree by tree, parents before children.

    `owner` is the candidate of a node, `height` its distance to the deepest leaf below it; a root has parent -1.
    """

    features: Features
    kinds: Ints
    parents: Ints
    height: Ints
    owner: Ints
    count: int

    @staticmethod
    def of(parts: Sequence[tuple[Ints, Tree]], count: int) -> CandidateTrees:
        """The trees of a population; each part holds the trees of several candidates, with their rows."""
        order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
        sizes = np.concatenate([np.full(len(rows), len(tree)) for rows, tree in parts])[order]
        starts = np.cumsum(sizes) - sizes
        total = int(sizes.sum())
        features = np.empty((total, parts[0][1].features.shape[2]), np.float32)
        kinds, parents, height = (np.empty(total, np.int64) for _ in range(3))
        for rows, tree in parts:
            at = starts[rows][:, None] + np.arange(len(tree))
            features[at] = tree.features
            kinds[at] = tree.kinds
            parents[at] = np.where(tree.parents >= 0, starts[rows][:, None] + tree.parents, -1)
            height[at] = tree.heights
        return CandidateTrees(features, kinds, parents, height, np.repeat(np.arange(count), sizes), count)

    def some(self, rows: Ints) -> CandidateTrees:
        """The trees of the given candidates, in that order."""
        starts = np.searchsorted(self.owner, np.arange(self.count + 1))
        sizes = np.diff(starts)[rows]
        first = np.cumsum(sizes) - sizes
        shift = np.repeat(starts[:-1][rows] - first, sizes)
        at = np.arange(int(sizes.sum())) + shift
        parents = np.where(self.parents[at] >= 0, self.parents[at] - shift, -1)
        owner = np.repeat(np.arange(len(rows)), sizes)
        return CandidateTrees(self.features[at], self.kinds[at], parents, self.height[at], owner, len(rows))

    @property
    def levels(self) -> list[Ints]:
        """The nodes by height, leaves first."""
        order = np.argsort(self.height, kind="stable")
        ends = np.searchsorted(self.height[order], np.arange(int(self.height.max(initial=-1)) + 2))
        return [order[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]
