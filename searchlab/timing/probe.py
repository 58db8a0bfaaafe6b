"""The best speed of each core, from the clock probes (pulses) that back ends take beside every sample."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Pulse = Callable[[], float]

_JOBS = 200
_FAST_SHARE = 0.2


class Levels:
    """The best speed of each core, from the fastest probes of recent jobs.

    It is a low quantile over many jobs, not the minimum, so that a core that has become slower for good is accepted
    after some of them.
    """

    def __init__(self) -> None:
        self._fast: dict[tuple[int, ...], deque[float]] = {}

    def add(self, cores: tuple[int, ...], fastest: float) -> None:
        """Adds the fastest probe of a job."""
        self._fast.setdefault(cores, deque(maxlen=_JOBS)).append(fastest)

    def get(self, cores: tuple[int, ...]) -> float | None:
        """The probe reading of these cores at their best; None if nothing has run there yet."""
        known = sorted(self._fast.get(cores, ()))
        return known[int(_FAST_SHARE * len(known))] if known else None
