"""Branches: a probabilistic program run once for every combination of its decisions about structure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from searchlab.errors import ScheduleError, SpaceError
from spaces.probabilistic.schedule import ProbabilisticSchedule

Body = Callable[[ProbabilisticSchedule], Iterable[ProbabilisticSchedule]]


class _Script:
    """Takes the options of a prefix, then always the first, and remembers how many there were."""

    def __init__(self, prefix: tuple[int, ...]) -> None:
        self.prefix = prefix
        self.taken: list[int] = []
        self.counts: list[int] = []

    def __call__(self, options: int) -> int:
        at = len(self.taken)
        self.taken.append(self.prefix[at] if at < len(self.prefix) else 0)
        self.counts.append(options)
        return self.taken[-1]

    def others(self) -> list[tuple[int, ...]]:
        """The prefixes of the branches that this run did not take, nearest last."""
        found: list[tuple[int, ...]] = []
        for depth in range(len(self.prefix), len(self.counts)):
            rest = [(*self.taken[:depth], option) for option in range(1, self.counts[depth])]
            found.extend(reversed(rest))
        return found


def branches(start: ProbabilisticSchedule, body: Body, most: int) -> tuple[list[ProbabilisticSchedule], list[str]]:
    """The schedules of all runs of `body`, depth first, and why other runs were rejected.

    A run that an illegal step ends is rejected, like one whose draws a validator refuses.
    """
    found: list[ProbabilisticSchedule] = []
    rejected: list[str] = []
    left: list[tuple[int, ...]] = [()]
    runs = 0
    while left:
        runs += 1
        if runs > most:
            raise SpaceError(
                f"{start.program.name}: more than {most} combinations of decisions about structure; draw fewer of them "
                "(numbers are symbols and cost nothing), or raise `most`"
            )
        script = _Script(left.pop())
        s = start.copy()
        s.choose = script
        try:
            found.extend(body(s))
        except ScheduleError as e:
            rejected.append(str(e))
        left.extend(script.others())
    return found, rejected
