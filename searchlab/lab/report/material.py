"""The input of a report: the cells of one or more runs, their statistics, and one style per entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from searchlab.errors import ResultError
from searchlab.lab.config.experiment import ReportSettings
from searchlab.lab.leaderboard import Leaderboard, Standing, boards, pools, recorded_tables
from searchlab.lab.report.drawing import EntryStyle
from searchlab.lab.report.drawing.theme import COLOURS
from searchlab.lab.results import CellResult, Run
from searchlab.lab.statistics import ComparisonSettings, Ranking, Score, best_known, counted, pooled, scores

SEED = 0  # of the bootstrap: the same runs give the same page


@dataclass(frozen=True, eq=False)
class Material:
    """Runs as one set of cells, with derived statistics that are computed on demand."""

    runs: tuple[Run, ...]
    cells: tuple[CellResult, ...]

    @staticmethod
    def of(runs: Sequence[Run]) -> Material:
        """The material of runs whose times can be compared."""
        cells = pooled(runs)
        if not cells:
            raise ResultError("there is nothing to report: the runs have no cells")
        apart = pools(runs)
        if len(apart) > 1:
            places = "; ".join(f"{', '.join(r.name for r in p.runs)} on {p.where}" for p in apart)
            raise ResultError(
                f"times of different machines or tables cannot be compared ({places}): write one report for each"
            )
        return Material(tuple(runs), cells)

    # --- what there is ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The names of the runs."""
        return ", ".join(dict.fromkeys(run.name for run in self.runs))

    @property
    def title(self) -> str:
        """What the experiment calls its report, or its name."""
        return self.settings.title or self.name

    @property
    def recorded(self) -> bool:
        """Whether all measurements come from tables."""
        return all(run.recorded for run in self.runs)

    @property
    def settings(self) -> ReportSettings:
        """What the first experiment says about its report."""
        return self.runs[0].report

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """The combinations that are compared, in the order of the runs."""
        return tuple(dict.fromkeys(c.entry for c in self.cells))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in the order of the runs."""
        return tuple(dict.fromkeys(c.task for c in self.cells))

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of all cells."""
        return tuple(sorted({c.seed for c in self.cells}))

    @cached_property
    def ended(self) -> tuple[CellResult, ...]:
        """The cells that ended, successfully or not."""
        return counted(self.cells)

    @cached_property
    def working(self) -> tuple[CellResult, ...]:
        """The cells that found a working program."""
        return tuple(c for c in self.ended if np.isfinite(c.final_s))

    def of_entry(self, entry: str) -> tuple[CellResult, ...]:
        """The cells of an entry."""
        return tuple(c for c in self.cells if c.entry == entry)

    # --- what follows -------------------------------------------------------------------------------------------------

    @property
    def alpha(self) -> float:
        """The significance level."""
        return ComparisonSettings.of(self.runs).alpha

    @property
    def tie(self) -> float:
        """The tie band: relative differences up to it are ties."""
        return ComparisonSettings.of(self.runs).band

    @property
    def target(self) -> float:
        """The share of the best known speed that a search should reach."""
        return self.settings.target

    @cached_property
    def scores(self) -> tuple[Score, ...]:
        """The score of every cell that came to its end."""
        return scores(self.ended)

    @cached_property
    def best_known(self) -> dict[str, float]:
        """The best time of each task that any cell found."""
        return best_known(self.ended)

    @cached_property
    def board(self) -> Leaderboard:
        """The leaderboard, and the comparison behind it."""
        tables, _ = recorded_tables(self.runs)
        (board,) = boards(self.runs, ComparisonSettings.of(self.runs, seed=SEED), tables)
        return board

    @property
    def ranking(self) -> Ranking:
        """The entries by rank, with the tests between them."""
        return self.board.comparison.ranking

    @cached_property
    def ranked(self) -> tuple[Standing, ...]:
        """The entries that have results on all tasks, best first."""
        return tuple(s for s in self.board.standings if s.rank is not None)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All entries, best first; those without a rank at the end."""
        known = tuple(s.entry for s in self.board.standings)
        return known + tuple(e for e in self.entries if e not in known)

    @cached_property
    def looks(self) -> dict[str, EntryStyle]:
        """One colour per entry; of many entries only the leading ones stand out."""
        leading = self.order[:COLOURS]
        return {e: EntryStyle(e, n, e not in leading) for n, e in enumerate(self.entries)}

    def rng(self) -> np.random.Generator:
        """A freshly seeded random generator."""
        return np.random.default_rng(SEED)
