"""The noise of measurements on this machine (A/A tests of one kernel), and the stability of rankings.

Visits sample one kernel in short slices; each visit is a job, built and loaded anew.  Every protocol can be evaluated
on the same slices afterwards: a repeat is a series of slices, a trial a series of repeats, and the noise is the
difference of two trials.  A steady trial drops repeats beside a slow pulse, within the bound on samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import ceil
from typing import Literal

import numpy as np
import numpy.typing as npt

from searchlab.errors import MeasureError
from searchlab.measure.job import Job, Measurer, Outcome
from searchlab.timing.sampler import MOST, NEAR

Floats = npt.NDArray[np.float64]
Estimator = Literal["median", "min"]

REPEATS = (3, 5, 9, 15)
MIN_REPEAT_MS = (1.0, 5.0, 20.0)
GOAL = 0.02
SLICE_MS = 1.0
_PROBE_SLICES = 5
_RUN_S = 300.0  # a visit lasts far longer than a trial
_DISTURBED = 1.1  # a slice slower than a fast one by this factor was disturbed
_PARTS = 5
_FEW = 20  # with fewer pairs, a p95 is meaningless
_GOOD = 1.25  # times the lowest p95
_FAST_SHARE = 0.05  # of the pulses
_ESTIMATE: dict[Estimator, Callable[[Floats], Floats]] = {
    "median": lambda repeats: np.median(repeats, axis=1),
    "min": lambda repeats: repeats.min(axis=1),
}


@dataclass(frozen=True, slots=True)
class Visit:
    """Consecutive slices of one kernel, in seconds per run.

    `slice_s` is the duration of a slice, `overhead_s` the rest of the visit's time, `preempted` the number of slices in
    which the worker noticed another program on its core, and `pulses` are the readings of the clock probe.
    """

    times: tuple[float, ...]
    slice_s: float
    overhead_s: float = 0.0
    preempted: int = 0
    pulses: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Floor:
    """Relative differences between two measurements of one kernel: the typical one, and the 95th percentile."""

    median: float
    p95: float
    pairs: int


@dataclass(frozen=True, slots=True)
class ProtocolNoise:
    """The noise floor of one protocol in three situations, and the seconds of timing per trial.

    `turns`: repeats of the two alternate.  `sequence`: one directly follows the other.  `apart`: as separate jobs at
    different times, which is what a search compares.
    """

    repeats: int
    min_repeat_ms: float
    steady: bool
    estimator: Estimator
    timing_s: float
    turns: Floor
    sequence: Floor
    apart: Floor


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of all protocols, and the state of the machine meanwhile.

    `drift` is the spread of the typical times of the run's fifths.  `preempted` is the share of slices that met another
    program on their core; `disturbed` that of slices 10 % slower than fast ones, for any reason; `slow` that of slices
    beside a slow pulse.
    `overhead_s` is the cost of a trial besides timing: building, loading, starting a process.
    """

    protocols: tuple[ProtocolNoise, ...]
    drift: float
    preempted: float
    disturbed: float
    slow: float
    run_s: float
    slice_s: float
    overhead_s: float
    visits: int


@dataclass(frozen=True, slots=True)
class ProtocolChoice:
    """The cheapest protocol that reaches the goal (`reached`), or else the cheapest of those that come closest."""

    protocol: ProtocolNoise
    reached: bool


@dataclass(frozen=True, slots=True)
class RankingStability:
    """Repeated rankings of real candidates: the agreement of two rankings, averaged over all pairs of rounds.

    `regret` is the slowdown of the best of one round against the best over all rounds; `gap` is the distance of the
    second to the first, and `seconds` holds the medians over all rounds.
    """

    seconds: tuple[float, ...]
    tau: float
    same_best: float
    regret: float
    gap: float
    rounds: int


# --- sampling ---------------------------------------------------------------------------------------------------------


def sample(measurer: Measurer[Job], job: Job, seconds: float, least: int = 4) -> Iterator[Visit]:
    """Visits to the job's kernel until the time is up, at least `least`; a first, short one checks its results."""
    until = time.monotonic() + seconds
    slices = visit_slices(_visit(measurer, job, 0, _PROBE_SLICES).slice_s)
    number = 1
    while number <= least or time.monotonic() < until:
        yield _visit(measurer, job, number, slices)
        number += 1


def visit_slices(slice_s: float) -> int:
    """The number of slices for two trials of the longest protocol, with a margin, as slices may turn out shorter."""
    return ceil(2 * max(REPEATS) * 1.3 * _per_repeat(max(MIN_REPEAT_MS), slice_s))


def _visit(measurer: Measurer[Job], job: Job, number: int, slices: int) -> Visit:
    protocol = replace(job.protocol, repeats=slices, min_repeat_ms=SLICE_MS, steady=False, early_stop=None, beaten=None)
    protocol = replace(protocol, check=number == 0)
    limits = replace(job.limits, run_s=max(job.limits.run_s, _RUN_S))
    visit = replace(job, id=f"{job.id}:{number}", protocol=protocol, limits=limits, best_s=None)
    start = time.monotonic()
    (outcome,) = measurer.measure([visit])
    if not outcome.ok:
        raise MeasureError(f"{job.workload.label} cannot be measured: {outcome.status}: {outcome.error}")
    return to_visit(outcome, time.monotonic() - start)


