"""Ledger: where the wall time of a search went; every second is in exactly one phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

WORK = ("run", "check", "build")  # of workers, as outcomes tell it
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
    """Seconds per phase; time outside of any phase is `other`."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._stack = ["other"]
        self._since = clock()
        self._start = self._since

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charges what happens inside to a phase; a phase inside another takes its time out of the outer one."""
        self._charge()
        self._stack.append(name)
        try:
            yield
        finally:
            self._charge()
            self._stack.pop()

    @contextmanager
    def waiting(self, work: Mapping[str, float]) -> Iterator[None]:
        """Charges the wait for a batch to what workers did meanwhile; `work` is filled while it lasts.

        Candidates are timed one after the other, so timing is charged in full; builders work side by side, so building
        is charged at most the time that is left; the rest is waiting for turns.
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
