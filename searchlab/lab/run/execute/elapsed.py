"""The completion time of each trial, in seconds of work on the cell; pauses between runs of a cell do not count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from searchlab.measure import Outcome


class Elapsed:
    """The completion times of the trials so far.

    `before` are those of an earlier run of the same cell, whose trials are replayed from their records, in order.
    """

    def __init__(self, now: Callable[[], float], before: Sequence[float] = ()) -> None:
        self.times: list[float] = []
        self._now, self._before = now, list(before)
        self._zero = now()

    @property
    def last(self) -> float:
        """The completion time of the last trial."""
        return self.times[-1] if self.times else 0.0

    def extend(self, outcomes: Sequence[Outcome], arrived: Mapping[str, float]) -> None:
        """Adds a batch; `arrived` has the times of outcomes measured in this run."""
        for outcome in outcomes:
            if outcome.id in arrived:
                time = arrived[outcome.id] - self._zero
            elif len(self.times) < len(self._before):
                time = self._before[len(self.times)]
            else:  # measured just before the earlier run was killed
                time = self.last + outcome.build_s + outcome.check_s + outcome.run_s
            self.times.append(max(self.last, time))
        if not any(o.id in arrived for o in outcomes):
            self._zero = self._now() - self.last  # reading records does not count as work on the cell

    @property
    def total(self) -> float:
        """The seconds of work on the cell up to now."""
        return max(self.last, self._now() - self._zero)
