"""Statistics of experiments: pure functions from cells and runs to rows with named columns.

cells = pooled([run])
rows = scores(cells)                                   # one row per cell: entry, task, seed, seconds, score
summaries(rows, rng)                                   # IQM and geometric mean with intervals, per entry
ranking(rows, rng)                                     # mean ranks, tests, cliques that cannot be told apart
reach(cells, 0.95)                                     # trials until 95 % of the best known
"""

from searchlab.lab.statistics.aggregate import (
    METHOD,
    Estimate,
    Resampler,
    Summary,
    estimate,
    geometric_mean,
    iqm,
    summaries,
)
from searchlab.lab.statistics.anytime import AXES, Axis, CurvePoint, areas, progress
from searchlab.lab.statistics.community_score import K, RandomSearch, mean_scores, recorded_scores
from searchlab.lab.statistics.comparison import METRICS, Comparison, ComparisonSettings, Metric, compare
from searchlab.lab.statistics.effects import a12, cliffs_delta, magnitude
from searchlab.lab.statistics.notes import ENOUGH_SEEDS, TIE_BAND, modelled_note, notes, tie_band, version_notes
from searchlab.lab.statistics.pairs import Pair, pairs
from searchlab.lab.statistics.pooling import pooled
from searchlab.lab.statistics.ranking import Ranking, ranking
from searchlab.lab.statistics.reaching import ALL, TimeToTarget, reach
from searchlab.lab.statistics.scores import BEST, ComparedBy, Score, best_known, counted, scores
from searchlab.lab.statistics.significance import Friedman, critical_difference, friedman, holm, wilcoxon
from searchlab.lab.statistics.verdicts import Verdict
from searchlab.lab.statistics.wording import shown_p

__all__ = [
    "ALL", "AXES", "BEST", "ENOUGH_SEEDS", "K", "METHOD", "METRICS", "TIE_BAND", "Axis", "ComparedBy", "Comparison",
    "ComparisonSettings", "CurvePoint", "Estimate", "Friedman", "Metric", "Pair", "RandomSearch", "Ranking",
    "Resampler", "Score", "Summary", "TimeToTarget", "Verdict", "a12", "areas", "best_known", "cliffs_delta",
    "compare", "counted", "critical_difference", "estimate", "friedman", "geometric_mean", "holm", "iqm",
    "magnitude", "mean_scores", "modelled_note", "notes", "pairs", "pooled", "progress", "ranking", "reach",
    "recorded_scores", "scores", "shown_p", "summaries", "tie_band", "version_notes", "wilcoxon",
]  # fmt: skip
