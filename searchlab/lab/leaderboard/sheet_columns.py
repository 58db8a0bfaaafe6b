"""Boards and comparisons as sheets: their columns and number formats."""

from __future__ import annotations

from typing import Any

from searchlab.lab.leaderboard.board import NEAR, Leaderboard, Standing
from searchlab.lab.leaderboard.sheet import Sheet, flat
from searchlab.lab.statistics import (
    BEST,
    Comparison,
    ComparisonSettings,
    Estimate,
    Pair,
    Summary,
    Verdict,
    shown_p,
    wording,
)

NONE = "-"


def board_sheets(board: Leaderboard) -> tuple[Sheet, ...]:
    """The standings of a board, then the costs of its entries."""
    return _standings(board), _costs(board)


def _standings(board: Leaderboard) -> Sheet:
    random = any(s.versus_random is not None for s in board.standings)

    def line(s: Standing) -> tuple[str, ...]:
        return (
            NONE if s.rank is None else str(s.rank),
            s.entry,
            s.group or NONE,
            with_interval(s.score),
            with_interval(s.geometric_mean),
            NONE if s.mean_rank is None else f"{s.mean_rank:.2f}",
            *([NONE if s.versus_random is None else with_interval(s.versus_random, "+.2f")] if random else []),
            str(s.failed),
        )

    name = score_name(board.comparison.settings)
    return Sheet(
        f"Leaderboard: {board.where}",
        ("rank", "entry", "group", name, "geo. mean", "mean rank", *(["vs random"] if random else []), "failed"),
        tuple(map(line, board.standings)),
        tuple(flat(s) | {"where": board.where} for s in board.standings),
        frozenset({"entry", "group"}),
        board.answer,
        board.notes,
        board.method,
        _about(board.comparison)
        | {"where": board.where, "runs": board.runs, "tasks": board.tasks}
        | {"pairs": [flat(p) for p in board.comparison.ranking.pairs]},
    )


def _costs(board: Leaderboard) -> Sheet:
    device = any(s.device_s is not None for s in board.standings)

    def line(s: Standing) -> tuple[str, ...]:
        return (
            s.entry,
            f"{s.tasks} x {s.seeds}",
            f"{s.trials:.0f}",
            seconds(s.wall_s),
            *([NONE if s.device_s is None else seconds(s.device_s)] if device else []),
            f"{100 * s.near:.0f} %",
            NONE if s.near_trials is None else f"{s.near_trials:.0f}",
        )

    near = f"{100 * NEAR:.0f} % of best"
    cost = ("trials", "wall", *(["device"] if device else []))
    return Sheet(
        "What it cost",
        ("entry", "tasks x seeds", *cost, f"reached {near}", "trials to it"),
        tuple(map(line, board.standings)),
        left=frozenset({"entry"}),
        method=(
            "means per search"
            + (
                "; wall is simulated time"
                if board.recorded
                else "; device: running, checking and confirming candidates"
            )
            + "; trials to it: trials of all searches / number of searches that reached it",
        ),
    )


def comparison_sheets(comparison: Comparison, where: str) -> tuple[Sheet, ...]:
    """The levels, then all pairs of them."""
    levels = _levels(comparison, where)
    return (levels, _pairs(comparison)) if comparison.ranking.pairs else (levels,)


def _levels(comparison: Comparison, where: str) -> Sheet:
    ranks, letters = comparison.ranking.mean_ranks, comparison.ranking.letters
    grouped = comparison.settings.control is None  # with a control, most pairs are not tested
    ordered = sorted(comparison.summaries, key=lambda s: (ranks[s.entry], -s.iqm.value))

    name = score_name(comparison.settings)

    def line(s: Summary) -> tuple[str, ...]:
        figures = (with_interval(s.iqm), with_interval(s.geometric_mean), f"{ranks[s.entry]:.2f}")
        return s.entry, *([letters[s.entry]] if grouped else []), *figures, f"{s.cells}", f"{s.failed}"

    return Sheet(
        f"By {comparison.by}: {where}",
        (comparison.by, *(["group"] if grouped else []), name, "geo. mean", "mean rank", "cells", "failed"),
        tuple(line(s) for s in ordered),
        tuple(flat(s) | {"group": letters[s.entry] if grouped else None, "mean_rank": ranks[s.entry]} for s in ordered),
        frozenset({comparison.by, "group"}),
        comparison.answer,
        comparison.notes,
        comparison.method,
        _about(comparison),
    )


def _pairs(comparison: Comparison) -> Sheet:
    final = comparison.settings.metric == "final"
    figures = ("speed-up" if final else "ratio", f"P(A {wording.shown(Verdict.FASTER, final)})", "win/tie/loss")
    what = "speed-up: time of B over that of A" if final else "ratio: area of A over that of B"
    return Sheet(
        f"Pairs by {comparison.by}" if comparison.settings.control is None else "Against the control",
        ("A", "B", "A is", *figures, "Cliff's delta", "p (Holm)"),
        tuple(_pair(p, final) for p in comparison.ranking.pairs),
        tuple(flat(p) for p in comparison.ranking.pairs),
        frozenset({"A", "B", "A is", "Cliff's delta"}),
        method=(f"{what}, geometric mean where both worked; P: on a task, over all pairs of seeds, ties count half",),
    )


def _pair(p: Pair, final: bool) -> tuple[str, ...]:
    return (
        p.a,
        p.b,
        wording.cell(p, final),
        NONE if p.speedup is None else with_interval(p.speedup),
        with_interval(p.improvement, ".2f"),
        f"{p.wins}/{p.ties}/{p.losses}",
        f"{p.delta:+.2f} {p.magnitude}",
        shown_p(p.p_holm).removeprefix("= "),
    )


def _about(comparison: Comparison) -> dict[str, Any]:
    r = comparison.ranking
    return {
        "by": comparison.by,
        "settings": comparison.settings,
        "blocks": r.blocks,
        "friedman": r.friedman,
        "critical_difference": r.critical_difference,
        "mean_ranks": r.mean_ranks,
        "not_told_apart": r.cliques,
        "not_told_apart_by_nemenyi": r.nemenyi_cliques,
    }


# --- numbers ----------------------------------------------------------------------------------------------------------


def score_name(settings: ComparisonSettings) -> str:
    """The title of the score column."""
    if settings.metric != "final":
        return f"area ({settings.metric})"
    return "score" if settings.to == BEST else f"x {settings.to}"


def with_interval(e: Estimate, form: str = ".3f") -> str:
    """0.943 [0.931, 0.955]; without the bracket if there is no interval."""
    if e.low is None or e.high is None:
        return f"{e.value:{form}}"
    return f"{e.value:{form}} [{e.low:{form}}, {e.high:{form}}]"


def seconds(value: float) -> str:
    """A cost: 41 s, 12 min, 3.4 h."""
    for limit, scale, unit in ((100.0, 1.0, "s"), (6000.0, 60.0, "min")):
        if value < limit:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 3600:.3g} h"
