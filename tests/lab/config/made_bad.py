"""Components that return what they should not; experiments name them by their path."""

from typing import Any

import numpy as np

from searchlab.ir import Builder, size
from searchlab.search import CostModel, History, Points, Scorer, Space, SpaceGenerator, Strategy, Task
from searchlab.strategies import Random
from searchlab.workloads import Definition, operator


class Nothing(Random):
    name = "nothing"

    def ask(self, count: int, score: Scorer | None = None) -> Any:
        super().ask(count, score)


class Rows(Random):
    name = "rows"

    def ask(self, count: int, score: Scorer | None = None) -> Any:
        return super().ask(count, score).rows()


class Elsewhere(Strategy):
    name = "elsewhere"

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        return Points.of([[7, 0, 0]], self.space.width)


class Late(Random):
    """Returns nothing from its second batch on."""

    name = "late"

    def ask(self, count: int, score: Scorer | None = None) -> Any:
        return super().ask(count, score) if not len(self.points) else None


class Scores(CostModel):
    """Predicts what it was made with."""

    name = "scores"
    view = "knobs"

    def __init__(self, kind: str, rng: np.random.Generator | None = None) -> None:
        super().__init__(rng)
        self.kind = kind

    def fit(self, history: History) -> None:
        pass

    def predict(self, space: Space, points: Points) -> Any:
        count = len(points)
        return {
            "none": None, "list": [1.0] * count, "short": np.ones(count - 1), "table": np.ones((count, 1)),
            "nan": np.full(count, np.nan), "words": np.array(["fast"] * count),
        }[self.kind]  # fmt: skip


class NoSketches(SpaceGenerator):
    name = "no-sketches"
    version = "1"

    def sketches(self, task: Task) -> Any:
        return None


class OddSketches(NoSketches):
    def sketches(self, task: Task) -> Any:
        yield task.program


@operator
def open_inside(columns: int = 8) -> Definition:
    """Twice a matrix whose rows are known only at run time."""
    b = Builder("open_inside")
    A = b.input("A", (size("rows"), columns))
    return Definition(
        b.program(b.compute("C", (size("rows"), columns), lambda i, j: A[i, j] + A[i, j])), lambda A: A + A
    )
