"""Stopping between two measurements: what is in flight is finished and stored, the rest of its batch is left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from searchlab.measure import Measurer, Outcome


class Stopped(Exception):
    """The search was asked to stop, and did."""


class Watched(Measurer[Any]):
    """Another measurer that can be stopped and says when each outcome came.

    `now` is the clock that times are told by.  Second looks at an incumbent are not stopped: they are short, and half
    of one is worth nothing.
    """

    def __init__(self, inner: Measurer[Any], stop: threading.Event, now: Callable[[], float]) -> None:
        self.arrived: dict[str, float] = {}
        self.on_outcome: Callable[[Outcome], object] = lambda outcome: None
        self._inner, self._stop, self._now = inner, stop, now
        self._stoppable = False

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """While this lasts, a request to stop ends the measuring of a batch."""
        self._stoppable = True
        try:
            yield
        finally:
            self._stoppable = False

    def measure(self, jobs: Sequence[Any]) -> Iterator[Outcome]:
        """One outcome per job, until the search is stopped."""
        outcomes = self._inner.measure(jobs)
        try:
            for outcome in outcomes:
                if self._stoppable:
                    self.arrived[outcome.id] = self._now()
                    self.on_outcome(outcome)
                yield outcome
                if self._stoppable and self._stop.is_set():
                    raise Stopped
        finally:
            if isinstance(outcomes, Generator):
                outcomes.close()  # ends what workers do, now and not when memory is tidied up

    def close(self) -> None:
        self._inner.close()
