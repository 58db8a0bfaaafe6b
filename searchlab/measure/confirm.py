"""Re-measurement of candidates: interleaved jobs on a measurer, and the confirmation of a new incumbent.

A search keeps the luckiest of many noisy figures, so its best figure is biased (the winner's curse).  Here candidates
are interleaved in rounds, and only ratios within a round count, where all of them meet the same conditions.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from searchlab.measure.job import Job, Measurer, Outcome
from searchlab.timing.ratios import ratio_interval
from searchlab.timing.turns import Order, Turns, alternating, as_given, take_turns

_LEAST_ROUNDS = 3  # with fewer, a lead or a lag may still be luck
_NEW, _OLD = "new", "old"


# --- jobs in turns ----------------------------------------------------------------------------------------------------


@dataclass
class JobTurns:
    """Jobs interleaved on a measurer, submitted one at a time, since it may reorder or distribute those of a batch.

    `last` are their latest outcomes, `failed` the latest failures.  All repeats of a turn that worked are its samples.
    """

    measurer: Measurer[Job]
    jobs: Mapping[str, Job]
    last: dict[str, Outcome] = field(default_factory=dict)
    failed: dict[str, Outcome] = field(default_factory=dict)

    def take(self, more: Callable[[Turns], bool], order: Order = as_given) -> Turns:
        """Measures every job once per round, while `more` returns True."""
        return take_turns(list(self.jobs), self._sample, more, order)

    def _sample(self, name: str) -> tuple[float, ...]:
        (outcome,) = self.measurer.measure([self.jobs[name]])
        self.last[name] = outcome
        if outcome.ok:
            return outcome.times
        self.failed[name] = outcome
        return ()


# --- incumbents -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Whether a candidate beats the incumbent: medians in seconds, and their ratio (below 1: faster) with its interval.

    `error` says why there was nothing to compare; `rounds` counts those in which both have a time.
    """

    confirmed: bool
    seconds: float
    incumbent_seconds: float
    ratio: float
    low: float
    high: float
    rounds: int
    error: str = ""


def confirm(
    measurer: Measurer[Job],
    job: Job,
    incumbent_job: Job,
    rounds: int = 7,
    repeats: int = 3,
    level: float = 0.9,
    seed: int = 0,
) -> Confirmation:
    """Measures a potential incumbent interleaved with the current one, in `rounds` rounds of `repeats` repeats each.

    The fastest repeat of each turn counts, which other programs disturb least.

    It is confirmed if the whole confidence interval of the ratio lies below 1, so a tie keeps the incumbent.  A
    candidate that is not ahead after three or more rounds is given up: most lucky figures cost six measurements.
    """
    race = JobTurns(measurer, {_NEW: _turn(job, repeats, _NEW), _OLD: _turn(incumbent_job, repeats, _OLD)})

    def more(turns: Turns) -> bool:
        return turns.count < rounds and _NEW not in race.failed and not _behind(turns.pairs(_NEW, _OLD))

    pairs = race.take(more, alternating).pairs(_NEW, _OLD)
    error = f"incumbent: {_why(race.failed[_OLD])}" if _OLD in race.failed else ""
    if _NEW in race.failed:
        why, old_s = _why(race.failed[_NEW]), race.last[_OLD].seconds
        return Confirmation(False, math.inf, old_s, math.inf, math.inf, math.inf, len(pairs), why)
    if not pairs:  # an incumbent that no longer runs loses its place
        return Confirmation(True, race.last[_NEW].seconds, math.inf, 0.0, 0.0, 0.0, 0, error)
    return _decide(pairs, level, seed, error)


def _behind(pairs: Sequence[tuple[float, float]]) -> bool:
    return len(pairs) >= _LEAST_ROUNDS and statistics.median(a / b for a, b in pairs) >= 1.0


def _decide(pairs: Sequence[tuple[float, float]], level: float, seed: int, error: str) -> Confirmation:
    ratio, low, high = ratio_interval(pairs, level, seed)
    new, old = (statistics.median(side) for side in zip(*pairs, strict=True))
    enough = len(pairs) >= _LEAST_ROUNDS
    return Confirmation(enough and high < 1.0, new, old, ratio, low, high, len(pairs), error)


def _turn(job: Job, repeats: int, role: str) -> Job:
    """The job as one turn: few repeats, no check (it has passed one), no early stop (it would leave one sample)."""
    protocol = replace(job.protocol, repeats=repeats, check=False, early_stop=None, beaten=None)
    return replace(job, id=f"{job.id}:{role}", protocol=protocol, best_s=None)


def _why(outcome: Outcome) -> str:
    return f"{outcome.status}: {outcome.error}" if outcome.error else outcome.status