def to_visit(outcome: Outcome, elapsed_s: float) -> Visit:
    """The slices of an outcome; the rest of the elapsed time is overhead."""
    number = max(1, outcome.number)
    slice_s = float(np.median(outcome.times)) * number
    overhead_s = max(0.0, elapsed_s - sum(outcome.times) * number)
    preempted = outcome.notes.get("preempted", "0").split()[0]  # "3 of 600"
    return Visit(outcome.times, slice_s, overhead_s, int(preempted), outcome.pulses)


# --- judging protocols ------------------------------------------------------------------------------------------------


def judge(visits: Sequence[Visit]) -> Noise:
    """The noise of every protocol, evaluated on the visits."""
    if len(visits) < 2:
        raise ValueError("noise takes two visits or more")
    streams = [np.asarray(v.times) for v in visits]
    pulses = np.concatenate([np.asarray(v.pulses) for v in visits])
    slowest = NEAR * float(np.quantile(pulses, _FAST_SHARE)) if len(pulses) else np.inf
    everything = np.concatenate(streams)
    return Noise(
        tuple(_protocols(visits, slowest if len(pulses) else None)),
        drift(streams),
        sum(v.preempted for v in visits) / len(everything),
        disturbed(everything),
        float(np.mean(pulses > slowest)) if len(pulses) else 0.0,
        float(np.median(everything)),
        float(np.median([v.slice_s for v in visits])),
        float(np.median([v.overhead_s for v in visits])),
        len(visits),
    )


def _protocols(visits: Sequence[Visit], slowest: float | None) -> Iterator[ProtocolNoise]:
    """All protocols; if a slowest pulse is given, the steady ones as well."""
    for limit in (None,) if slowest is None else (None, slowest):
        for ms, repeats in product(MIN_REPEAT_MS, REPEATS):
            yield from judge_protocol(visits, repeats, ms, limit)


def judge_protocol(
    visits: Sequence[Visit], repeats: int, min_repeat_ms: float, slowest: float | None = None
) -> list[ProtocolNoise]:
    """The differences of trials under one protocol, by estimator; steady trials if a slowest pulse is given."""
    # Every visit calibrates the number of slices per repeat by itself, as a trial does.
    counts = [_per_repeat(min_repeat_ms, v.slice_s) for v in visits]
    rows = [_Repeats.of(v, count, slowest) for v, count in zip(visits, counts, strict=True)]
    single, double = ([row.trials(n * repeats) for row in rows] for n in (1, 2))
    taken = [n for _, each in single for n in each]
    repeat_s = float(np.median([count * v.slice_s for v, count in zip(visits, counts, strict=True)]))
    timing_s = repeat_s * (float(np.mean(taken)) if taken else MOST * repeats)
    settings = (repeats, min_repeat_ms, slowest is not None)
    apart, together = [trials for trials, _ in single], [trials for trials, _ in double]
    return [
        ProtocolNoise(*settings, name, timing_s, *_floors(estimate, apart, together))
        for name, estimate in _ESTIMATE.items()
    ]


@dataclass(frozen=True)
class _Repeats:
    """The repeats of a visit, and the pulse of each that was too slow, else 0."""

    seconds: Floats
    slow: Floats

    @classmethod
    def of(cls, visit: Visit, per_repeat: int, slowest: float | None) -> _Repeats:
        return cls(repeats_of(np.asarray(visit.times), per_repeat), slow_repeats(visit, per_repeat, slowest))

    def trials(self, count: int) -> tuple[Floats, list[int]]:
        return trials_of(self.seconds, self.slow, count)


