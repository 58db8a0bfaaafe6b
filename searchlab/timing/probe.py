"""How fast cores are at their best, from the clock probes (pulses) that back ends take beside every sample."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Pulse = Callable[[], float]

_JOBS = 200
_FAST_SHARE = 0.2


class Levels:
    """How fast each core is at its best, from the fastest probes of recent jobs.

    A low quantile of many jobs, not the minimum of all: a core that is slower for good is believed after some of them.
    """

    def __init__(self) -> None:
        self._fast: dict[tuple[int, ...], deque[float]] = {}

    def add(self, cores: tuple[int, ...], fastest: float) -> None:
        """Takes note of the fastest probe of a job."""
        self._fast.setdefault(cores, deque(maxlen=_JOBS)).append(fastest)

    def get(self, cores: tuple[int, ...]) -> float | None:
        """The probe of these cores at their best; None if nothing ran there yet."""
        known = sorted(self._fast.get(cores, ()))
        return known[int(_FAST_SHARE * len(known))] if known else None
