"""What a schedule rule is: it looks at one stage and gives the schedules that may follow; all of them are kept.

class MyRule(ScheduleRule):
    def apply(self, s, block):
        with_cache = s.copy()
        with_cache.cache_write(block)
        return [s, with_cache]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar

from spaces.probabilistic.schedule import ProbabilisticSchedule
from spaces.probabilistic.stages import Drawn

INNERMOST = 64


class ScheduleRule(ABC):
    """One way to deal with a stage; with `once` it is asked only for the last one, and deals with all."""

    once: ClassVar[bool] = False

    @abstractmethod
    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The schedules that may follow: `s` as it is, changed, or copies of it that go different ways."""


def drawn_factors(
    most: int | None = INNERMOST, exact: bool = False, vectors: bool = False
) -> Callable[[str, int, int], Drawn]:
    """Factors for the tactics, drawn for the loop that is split; `exact` ones divide its extent."""
    return lambda axis, extent, parts: Drawn(axis, parts, most, exact, vectors)