def _floors(
    estimate: Callable[[Floats], Floats], single: Sequence[Floats], double: Sequence[Floats]
) -> tuple[Floor, Floor, Floor]:
    """The differences in turns, in sequence and apart, from rows of repeats with one or two trials each."""
    half = [trials.shape[1] // 2 for trials in double]
    turns = [relative(estimate(p[:, 0::2]), estimate(p[:, 1::2])) for p in double]
    sequence = [relative(estimate(p[:, :n]), estimate(p[:, n:])) for p, n in zip(double, half, strict=True)]
    apart = [relative(estimate(a), estimate(b)) for a, b in zip(single, single[1:], strict=False)]
    return floor(np.concatenate(turns)), floor(np.concatenate(sequence)), floor(np.concatenate(apart))


def slow_repeats(visit: Visit, per_repeat: int, slowest: float | None) -> Floats:
    """The slower pulse of each repeat if it exceeds `slowest`, else 0; all 0 without a limit."""
    if slowest is None:
        return np.zeros(len(visit.times) // per_repeat)
    pulses = cut(np.asarray(visit.pulses), per_repeat)
    ends = np.maximum(pulses[:, 0], pulses[:, -1])  # a sampler takes no pulse within a repeat
    return np.where(ends > slowest, ends, 0.0)


def trials_of(row: Floats, slow: Floats, count: int) -> tuple[Floats, list[int]]:
    """Consecutive trials of `count` repeats as a sampler would take them, and the number of repeats each consumed."""
    if not slow.any():
        whole = cut(row, count)
        return whole, [count] * len(whole)
    trials, taken, begin = [], [], 0
    while begin < len(row):
        clean = np.flatnonzero(slow[begin : begin + MOST * count] == 0.0)
        end = begin + (int(clean[count - 1]) + 1 if len(clean) >= count else MOST * count)
        if end > len(row):
            break
        kept = np.sort(np.argsort(slow[begin:end], kind="stable")[:count])
        trials.append(row[begin:end][kept])
        taken.append(end - begin)
        begin = end
    return np.array(trials).reshape(len(trials), count), taken


def _per_repeat(min_repeat_ms: float, slice_s: float) -> int:
    # Slices last slightly longer than requested, so a nominal 5 ms is 5 of them, not 4.9 rounded up.
    return max(1, round(min_repeat_ms * 1e-3 / slice_s))


def repeats_of(stream: Floats, per_repeat: int) -> Floats:
    """Consecutive slices joined into repeats: the time of a repeat is the mean of its slices."""
    return np.asarray(cut(stream, per_repeat).mean(axis=1))


def cut(values: Floats, length: int) -> Floats:
    """The values in rows of that length; an incomplete last row is dropped."""
    rows = len(values) // length
    return values[: rows * length].reshape(rows, length)


def relative(a: Floats, b: Floats) -> Floats:
    """The differences of pairs of values, relative to their mean; the longer list is truncated."""
    count = min(len(a), len(b))
    a, b = a[:count], b[:count]
    return np.asarray(2.0 * np.abs(a - b) / (a + b))


def floor(differences: Floats) -> Floor:
    """The typical difference and the 95th percentile; infinite without pairs, so that missing data never looks good."""
    if not len(differences):
        return Floor(float("inf"), float("inf"), 0)
    median, p95 = np.quantile(differences, [0.5, 0.95])
    return Floor(float(median), float(p95), len(differences))


def drift(streams: Sequence[Floats]) -> float:
    """The spread of the typical times of the run's parts, relative to the fastest part."""
    medians = np.array([float(np.median(stream)) for stream in streams])
    parts = [float(np.median(part)) for part in np.array_split(medians, min(_PARTS, len(medians)))]
    return max(parts) / min(parts) - 1.0


def disturbed(times: Floats) -> float:
    """The share of slices that took clearly longer than fast ones, which the fastest decile defines."""
    return float(np.mean(times > _DISTURBED * np.quantile(times, 0.1)))


def choose(noise: Noise, goal: float = GOAL, estimator: Estimator = "median") -> ProtocolChoice:
    """The cheapest protocol whose p95 between trials apart is within the goal, or near the lowest p95."""
    known = [p for p in noise.protocols if p.estimator == estimator]
    known = [p for p in known if p.apart.pairs >= _FEW] or known
    lowest = min(p.apart.p95 for p in known)
    reached = lowest <= goal
    good = [p for p in known if p.apart.p95 <= (goal if reached else _GOOD * lowest)]
    return ProtocolChoice(min(good, key=lambda p: (p.timing_s, p.apart.p95)), reached)


# --- rankings ---------------------------------------------------------------------------------------------------------


def rank_again(measurer: Measurer[Job], jobs: Sequence[Job], seconds: float, least: int = 4) -> Floats:
    """The figures of candidates, one row per round, until the time is up; each round measures them in sequence."""
    until = time.monotonic() + seconds
    rows: list[list[float]] = []
    while len(rows) < least or time.monotonic() < until:
        turn = [replace(j, id=f"{j.id}:{len(rows)}", protocol=replace(j.protocol, check=not rows)) for j in jobs]
        found = {outcome.id: outcome for outcome in measurer.measure(turn)}
        if bad := next((outcome for outcome in found.values() if not outcome.ok), None):
            raise MeasureError(f"candidate '{bad.id}' cannot be measured: {bad.status}: {bad.error}")
        rows.append([found[job.id].seconds for job in turn])
    return np.array(rows)


def judge_ranking(figures: Floats) -> RankingStability:
    """The agreement of the rounds (rows) on the order of the candidates (columns)."""
    if len(figures) < 2:
        raise ValueError("rankings are compared: that takes two rounds or more")
    medians = np.median(figures, axis=0)
    best = figures.argmin(axis=1)
    pairs = list(combinations(range(len(figures)), 2))
    tau = float(np.mean([kendall(figures[a], figures[b]) for a, b in pairs]))
    same = float(np.mean([best[a] == best[b] for a, b in pairs]))
    regret = float(np.mean(medians[best]) / medians.min() - 1.0)
    first, second = np.sort(medians)[:2]
    return RankingStability(tuple(medians.tolist()), tau, same, regret, float(second / first - 1.0), len(figures))


def kendall(a: Floats, b: Floats) -> float:
    """Kendall's tau: 1 for the same order, -1 for the opposite one; ties count 0."""
    first, second = np.triu_indices(len(a), 1)
    return float(np.mean(np.sign(a[first] - a[second]) * np.sign(b[first] - b[second])))
