"""Second looks: a new incumbent beside the old one.

A search keeps the luckiest of many noisy figures, so its best figure is too good (the winner's curse).  Here candidates
take turns in rounds, and only ratios within a round count: whatever the machine did in a round met all of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from searchlab.measure.job import Job, Measurer, Outcome

Floats = npt.NDArray[np.float64]

_RESAMPLES = 2000
_LEAST_ROUNDS = 3  # before these a first impression may still be luck


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Whether a candidate beats the incumbent: medians in seconds, and their ratio (below 1: faster) with its interval.

    `error` says why there was nothing to compare; `rounds` counts those in which both gave a time.
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
    """Measures a would-be incumbent in turns with the present one, in `rounds` rounds of `repeats` repeats each.

    The fastest repeat of each turn counts, which other programs disturb least.

    It is confirmed if the whole interval of the ratio (at that level) lies below 1, so a tie keeps the incumbent.  A
    candidate that is not ahead after three rounds or more is given up: most lucky figures cost six measurements.
    """
    jobs = (_turn(job, repeats, "new"), _turn(incumbent_job, repeats, "old"))
    pairs: list[tuple[float, float]] = []
    error = ""
    for number in range(rounds):
        # The one that goes first changes: a cache left warm or a clock left high helps the second.
        order = jobs if number % 2 == 0 else jobs[::-1]
        found = {turn.id: _measure(measurer, turn) for turn in order}
        new, old = (found[turn.id] for turn in jobs)
        if not new.ok:
            return Confirmation(False, math.inf, old.seconds, math.inf, math.inf, math.inf, len(pairs), _why(new))
        if old.ok:
            pairs.append((new.fastest, old.fastest))
        else:
            error = f"incumbent: {_why(old)}"
        if len(pairs) >= _LEAST_ROUNDS and statistics.median(a / b for a, b in pairs) >= 1.0:
            break
    if not pairs:  # an incumbent that no longer runs is none
        return Confirmation(True, new.seconds, math.inf, 0.0, 0.0, 0.0, 0, error)
    return _decide(pairs, level, seed, error)


def _decide(pairs: Sequence[tuple[float, float]], level: float, seed: int, error: str) -> Confirmation:
    ratio, low, high = ratio_interval(pairs, level, seed)
    new, old = (statistics.median(side) for side in zip(*pairs, strict=True))
    enough = len(pairs) >= _LEAST_ROUNDS
    return Confirmation(enough and high < 1.0, new, old, ratio, low, high, len(pairs), error)


# --- statistics -------------------------------------------------------------------------------------------------------


def bootstrap(
    values: Floats, statistic: Callable[[Floats], Floats], level: float, generator: np.random.Generator
) -> tuple[float, float]:
    """The percentile interval of a statistic of `values`; it is given all resamples at once, one per row."""
    drawn = values[generator.integers(0, len(values), (_RESAMPLES, len(values)))]
    # Nearest ranks, not interpolation: with few values the ends must be values that occurred.
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(statistic(drawn), tails, method="closest_observation")
    return float(low), float(high)


def ratio_interval(pairs: Sequence[tuple[float, float]], level: float, seed: int) -> tuple[float, float, float]:
    """The median of the ratios a / b with its interval; each pair is one round."""
    ratios = np.array([a / b for a, b in pairs])
    low, high = bootstrap(ratios, lambda drawn: np.median(drawn, axis=1), level, np.random.default_rng(seed))
    return float(np.median(ratios)), low, high


# --- measuring --------------------------------------------------------------------------------------------------------


def _turn(job: Job, repeats: int, role: str = "") -> Job:
    """The job as one turn: few repeats, no check (it has passed one), no early stop (it would leave one sample)."""
    protocol = replace(job.protocol, repeats=repeats, check=False, early_stop=None, beaten=None)
    return replace(job, id=f"{job.id}:{role}" if role else job.id, protocol=protocol, best_s=None)


def _measure(measurer: Measurer[Job], job: Job) -> Outcome:
    """One job alone: a measurer may reorder or spread what it is given together."""
    (outcome,) = measurer.measure([job])
    return outcome


def _why(outcome: Outcome) -> str:
    return f"{outcome.status}: {outcome.error}" if outcome.error else outcome.status
