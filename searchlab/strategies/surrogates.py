"""Surrogates: models with uncertainties, which strategies fit to measurements by themselves.

Both take the known points with their values (logarithms of time; a guess for points still being measured) and choose
the candidates with the largest expected improvement.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from searchlab.search.knob import Floats, Ints, Keys
from searchlab.search.points import Points
from searchlab.search.space import Space
from searchlab.strategies.forest import Forest
from searchlab.strategies.process import Process

EXACT = 64  # the number of picks of a batch that take the earlier picks into account


class Ranks:
    """Inputs of surrogates: for each column of `space.encode`, the rank of the value among all possible ones (0 to 1).

    Steps between adjacent options are then equally long, however the values grow.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        values: dict[str, Floats] = {c: np.array([0.0, 1.0]) for c in space.columns if c.startswith("sketch=")}
        absent = len(space.sketches) > 1  # encode() writes 0 for knobs that a sketch lacks
        for k in (k for s in space.sketches for k in s.knobs):
            for n, c in enumerate(k.columns):
                values[c] = np.union1d(values.get(c, [0.0] if absent else []), k.encoding[:, n])
        self._values = [values[c] for c in space.columns]
        self.values = [len(v) for v in self._values]  # the number of possible values of each column

    def __call__(self, points: Points) -> Floats:
        encoded = self.space.encode(points)
        for n, values in enumerate(self._values):
            encoded[:, n] = np.searchsorted(values, encoded[:, n]) / max(len(values) - 1, 1)
        return encoded


