"""Two entries against each other, on the tasks and seeds that both have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from searchlab.lab.results import Floats
from searchlab.lab.statistics.aggregate import Estimate, Resampler, by_stratum, estimate, geometric_mean, interval
from searchlab.lab.statistics.effects import cliffs_delta, compared, magnitude, wins
from searchlab.lab.statistics.scores import Score, Stratum
from searchlab.lab.statistics.significance import holm, signed_ranks, wilcoxon
from searchlab.lab.statistics.verdicts import Verdict, judged

Both = dict[Stratum, tuple[Floats, Floats]]  # the times of two entries, keyed by stratum and aligned by seed


@dataclass(frozen=True, slots=True)
class Pair:
    """The comparison of `a` with `b`.

    `speedup` is the geometric mean of b's time over a's where both worked (above 1: a is faster; None: nowhere).
    `improvement` is the probability that a is faster on a task with any seed; `delta` Cliff's delta, mean over tasks;
    `rank_biserial` the rank-biserial correlation in favour of a, from -1 to 1.  `failed_a` and `failed_b` count the
    tasks and seeds on which each found no working program.  `why` is the reason why a significant difference is not
    called one.
    """

    a: str
    b: str
    blocks: int
    wins: int
    ties: int
    losses: int
    speedup: Estimate | None
    improvement: Estimate
    delta: float
    magnitude: str
    p: float
    p_holm: float
    rank_biserial: float = 0.0
    failed_a: int = 0
    failed_b: int = 0
    verdict: Verdict = Verdict.UNKNOWN  # on `a`
    why: str = ""

    @property
    def turned(self) -> Pair:
        """The same comparison with b first."""
        s, chance = self.speedup, self.improvement
        low, high = (None if end is None else 1 - end for end in (chance.high, chance.low))
        return replace(
            self,
            a=self.b,
            b=self.a,
            wins=self.losses,
            losses=self.wins,
            speedup=s and Estimate(1 / s.value, s.high and 1 / s.high, s.low and 1 / s.low),
            improvement=Estimate(1 - chance.value, low, high),
            delta=-self.delta,
            rank_biserial=-self.rank_biserial,
            failed_a=self.failed_b,
            failed_b=self.failed_a,
            verdict=self.verdict.turned,
        )


def pairs(
    rows: Sequence[Score],
    rng: np.random.Generator,
    *,
    band: float = 0.02,
    alpha: float = 0.05,
    unit: str = "seed",
    control: str | None = None,
) -> tuple[Pair, ...]:
    """All pairs of entries, or the control with every other one, with p-values adjusted for their number (Holm).

    `unit` is the block of the test: a "seed" of a task (claims are about these tasks), or a "task" with the median over
    its seeds (claims are about tasks like these).
    """
    entries = list(dict.fromkeys(r.entry for r in rows))
    resampler = Resampler.of(rows, rng)
    named = combinations(entries, 2) if control is None else ((control, e) for e in entries if e != control)
    by_entry = {e: [r for r in rows if r.entry == e] for e in entries}
    found = [_pair(a, b, shared(by_entry[a], by_entry[b]), resampler, band, unit) for a, b in named]
    adjusted = holm(np.array([p.p for p in found])).tolist()
    return tuple(_judged(replace(p, p_holm=q), alpha, band) for p, q in zip(found, adjusted, strict=True))


def shared(a: Sequence[Score], b: Sequence[Score]) -> Both:
    """The times on tasks and seeds that both have."""
    ours, theirs = by_stratum(a), by_stratum(b)
    found: Both = {}
    for stratum, rows in ours.items():
        seeds = [s for s in rows if s in theirs.get(stratum, {})]
        if seeds:
            times = [[x[stratum][s].seconds for s in seeds] for x in (ours, theirs)]
            found[stratum] = (np.array(times[0]), np.array(times[1]))
    return found


def _pair(a: str, b: str, both: Both, resampler: Resampler, band: float, unit: str) -> Pair:
    if not both:
        return Pair(a, b, 0, 0, 0, 0, None, Estimate(0.5), 0.0, magnitude(0.0), 1.0, 1.0)
    signs = np.concatenate([compared(x, y, band) for x, y in both.values()])
    delta = float(np.mean([cliffs_delta(x, y) for x, y in both.values()]))
    differences = log_ratios(both, unit)
    return Pair(
        a,
        b,
        len(differences),
        wins=int((signs < 0).sum()),
        ties=int((signs == 0).sum()),
        losses=int((signs > 0).sum()),
        speedup=_speedup(both, resampler),
        improvement=improvement(both, resampler, band),
        delta=delta,
        magnitude=magnitude(delta),
        p=(p := wilcoxon(differences)),
        p_holm=p,
        rank_biserial=rank_biserial(differences),
        failed_a=sum(int(np.isinf(x).sum()) for x, _ in both.values()),
        failed_b=sum(int(np.isinf(y).sum()) for _, y in both.values()),
    )


def _judged(pair: Pair, alpha: float, band: float) -> Pair:
    verdict, why = judged(pair, alpha, band)
    return replace(pair, verdict=verdict, why=why)


def rank_biserial(differences: Floats) -> float:
    """The fraction of ranks in favour of the first minus that against it, from differences of times."""
    up, down, _ = signed_ranks(differences)
    return (down - up) / (down + up) if down + up else 0.0


def log_ratios(both: Both, unit: str) -> Floats:
    """log(a / b) of every block; infinite if one failed, 0 if both did."""
    times = list(both.values())
    if unit == "task":
        times = [(np.median(x, keepdims=True), np.median(y, keepdims=True)) for x, y in times]
    a, b = (np.concatenate(x) for x in zip(*times, strict=True))
    with np.errstate(invalid="ignore"):
        found: Floats = np.where(a == b, 0.0, np.log(a) - np.log(b))
    return found


def _speedup(both: Both, resampler: Resampler) -> Estimate | None:
    worked = {s: (x, y, np.isfinite(x) & np.isfinite(y)) for s, (x, y) in both.items()}
    ratios = {s: (y[ok] / x[ok]) for s, (x, y, ok) in worked.items() if ok.any()}
    return estimate(ratios, geometric_mean, resampler) if ratios else None


def improvement(both: Both, resampler: Resampler, band: float) -> Estimate:
    """The probability that a is faster than b, mean over tasks; seeds are resampled jointly."""
    chances = {s: wins(x, y, band) for s, (x, y) in both.items()}
    value = float(np.mean([c.mean() for c in chances.values()]))
    if min(len(c) for c in chances.values()) < 2:
        return Estimate(value)
    drawn = np.zeros(1)
    for stratum, c in chances.items():
        counts = resampler.counts(stratum, len(c))
        drawn = drawn + (counts @ c * counts).sum(axis=1) / len(c) ** 2 / len(chances)
    return interval(value, drawn)
