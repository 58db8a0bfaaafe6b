"""An analytical model: no training, only what the program computes and moves, and what the machine can do."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from searchlab.analysis import schema
from searchlab.search import CostModel, History, Points, Space
from searchlab.search.knob import Floats

# Relative costs of moving a byte from each level, in units of a vector operation on a byte; rough on purpose.
_TRAFFIC = {"all_bytes": 0.25, "all_traffic_l1": 1.0, "all_traffic_l2": 2.0, "all_traffic_l3": 6.0}


class RooflineModel(CostModel):
    """The larger of the time to compute and the times to move data through each cache, shared by the threads.

    Knows programs from the first trial on; known weakness: it sees no latencies, conflicts or instruction mixes.
    """

    name = "roofline"
    view = "summary"

    def fit(self, history: History) -> None:
        """There is nothing to learn."""

    def predict(self, space: Space, points: Points) -> Floats:
        found = np.exp2(np.asarray(space.features(points, self.view), np.float64)) - 1.0
        column = dict(zip(schema(self.view).columns, found.T, strict=True))
        lanes = np.clip(column["main_vector_length"], 1.0, _lanes(space))
        chains = np.clip(column["main_tile_accumulators"], 1.0, 8.0)  # a long sum waits for itself
        compute = column["all_flops"] / (lanes * chains)
        moving = [cost * column[name] for name, cost in _TRAFFIC.items()]
        threads = np.clip(column["main_parallel"], 1.0, _threads(space))
        return np.asarray(np.log(np.maximum.reduce([compute, *moving]) / threads + 1.0))

    def save(self, path: Path) -> None:
        """There is nothing to keep."""

    def load(self, path: Path) -> None:
        """There is nothing to read."""


def _lanes(space: Space) -> int:
    return 8 if space.target is None else space.target.lanes("float32")


def _threads(space: Space) -> int:
    return 1 if space.target is None else space.target.threads
