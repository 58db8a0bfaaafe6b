"""Boards: the ranked entries of runs, with intervals, groups that cannot be told apart, and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from searchlab.lab.leaderboard.pools import RunPool, pools
from searchlab.lab.results import CellResult, Floats, Run
from searchlab.lab.statistics import (
    ALL,
    Comparison,
    ComparisonSettings,
    Estimate,
    K,
    Ranking,
    Summary,
    compare,
    counted,
    mean_scores,
    pooled,
    reach,
    recorded_scores,
)
from searchlab.lab.statistics.pooling import machine_key

NEAR = 0.95  # the fraction of the best known speed that counts as near
_ON_DEVICE = ("run", "check", "confirm")


@dataclass(frozen=True, slots=True)
class Standing:
    """One entry; costs are means per cell, `rank` is None if it cannot be ranked, and `why` gives the reason.

    Entries that share a letter of `group` cannot be told apart; the rank is one more than the number of entries that
    are better by the tests.  `near` is the fraction of searches that reached 95 % of the best known, `near_trials` the
    expected number of trials for it (None: none did).  `versus_random` is the score for recorded spaces.
    """

    rank: int | None
    entry: str
    group: str
    score: Estimate
    geometric_mean: Estimate
    mean_rank: float | None
    versus_random: Estimate | None
    near: float
    near_trials: float | None
    trials: float
    wall_s: float
    device_s: float | None
    tasks: int
    seeds: int
    cells: int
    failed: int
    why: str = ""


@dataclass(frozen=True)
class Leaderboard:
    """The entries of comparable runs, best first."""

    where: str
    recorded: bool
    runs: tuple[str, ...]
    tasks: tuple[str, ...]
    standings: tuple[Standing, ...]
    comparison: Comparison
    notes: tuple[str, ...]
    budget: int = 0  # the number of measurements behind `versus_random`

    @property
    def answer(self) -> str:
        """The board as a sentence."""
        return self.comparison.answer

    @property
    def method(self) -> tuple[str, ...]:
        """How the figures were computed."""
        more = (
            ("vs random: the auto-tuning community's score over the first "
             f"{self.budget} measurements; 0 is random search, 1 is the optimum at the first one",)
            if any(s.versus_random is not None for s in self.standings)
            else ()
        )  # fmt: skip
        return (
            *self.comparison.method,
            "rank: one more than the number of entries that are better by the tests; entries that share a letter cannot"
            " be told apart",
            *more,
        )


def boards(
    runs: Sequence[Run],
    settings: ComparisonSettings | None = None,
    tables: Mapping[str, Floats] | None = None,
    budget: int = K,
    together: bool = False,
) -> tuple[Leaderboard, ...]:
    """One board per machine (or one, `together`), and one for recorded tables.

    `tables` has the times of all rows of recorded tasks; they allow scores against random search.
    """
    return tuple(_board(pool, settings or ComparisonSettings(), tables or {}, budget) for pool in pools(runs, together))


def _board(pool: RunPool, settings: ComparisonSettings, tables: Mapping[str, Floats], budget: int) -> Leaderboard:
    cells = pooled(pool.runs)
    known = counted(cells)
    tasks = tuple(dict.fromkeys(c.task for c in known))
    covered = {e: {c.task for c in known if c.entry == e} for e in dict.fromkeys(c.entry for c in known)}
    full = [c for c in known if len(covered[c.entry]) == len(tasks)]
    comparison = compare(full, settings=settings, among=known)
    rest = compare([c for c in known if len(covered[c.entry]) < len(tasks)], settings=settings, among=known)
    limit = min([budget, *(len(c.seconds) for c in known if c.task in tables and len(c.seconds))])
    random = _versus_random(known, tables, limit, settings.seed)
    facts = _Facts(known, random, comparison.ranking, pool.recorded)
    ranked = [facts.standing(s, comparison.ranking.place(s.entry)) for s in comparison.summaries]
    ranked.sort(key=lambda s: (s.rank or 0, -s.score.value, s.mean_rank or 0.0, s.entry))
    others = [facts.standing(s, None, f"{s.tasks} of {len(tasks)} tasks") for s in rest.summaries]
    incomplete = [f"{s.entry} has {s.why} and is not ranked" for s in others]
    return Leaderboard(
        pool.where,
        pool.recorded,
        tuple(r.name for r in pool.runs),
        tasks,
        (*ranked, *others),
        comparison,
        (*_machines(pool), *incomplete, *_all_notes(cells, comparison)),
        limit,
    )


def _machines(pool: RunPool) -> tuple[str, ...]:
    several = len({machine_key(r) for r in pool.runs}) if not pool.recorded else 1
    return (f"times of {several} machines are ranked together: differences may be theirs",) if several > 1 else ()


def _all_notes(cells: Sequence[CellResult], comparison: Comparison) -> tuple[str, ...]:
    """The notes of the ranked cells, and one on unfinished cells, which the comparison has not seen."""
    open_ = len(cells) - len(counted(cells))
    more = (f"{open_} of {len(cells)} cells are not finished and do not count",) if open_ else ()
    return (*more, *comparison.notes)


def _versus_random(
    cells: Sequence[CellResult], tables: Mapping[str, Floats], budget: int, seed: int
) -> dict[str, Estimate]:
    if not tables or budget < 1:
        return {}
    return mean_scores(recorded_scores(cells, tables, budget), np.random.default_rng(seed))


class _Facts:
    """Facts about entries besides their summaries."""

    def __init__(
        self, cells: Sequence[CellResult], random: Mapping[str, Estimate], ranking: Ranking, recorded: bool
    ) -> None:
        self._cells, self._random, self._ranking, self._recorded = cells, random, ranking, recorded
        self._near = {r.entry: r for r in reach(cells, NEAR) if r.task == ALL}

    def standing(self, summary: Summary, rank: int | None, why: str = "") -> Standing:
        entry = summary.entry
        cells = [c for c in self._cells if c.entry == entry]
        wall = [float(c.elapsed[-1]) if len(c.elapsed) else 0.0 for c in cells]
        device = [sum(c.ledger.get(k, 0.0) for k in _ON_DEVICE) for c in cells]
        near = self._near[entry]
        return Standing(
            rank,
            entry,
            self._ranking.letters.get(entry, ""),
            summary.iqm,
            summary.geometric_mean,
            self._ranking.mean_ranks.get(entry),
            self._random.get(entry),
            near=near.share,
            near_trials=near.expected,
            trials=float(np.mean([len(c.seconds) for c in cells])),
            wall_s=float(np.mean(wall)),
            device_s=None if self._recorded else float(np.mean(device)),
            tasks=summary.tasks,
            seeds=summary.seeds,
            cells=summary.cells,
            failed=summary.failed,
            why=why,
        )
