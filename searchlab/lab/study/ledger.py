"""Ledger: the breakdown of a search's wall time; every second belongs to exactly one phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

WORK = ("run", "check", "build")  # phases of workers, as reported in outcomes
PHASES = (
    "propose",
    "predict",
    "fit",
    "programs",
    "build",
    "check",
    "run",
    "queue",
    "confirm",
    "record",
    "finish",
    "other",
)


class Ledger:
    """Seconds per phase; time outside any phase is `other`."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._stack = ["other"]
        self._since = clock()
        self._start = self._since

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charges the time inside the context to a phase; a nested phase is deducted from the outer one."""
        self._charge()
        self._stack.append(name)
        try:
            yield
        finally:
            self._charge()
            self._stack.pop()

    @contextmanager
    def waiting(self, work: Mapping[str, float]) -> Iterator[None]:
        """Charges the wait for a batch to the phases of the workers meanwhile; `work` is filled during the wait.

        Candidates are timed one at a time, so timing is charged in full; builds run in parallel, so building is charged
        at most the time that remains; the rest is waiting for a free worker.
        """
        before = self._seconds["queue"]
        with self.phase("queue"):
            yield
        left = self._seconds["queue"] - before
        for name in WORK:
            share = min(work.get(name, 0.0), left)
            self._seconds[name] += share
            left -= share
        self._seconds["queue"] = before + left

    def _charge(self) -> None:
        now = self._clock()
        self._seconds[self._stack[-1]] += now - self._since
        self._since = now

    @property
    def wall(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds per phase up to now; they add up to `wall`."""
        self._charge()
        return dict(self._seconds)
