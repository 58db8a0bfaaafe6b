"""Ledger: where the wall time of a search went; every second is in exactly one phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

WAITING = ("build", "check", "run", "queue")
PHASES = ("propose", "predict", "fit", "programs", *WAITING, "confirm", "record", "other")


class Ledger:
    """Seconds per phase; what happens outside of any is `other`."""

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
    def waiting(self, shares: Mapping[str, float]) -> Iterator[None]:
        """Charges the wait for measurements to what workers did meanwhile; `shares` may be filled while it lasts."""
        self._charge()
        self._stack.append("queue")
        before = self._seconds["queue"]
        try:
            yield
        finally:
            self._charge()
            self._stack.pop()
            waited = self._seconds["queue"] - before
            known = {name: shares.get(name, 0.0) for name in WAITING}
            total = sum(known.values())
            if total > 0:
                self._seconds["queue"] = before
                for name, share in known.items():
                    self._seconds[name] += waited * share / total

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
