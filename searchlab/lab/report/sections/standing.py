"""The standings: scores with intervals, as a figure and as the leaderboard."""

from __future__ import annotations

import numpy as np

from searchlab.errors import ResultError
from searchlab.lab.config.selectors import matches
from searchlab.lab.leaderboard import Standing
from searchlab.lab.leaderboard.board import NEAR
from searchlab.lab.report.blocks import Column, Figure, Section, TableBlock, TableCell
from searchlab.lab.report.drawing import Axis, Bar, interval_chart
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import cost, digits, seconds, share
from searchlab.lab.statistics import METHOD, Estimate, scores, summaries


def section(material: Material) -> Section | None:
    """The leaderboard; None while no cell has ended."""
    found = material.board.standings
    if not found:
        return None
    bars = [Bar(material.looks[s.entry], s.score.value, *_ends(s.score), note=share(s.score.value, 1)) for s in found]
    axis = Axis("best known time / time found (higher is better)", percent=True)
    figure = Figure(
        "scores",
        "Scores",
        "Interquartile mean over tasks and seeds of the best known time divided by the time of the program that a "
        f"search found; 100 % is the best known. Whiskers: {METHOD}.",
        lambda width: interval_chart(bars, axis, width),
    )
    return Section("leaderboard", "Leaderboard", (figure, leaderboard(material), by_task(material)))


def leaderboard(material: Material) -> TableBlock:
    """One row per entry with all decisive figures."""
    baselines = _baselines(material)
    columns = (
        Column("#", True),
        Column("entry"),
        Column("score", True, "interquartile mean of best known time / time found, with its 95 % interval"),
        Column("geo. mean", True, "geometric mean of the same scores; 0 if a search found nothing"),
        Column("alike", False, "entries that share a letter cannot be told apart"),
        Column("near best", True, f"fraction of searches that reached {share(NEAR)} of the best known speed"),
        Column(
            "trials to it", True,
            "expected number of trials to reach it: all trials spent / number of searches that reached it",
        ),
        *(Column(f"× {n}", True, f"speed-up over {n}, geometric mean over tasks and seeds") for n in baselines),
        *_versus_random(material),
        Column("search time", True, f"mean per task and seed{', simulated' if material.recorded else ''}"),
    )  # fmt: skip
    rows = tuple(
        _row(material, s, [found.get(s.entry, np.nan) for found in baselines.values()])
        for s in material.board.standings
    )
    return TableBlock("leaderboard-table", "Leaderboard, best first", columns, rows)


def _row(material: Material, s: Standing, speedups: list[float]) -> tuple[TableCell, ...]:
    trials = np.nan if s.near_trials is None else s.near_trials
    return (
        TableCell(str(s.rank or "–"), s.rank or np.inf, hint=s.why),
        TableCell(s.entry, look=material.looks[s.entry]),
        TableCell(interval(s.score), s.score.value),
        TableCell(share(s.geometric_mean.value, 1), s.geometric_mean.value),
        TableCell(s.group),
        TableCell(share(s.near), s.near),
        TableCell(f"{trials:.0f}" if np.isfinite(trials) else "–", trials),
        *(TableCell(digits(v), v) for v in speedups),
        *([] if s.versus_random is None else [TableCell(digits(s.versus_random.value), s.versus_random.value)]),
        TableCell(seconds(s.wall_s), s.wall_s),
    )


def interval(estimate: Estimate) -> str:
    """A score with its interval as text."""
    if estimate.low is None or estimate.high is None:
        return share(estimate.value, 1)
    return f"{share(estimate.value, 1)} ({100 * estimate.low:.1f}–{100 * estimate.high:.1f})"


def _ends(estimate: Estimate) -> tuple[float, float]:
    none = float("nan")
    return (none if estimate.low is None else estimate.low), (none if estimate.high is None else estimate.high)


def _baselines(material: Material) -> dict[str, dict[str, float]]:
    """Speed-ups over the baselines measured with each task and over the chosen one, keyed by name and entry."""
    found = {}
    for name in dict.fromkeys([*(b for c in material.ended for b in c.baselines), *_chosen(material)]):
        try:
            rows = scores(material.ended, to=name)
        except ResultError:  # a task lacks it
            continue
        found[name] = {s.entry: s.geometric_mean.value for s in summaries(rows, material.rng(), draws=2)}
    return found


def _chosen(material: Material) -> list[str]:
    """The entry that the experiment calls its baseline, if it is one."""
    selector = material.settings.baseline
    meant = dict.fromkeys(c.entry for c in material.ended if selector and matches(selector, c.entry, c.factors))
    return list(meant) if len(meant) == 1 else []


def _versus_random(material: Material) -> list[Column]:
    known = any(s.versus_random is not None for s in material.board.standings)
    hint = f"over the first {material.board.budget} trials: 0 is random search, 1 is the optimum at the first one"
    return [Column("against random", True, hint)] if known else []


def by_task(material: Material) -> TableBlock:
    """Median times, tasks as rows and entries as columns; the fastest of a task is highlighted."""
    entries = [s.entry for s in material.board.standings]
    modelled = any(c.cell.modelled for c in material.ended)
    rows = []
    for task in dict.fromkeys(c.task for c in material.ended):
        times = {e: [r.seconds for r in material.scores if (r.entry, r.task) == (e, task)] for e in entries}
        medians = {e: float(np.median(t)) if t else np.inf for e, t in times.items()}
        best = min(medians.values())
        tones = {e: "good" if np.isfinite(m) and m == best else "" for e, m in medians.items()}
        rows.append((TableCell(task), *(TableCell(cost(m, modelled), m, tone=tones[e]) for e, m in medians.items())))
    columns = (Column("task"), *(Column(e, True) for e in entries))
    what = "Modelled cost" if modelled else "Time"
    return TableBlock("times-table", f"{what} found on each task, median over seeds", columns, tuple(rows))
