"""An analytical model without training, from a program's operations and memory traffic and the machine's peak rates."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from searchlab.analysis import schema
from searchlab.analysis.estimate_view import BYTES_PER_CYCLE
from searchlab.search import CostModel, History, Points, Space
from searchlab.search.knob import Floats

_BYTES = {f"all_traffic_l{n}": rate for n, rate in enumerate(BYTES_PER_CYCLE, 1)}


class RooflineModel(CostModel):
    """An analytical estimate: cycles to compute and to move data through each cache, shared by the threads.

    It predicts from the first trial on; its weakness: it ignores latencies, conflicts and instruction mixes.
    """

    name = "roofline"
    view = "summary"

    def fit(self, history: History) -> None:
        """There is nothing to learn."""

    def predict(self, space: Space, points: Points) -> Floats:
        """The logarithm of the estimated cycles."""
        threads = 1 if space.target is None else space.target.threads
        return estimate(np.asarray(space.features(points, self.view)), threads)

    def save(self, path: Path) -> None:
        """There is nothing to keep."""

    def load(self, path: Path) -> None:
        """There is nothing to read."""


def estimate(rows: Floats, threads: int) -> Floats:
    """The logarithm of the estimated cycles of programs, from their features of the view `summary`.

    The view `estimate` has the same number (log2 of one more), computed without the other features.
    """
    at = {name: n for n, name in enumerate(schema("summary").columns)}
    wanted = ("all_cycles", "main_parallel", *_BYTES)
    column = {name: np.exp2(rows[:, at[name]].astype(np.float64)) - 1.0 for name in wanted}
    moving = sum(column[name] / per_cycle for name, per_cycle in _BYTES.items())
    return np.asarray(np.log(column["all_cycles"] + moving / np.clip(column["main_parallel"], 1.0, threads) + 1.0))
