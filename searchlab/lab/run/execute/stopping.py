"""Stopping a search between measurements: those in flight are finished and stored, the rest of the batch is dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from searchlab.measure import Measurer, Outcome


class Stopped(Exception):
    """The search has stopped on request."""


class Watch:
    """Watches the batches of a search: they can be stopped, and the arrival time of each outcome is known.

    `now` is the clock for arrival times.  Re-measurements of an incumbent are not stopped: they are short, and a
    partial one is worthless.
    """

    def __init__(
        self, stop: threading.Event, now: Callable[[], float], on_outcome: Callable[[Outcome], object]
    ) -> None:
        self.arrived: dict[str, float] = {}  # of the last batch, by job
        self._stop, self._now, self._on_outcome = stop, now, on_outcome
        self._watching = False

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Within this context, a request to stop ends the measurement."""
        self.arrived, self._watching = {}, True
        try:
            yield
        finally:
            self._watching = False

    def over(self, measurer: Measurer[Any]) -> Measurer[Any]:
        """The measurer, watched."""
        return _Watched(measurer, self)

    def passing(self, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        """The outcomes, until the search is stopped."""
        try:
            for outcome in outcomes:
                if self._watching:
                    self.arrived[outcome.id] = self._now()
                    self._on_outcome(outcome)
                yield outcome
                if self._watching and self._stop.is_set():
                    raise Stopped
        finally:
            if isinstance(outcomes, Generator):
                outcomes.close()  # stops the workers now, not at garbage collection


class _Watched(Measurer[Any]):
    """A watched measurer."""

    def __init__(self, inner: Measurer[Any], watch: Watch) -> None:
        self._inner, self._watch = inner, watch

    def measure(self, jobs: Sequence[Any]) -> Iterator[Outcome]:
        """One outcome per job, until the search is stopped."""
        return self._watch.passing(self._inner.measure(jobs))

    def close(self) -> None:
        """Closes the measurer."""
        self._inner.close()
