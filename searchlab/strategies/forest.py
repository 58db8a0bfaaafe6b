"""Forest: extremely randomised regression trees, all grown and evaluated together in numpy."""

from __future__ import annotations

import numpy as np

from searchlab.search.knob import Floats, Ints


class Forest:
    """Trees whose splits are the best of `tries` random ones; their mean predicts, their spread is the uncertainty.

    All trees see all rows.  A node with fewer than `leaf` * 2 rows, or with identical features or values, is not split.
    """

    def __init__(
        self, rng: np.random.Generator, trees: int = 48, tries: int = 4, leaf: int = 1, depth: int = 16
    ) -> None:
        self.rng, self.trees, self.tries, self.leaf, self.depth = rng, trees, tries, leaf, depth

    def fit(self, x: Floats, y: Floats) -> None:
        """Fits all trees to rows of numbers, one level at a time."""
        self._feature: list[Ints] = []
        self._cut: list[Floats] = []
        self._first: list[Ints] = []  # the left child's number in the next level; the right one follows; -1 for a leaf
        self._value: list[Floats] = []
        row = np.tile(np.arange(len(y)), self.trees)
        starts = np.arange(self.trees) * len(y)
        for level in range(self.depth + 1):
            row, starts = self._grow(x, y, row, starts, last=level == self.depth)
            if not len(starts):
                break
        self._flat = self._flattened()

    def _flattened(self) -> tuple[Ints, Floats, Ints, Floats]:
        """All nodes of all levels side by side: column, cut, left child and value; a leaf leads to itself."""
        sizes = np.array([len(v) for v in self._value])
        after = np.cumsum(sizes)  # the start of the next level
        ends = np.concatenate(self._first) < 0
        child = np.concatenate([f + a for f, a in zip(self._first, after, strict=True)])
        return (
            np.concatenate(self._feature),
            np.where(ends, np.inf, np.concatenate(self._cut)),
            np.where(ends, np.arange(len(ends)), child),
            np.concatenate(self._value),
        )

    def _grow(self, x: Floats, y: Floats, row: Ints, starts: Ints, last: bool) -> tuple[Ints, Ints]:
        """Splits the nodes of a level, whose rows begin at `starts`; returns the nodes of the next level."""
        count = np.diff(np.append(starts, len(row)))
        slot = np.repeat(np.arange(len(starts)), count)
        target = y[row]
        self._value.append(np.add.reduceat(target, starts) / count)
        gain, feature, cut = self._best_cut(x, row, starts, slot, target, count)
        cut_at = (gain > -np.inf) & (np.minimum.reduceat(target, starts) < np.maximum.reduceat(target, starts))
        if last:
            cut_at[:] = False
        self._feature.append(feature)
        self._cut.append(cut)
        self._first.append(np.where(cut_at, 2 * (np.cumsum(cut_at) - 1), -1))
        kept = cut_at[slot]
        row, slot = row[kept], slot[kept]
        side = self._first[-1][slot] + (x[row, feature[slot]] > cut[slot])
        order = np.argsort(side, kind="stable")
        sizes = np.bincount(side, minlength=2 * int(cut_at.sum()))
        return row[order], np.cumsum(sizes) - sizes

    def _best_cut(
        self, x: Floats, row: Ints, starts: Ints, slot: Ints, target: Floats, count: Ints
    ) -> tuple[Floats, Ints, Floats]:
        """The random split of each node that leaves the least variance."""
        nodes = len(starts)
        best = np.full(nodes, -np.inf), np.zeros(nodes, np.int64), np.zeros(nodes)
        total = np.add.reduceat(target, starts)
        for _ in range(self.tries):
            feature = self.rng.integers(x.shape[1], size=nodes)
            value = x[row, feature[slot]]
            low, high = np.minimum.reduceat(value, starts), np.maximum.reduceat(value, starts)
            cut = low + self.rng.random(nodes) * (high - low)
            left = value <= cut[slot]
            n = np.add.reduceat(left.astype(np.float64), starts)
            s = np.add.reduceat(np.where(left, target, 0.0), starts)
            with np.errstate(divide="ignore", invalid="ignore"):
                gain = s * s / n + (total - s) ** 2 / (count - n)
            gain[(n < self.leaf) | (count - n < self.leaf) | (high <= low)] = -np.inf
            better = gain > best[0]
            best = tuple(np.where(better, new, old) for new, old in zip((gain, feature, cut), best, strict=True))  # type: ignore[assignment]
        return best

    def predict(self, x: Floats) -> Floats:
        """The mean of the trees for every row."""
        return np.asarray(self.ask(x)[0].mean(axis=0))

    def ask(self, x: Floats) -> tuple[Floats, Ints]:
        """The prediction of every tree for every row, and the number of the leaf that it comes from."""
        feature, cut, child, value = self._flat
        columns, row = np.ascontiguousarray(x.T).ravel(), np.arange(len(x))
        leaf = np.empty((self.trees, len(x)), np.int64)
        for tree in range(self.trees):  # one by one, so that the lookups stay in the cache
            node = np.full(len(x), tree)
            while True:
                right = columns.take(feature.take(node) * len(x) + row) > cut.take(node)
                deeper = child.take(node) + right
                if np.array_equal(deeper, node):
                    break
                node = deeper
            leaf[tree] = node
        return value[leaf], leaf
