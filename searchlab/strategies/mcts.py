"""Monte-Carlo tree search: choices are made in schedule order, first the sketch and then its knobs.

A path from the root is the beginning of a point; what follows is completed at random.  Good points share beginnings,
and the tree learns which.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import Points, Scorer, Space
from searchlab.search.knob import Floats
from searchlab.search.parts import Mask
from searchlab.strategies.guided import Guided
from searchlab.strategies.shortlist import Shortlist

Backup = Literal["best", "mean"]


class Growth(NamedTuple):
    """How a tree grows: see `Mcts`."""

    exploration: float
    widening: float
    backup: Backup


_WAVE = 64  # simulations between two calls of the model
_ENOUGH = 2  # measurements that a tree without a model needs, to have a scale


class Mcts(Guided):
    """UCT over the sketch and its knobs, with progressive widening and random completions.

    A child is worth the best or mean prediction of the points below it (`backup`), scaled to 0 for the median of a
    first population and 1 for the best known, plus `exploration` * sqrt(log(visits) / its visits).  A node with n
    visits has at most `widening` * sqrt(n) children; new ones come from random completions.  The tree is built anew for
    every batch from the best measured points and `population` others, since the model has learnt meanwhile; then it
    grows by `simulations`.

    Without a model, the tree consists of the measurements, and each point of a batch is a simulation.
    """

    name = "mcts"

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        simulations: int = 2048,
        population: int = 256,
        exploration: float = 0.3,
        widening: float = 1.5,
        backup: Backup = "best",
        epsilon: float = 0.05,
        breadth: float = 0.15,
        diversity: float | None = None,
        polish: float = 0.0,
        draft: int = 0,
    ) -> None:
        super().__init__(space, rng, epsilon, breadth, diversity, polish, draft)
        if simulations < 0 or population < 2 or exploration < 0 or widening <= 0:
            raise SpaceError("mcts: simulations >= 0, population >= 2, exploration >= 0, widening > 0")
        if backup not in get_args(Backup):
            raise SpaceError(f"mcts: unknown backup '{backup}'; known: {', '.join(get_args(Backup))}")
        self.simulations, self.population = simulations, population
        self.growth = Growth(exploration, widening, backup)

    def explore(self, found: Shortlist, score: Scorer) -> None:
        """Grows a tree on the model, and offers all points that it met."""
        people = Points.concat([self.leaders(self.population // 4), self.sample(self.population)])
        values = score(people)
        found.offer(people, values)
        tree = self.tree(people, values)
        for done in range(0, self.simulations, _WAVE):
            paths = [tree.select() for _ in range(min(_WAVE, self.simulations - done))]
            points, valid = self.completed(paths)
            tree.settle(paths, valid)
            values = score(points)
            found.offer(points, values)
            tree.add(points, values)

    def tree(self, points: Points, values: Floats) -> ChoiceTree:
        """The tree of these points, whose values set its scale."""
        tree = ChoiceTree(self.space, self.rng, self.growth, values)
        tree.add(points, values)
        return tree

    def completed(self, paths: list[list[int]]) -> tuple[Points, Mask]:
        """Points that begin like these paths and continue at random, and which paths can be continued."""
        starts = Points.of(paths, self.space.width)
        knobs = np.array([len(s.knobs) for s in self.space.sketches])[starts.sketch]
        # what is not decided yet is any option, so that rows are in range
        options = np.where(np.arange(self.space.width) < knobs[:, None], np.maximum(starts.options, 0), -1)
        lengths = np.array([len(path) - 1 for path in paths])
        points, valid = self.space.continued(Points(starts.sketch, options.astype(np.int32)), lengths, self.rng)
        return points[valid], valid

    # --- on measurements ----------------------------------------------------------------------------------------------

    @property
    def on_measurements(self) -> bool:
        """Whether there are measurements to build a tree of."""
        return not self.expects_model and len(self.leaders(_ENOUGH)) == _ENOUGH

    def best(self, count: int, score: Scorer | None) -> Points:
        """The best points that the tree met or, without a model, where simulations on measurements end."""
        if score is not None:
            return super().best(count, score)
        worked = np.isfinite(self.seconds)
        logs = np.log(np.maximum(np.where(worked, self.seconds, self.seconds[worked].max()), 1e-12))
        tree = self.tree(self.points, logs)
        batch = [Points.empty(self.space.width)]
        for _ in range(4 * count):
            if sum(map(len, batch)) >= count:
                break
            batch.append(self.take(self.completed([tree.select()])[0], 1))
        return Points.concat(batch)


class _Beginning:
    """The points that share a beginning; smaller values are better.  `dead` options lead to no valid point."""

    __slots__ = ("best", "children", "dead", "total", "visits", "waiting")

    def __init__(self) -> None:
        self.visits = self.waiting = 0
        self.total, self.best = 0.0, math.inf
        self.children: dict[int, _Beginning] = {}
        self.dead: set[int] = set()

    def count(self, value: float) -> None:
        """Counts a point."""
        self.visits += 1
        self.total, self.best = self.total + value, min(self.best, value)


class ChoiceTree:
    """A search tree of points; a path is the number of a sketch, then options of its knobs in order."""

    def __init__(self, space: Space, rng: np.random.Generator, growth: Growth, values: Floats) -> None:
        self._root, self._rng, self._growth = _Beginning(), rng, growth
        self._sketches: list[int] = space.drawn.tolist()
        self._sizes: list[list[int]] = [s.sizes.tolist() for s in space.sketches]
        finite = values[np.isfinite(values)]
        self._zero = float(np.median(finite)) if len(finite) else 0.0

    def add(self, points: Points, values: Floats) -> None:
        """Adds points; each makes at most one new node, below the longest path that it shares with the tree."""
        for row, value in zip(points.rows(), values.tolist(), strict=True):
            node = self._root
            node.count(value)
            for option in row:
                known = option in node.children
                node = node.children.setdefault(option, _Beginning())
                node.count(value)
                if not known:
                    break

    def select(self) -> list[int]:
        """The path of the next simulation: down the best nodes, to a new child of one that may have more."""
        node, path = self._root, list[int]()
        node.waiting += 1
        while not path or len(path) <= len(self._sizes[path[0]]):
            if (new := self._untried(node, path)) is not None:
                return [*path, new]
            if not node.children:
                break
            path.append(self._favourite(node))
            node = node.children[path[-1]]
            node.waiting += 1
        return path

    def settle(self, paths: list[list[int]], valid: Mask) -> None:
        """Ends the visits of paths that were selected; those without a valid point are not selected again."""
        for path, found in zip(paths, valid.tolist(), strict=True):
            node = self._root
            node.waiting -= 1
            for option in path:
                if option not in node.children:
                    if not found:
                        node.dead.add(option)
                    break
                node = node.children[option]
                node.waiting -= 1

    def _untried(self, node: _Beginning, path: list[int]) -> int | None:
        """A random option that has no node yet, if there may be one more; all sketches have one from the start."""
        tried = len(node.children) + len(node.dead)
        if not path:
            left = [s for s in self._sketches if s not in node.children and s not in node.dead]
            return left[int(self._rng.integers(len(left)))] if left else None
        size = self._sizes[path[0]][len(path) - 1]
        if tried >= size or len(node.children) >= self._growth.widening * math.sqrt(node.visits + node.waiting):
            return None
        start = int(self._rng.integers(size))
        return next(o for o in _circle(start, size) if o not in node.children and o not in node.dead)

    def _favourite(self, node: _Beginning) -> int:
        """The child with the highest upper confidence bound; the first of equals."""
        unit = max(self._zero - self._root.best, 1e-12)
        log = math.log(node.visits + node.waiting + 1)
        chosen, most = -1, -math.inf
        for option, child in node.children.items():
            value = child.best if self._growth.backup == "best" else child.total / child.visits
            worth = max((self._zero - value) / unit, -1.0)
            bound = worth + self._growth.exploration * math.sqrt(log / (child.visits + child.waiting + 1))
            if bound > most:
                chosen, most = option, bound
        return chosen


def _circle(start: int, size: int) -> Iterator[int]:
    """All numbers below `size`, from `start` on and round to it."""
    return itertools.chain(range(start, size), range(start))
