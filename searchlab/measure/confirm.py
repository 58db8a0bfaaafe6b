"""Second looks: a new incumbent beside the old one, finalists beside each other.

A search keeps the luckiest of many noisy figures, so its best figure is too good (the winner's curse).  Here candidates
take turns in rounds, and only ratios within a round count: whatever the machine did in a round met all of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

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


@dataclass(frozen=True, slots=True)
class Standing:
    """One finalist after a run-off: its median, its ratio to the first, and all repeats, round by round.

    Candidates of one group share a rank: the place of the group's first member.
    """

    id: str
    rank: int
    seconds: float
    ratio: float
    samples: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class RunOff:
    """Finalists, fastest first; `groups` are those that cannot be told apart, because they lie within `band`."""

    standings: tuple[Standing, ...]
    groups: tuple[tuple[str, ...], ...]
    band: float
    rounds: int
    failed: Mapping[str, str] = field(default_factory=dict)


def confirm(
    measurer: Measurer[Job],
    job: Job,
    incumbent_job: Job,
    rounds: int = 7,
    repeats: int = 5,
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


def run_off(
    measurer: Measurer[Job],
    jobs: Sequence[Job],
    rounds: int = 9,
    repeats: int = 5,
    least_band: float = 0.0,
    seed: int = 0,
) -> RunOff:
    """Measures finalists in turns, each round in another order, and says which of them cannot be told apart.

    The tie band comes from the scatter between rounds, but is at least `least_band`.  A candidate that fails in any
    round is out; its reason is in `failed`.
    """
    if rounds < 2:
        raise ValueError(f"a run-off takes 2 rounds or more to know its own noise, not {rounds}")
    if len({job.id for job in jobs}) != len(jobs):
        raise ValueError("finalists need ids of their own")
    generator = np.random.default_rng(seed)
    turns = {job.id: _turn(job, repeats) for job in jobs}
    samples: dict[str, list[tuple[float, ...]]] = {job.id: [] for job in jobs}
    failed: dict[str, str] = {}
    for _ in range(rounds):
        for name in generator.permutation(list(turns)).tolist():
            outcome = _measure(measurer, turns[name])
            if outcome.ok:
                samples[name].append(outcome.times)
            else:
                failed[name] = _why(outcome)
                del turns[name]
    return rank({name: tuple(samples[name]) for name in turns}, rounds, least_band, failed)


def rank(
    samples: Mapping[str, tuple[tuple[float, ...], ...]],
    rounds: int,
    least_band: float = 0.0,
    failed: Mapping[str, str] | None = None,
) -> RunOff:
    """Standings from the repeats of each candidate in each round; all of them have been in all rounds."""
    names = list(samples)
    if not names:
        return RunOff((), (), least_band, rounds, dict(failed or {}))
    medians = np.array([[statistics.median(repeats) for repeats in samples[name]] for name in names]).T
    effects, band = tie_band(np.log(medians))
    band = max(band, least_band)
    order = [int(n) for n in np.argsort(effects, kind="stable")]
    ratios = np.exp(effects - effects.min())
    groups = group_ties([float(ratios[n]) for n in order], band)
    place = {n: group[0] + 1 for group in groups for n in group}
    standings = tuple(
        Standing(names[n], place[at], float(np.median(medians[:, n])), float(ratios[n]), samples[names[n]])
        for at, n in enumerate(order)
    )
    named = tuple(tuple(standings[at].id for at in group) for group in groups)
    return RunOff(standings, named, band, rounds, dict(failed or {}))


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


def tie_band(logs: Floats) -> tuple[Floats, float]:
    """What each candidate's times are (logarithms, one row per round), and how far two must differ to be told apart.

    Candidates are compared in pairs within rounds, so that the rounds themselves do not matter.  The scatter of these
    differences, pooled over all pairs, is the noise; the band is so wide that at most one run-off of equals in twenty
    tears any of them apart.
    """
    from scipy.special import stdtrit

    rounds, count = logs.shape
    if count < 2 or rounds < 2:
        return np.median(logs, axis=0), 0.0
    differences = logs[:, :, None] - logs[:, None, :]
    medians = np.median(differences, axis=0)
    rest = np.abs(differences - medians)[:, *np.triu_indices(count, 1)]
    # The median of the rest shrugs off the few rounds that were disturbed; 1.48 turns it into a deviation, and the last
    # factor makes up for few rounds, in which one rest is zero because it is the median itself.
    deviation = 1.4826 * float(np.median(rest)) * rounds / (rounds - 0.8)
    # Half the freedom: that estimate of a deviation is worth less than half as many values as the usual one.
    pairs, freedom = count * (count - 1) / 2, (rounds - 1) * (count - 1) / 2
    error = 1.2533 * deviation / math.sqrt(rounds)
    return medians.mean(axis=1), math.expm1(float(stdtrit(freedom, 1.0 - 0.025 / pairs)) * error)


def group_ties(ratios: Sequence[float], band: float) -> list[list[int]]:
    """Places of candidates that are sorted fastest first: a group holds those within the band of its first member."""
    groups: list[list[int]] = []
    for at, ratio in enumerate(ratios):
        if groups and ratio <= ratios[groups[-1][0]] * (1.0 + band):
            groups[-1].append(at)
        else:
            groups.append([at])
    return groups


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