@dataclass(frozen=True, eq=False)
class Candidates:
    """Points that may be chosen, encoded as numbers, with their keys."""

    points: Points
    numbers: Floats
    keys: Keys

    def find(self, keys: Keys) -> Ints:
        """The places of these keys, -1 for those of other points."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        order = np.argsort(self.keys)
        at = order[np.minimum(np.searchsorted(self.keys, keys, sorter=order), len(order) - 1)]
        return np.where(self.keys[at] == keys, at, -1)


@dataclass(frozen=True, eq=False)
class Observations:
    """The points that a surrogate learns from, as numbers, with their values; `best` is the least value measured.

    `lie` is the value assumed for a point until it is measured; None for the surrogate's expectation.
    """

    numbers: Floats
    keys: Keys
    values: Floats
    best: float
    lie: float | None = None


class Surrogate(ABC):
    """Learns from observations and chooses among candidates."""

    @abstractmethod
    def choose(self, known: Observations, among: Candidates, count: int) -> tuple[Ints, Floats]:
        """The positions of up to `count` new candidates, in order of choice, and the values assumed for them."""


class GaussianSurrogate(Surrogate):
    """A Gaussian process and the logarithm of the expected improvement.

    It is refitted whenever the data has grown by the factor `growth`; in between, measurements are only added.  Of more
    than `most` measurements it keeps the better half and the latest ones.
    """

    def __init__(self, growth: float = 1.5, most: int = 400) -> None:
        self.growth, self.most = growth, most
        self._next_fit = 0
        self._process: Process | None = None
        self._among: Candidates | None = None
        self._row: dict[int, int] = {}  # the row of a point in the process; -1 for points left out

    def choose(self, known: Observations, among: Candidates, count: int) -> tuple[Ints, Floats]:
        """Updates the process, and picks candidates by expected improvement, one at a time."""
        mean, scale = float(known.values.mean()), float(known.values.std()) or 1.0
        standard = (known.values - mean) / scale
        process = self._learn(known, standard, among)
        values = np.zeros(len(process))
        rows = np.array([self._row[k] for k in known.keys.tolist()])
        values[rows[rows >= 0]] = standard[rows >= 0]
        free = np.ones(len(among.points), np.bool_)
        free[(places := among.find(known.keys))[places >= 0]] = False
        chosen: list[int] = []
        expected: list[float] = []
        while len(chosen) < min(count, EXACT) and free.any():
            guess, error = process.predict(values)
            gain = np.where(free, log_improvement(guess, error, (known.best - mean) / scale), -np.inf)
            pick = int(np.argmax(gain))
            free[pick] = False
            chosen.append(pick)
            expected.append(float(guess[pick]) if known.lie is None else (known.lie - mean) / scale)
            self._row[int(among.keys[pick])] = len(process)
            process.add(pick)
            values = np.append(values, expected[-1])
        if len(chosen) < count and free.any():
            rest = np.argsort(np.where(free, -gain, np.inf), kind="stable")[: min(count - len(chosen), int(free.sum()))]
            chosen += rest.tolist()
            expected += guess[rest].tolist()
        return np.array(chosen, np.int64), np.array(expected) * scale + mean

    def _learn(self, known: Observations, standard: Floats, among: Candidates) -> Process:
        """The process, fitted to all observations."""
        new = [n for n, k in enumerate(known.keys.tolist()) if k not in self._row]
        places = among.find(known.keys[new])
        process = self._process
        if process is None or among is not self._among or len(known.keys) >= self._next_fit or (places < 0).any():
            return self._restarted(known, standard, among)
        for n, place in zip(new, places.tolist(), strict=True):
            self._row[int(known.keys[n])] = len(process)
            process.add(place)
        return process

    def _restarted(self, known: Observations, standard: Floats, among: Candidates) -> Process:
        if self._process is None or among is not self._among:
            theta = self._process.theta if self._process is not None else None
            self._process, self._among = Process(among.numbers, theta), among
        kept = np.arange(len(standard))
        if len(kept) > self.most:
            better = np.argsort(standard, kind="stable")[: self.most // 2]
            latest = np.setdiff1d(kept, better)[-(self.most - len(better)) :]
            kept = np.sort(np.concatenate([better, latest]))
        if len(standard) >= self._next_fit:
            self._process.fit(known.numbers[kept], standard[kept])
            self._next_fit = len(standard) + max(int(min(len(standard), self.most) * (self.growth - 1)), 1)
        self._process.restart(known.numbers[kept])
        self._row = dict.fromkeys(known.keys.tolist(), -1)
        self._row.update({int(known.keys[n]): row for row, n in enumerate(kept.tolist())})
        return self._process


class ForestSurrogate(Surrogate):
    """Extremely randomised trees and the expected improvement.

    Points that share a leaf with one that is being measured count as equally well known, tree by tree.
    """

    def __init__(self, rng: np.random.Generator, trees: int = 48) -> None:
        self.forest = Forest(rng, trees)

    def choose(self, known: Observations, among: Candidates, count: int) -> tuple[Ints, Floats]:
        """Fits the forest, and picks candidates by expected improvement, one at a time."""
        self.forest.fit(known.numbers, known.values)
        values, leaves = self.forest.ask(among.numbers)
        guess, error = values.mean(axis=0), values.std(axis=0) + 1e-3 * (float(known.values.std()) or 1.0)
        free = np.ones(len(among.points), np.bool_)
        free[(places := among.find(known.keys))[places >= 0]] = False
        chosen: list[int] = []
        while len(chosen) < count and free.any():
            gain = np.where(free, log_improvement(guess, error, known.best), -np.inf)
            some = [int(np.argmax(gain))]
            if len(chosen) >= EXACT:
                some = np.argsort(-gain, kind="stable")[: min(count - len(chosen), int(free.sum()))].tolist()
            else:
                error = error * np.sqrt(1 - 0.9 * (leaves == leaves[:, some]).mean(axis=0))
            free[some] = False
            chosen += some
        return np.array(chosen, np.int64), guess[chosen]


def log_improvement(
    mean: npt.NDArray[np.floating], error: npt.NDArray[np.floating], best: float
) -> npt.NDArray[np.floating]:
    """The logarithm of the expected improvement below `best`; it preserves order where the improvement underflows."""
    z = (best - mean) / error
    density = -0.5 * z * z - 0.5 * np.log(2 * np.pi)
    with np.errstate(divide="ignore"):
        near = np.log(np.maximum(np.exp(density) + z * np.exp(log_ndtr(z)), 1e-300))
    far = density - 2 * np.log(np.maximum(-z, 1e-9))
    return np.asarray(np.where(z > -5, near, far) + np.log(error))
