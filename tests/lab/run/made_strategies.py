"""Strategies that misbehave in ways a run must survive; experiments name them by their path."""

import os
import time
from pathlib import Path

import numpy as np

from searchlab.search import Points, Scorer, Space
from searchlab.strategies import Random


class Slow(Random):
    """Takes its time, so that a test can do something to it."""

    name = "slow"

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        time.sleep(0.02)
        return super().ask(count, score)


class Failing(Random):
    """Raises an exception at its second batch until a file exists, which it makes if `heals`."""

    name = "failing"

    def __init__(self, space: Space, rng: np.random.Generator, file: str = "", heals: bool = False) -> None:
        super().__init__(space, rng)
        self._file, self._heals, self._asked = Path(file), heals, 0

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        self._asked += 1
        if self._asked == 2 and not self._file.is_file():
            if self._heals:
                self._file.touch()
            self.fail()
        return super().ask(count, score)

    def fail(self) -> None:
        raise RuntimeError("it was made to fail")


class Dying(Failing):
    """The same, but the process ends."""

    name = "dying"

    def fail(self) -> None:
        os.kill(os.getpid(), 9)


class Stuck(Random):
    """Proposes one and the same point."""

    name = "stuck"

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        return self.space.enumerate()[[0] * count]
