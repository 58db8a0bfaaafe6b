"""Entries against each other: performance profiles, ranks with critical differences, pairwise wins."""

from __future__ import annotations

import numpy as np

from searchlab.lab.report.blocks import Column, Figure, Section, TableBlock, TableCell
from searchlab.lab.report.drawing import Axis, Series, line_chart, rank_diagram, share_matrix
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import digits, p_value, share
from searchlab.lab.results import Floats
from searchlab.lab.statistics import Verdict, wording

_MOST_PAIRS = 66  # rows; of more entries only pairs with the first are listed


def section(material: Material) -> Section | None:
    """The section; None with fewer than two entries."""
    if len(material.ranked) < 2:
        return None
    return Section(
        "comparison", "Comparison", (_profile(material), _ranks(material), _matrix(material), _pairs(material))
    )


def _profile(material: Material) -> Figure:
    ratios = {
        e: np.array([1 / r.score if r.score > 0 else np.inf for r in material.scores if r.entry == e])
        for e in material.entries
    }
    known = np.concatenate([v[np.isfinite(v)] for v in ratios.values()])
    most = min(max(1.05, float(known.max())), max(4.0, float(np.quantile(known, 0.95)))) if len(known) else 2.0
    grid = np.geomspace(1.0, most, 160)
    series = [
        Series(material.looks[e], grid, (np.sort(v)[:, None] <= grid * (1 + 1e-12)).mean(axis=0))
        for e in material.entries
        if len(v := ratios[e])
    ]
    x, y = (
        Axis("slow-down against the best known, at most", log=True),
        Axis("fraction of searches", low=0.0, high=1.0, percent=True),
    )
    return Figure(
        "profile",
        "Performance profile",
        "For every factor, the fraction of searches that found a program slower by at most this factor than "
        "the best known. A line further up and left is better.",
        lambda width: line_chart(series, x, y, width, step=True),
    )


def _ranks(material: Material) -> Figure:
    r = material.ranking
    ranked = [(material.looks[e], r.mean_ranks[e]) for e in r.entries]
    overall = f"Friedman: {p_value(r.friedman.p_f)}. " if r.friedman is not None else ""
    distance = (
        "" if r.critical_difference is None else " The critical difference is that of Nemenyi's test, for orientation."
    )
    return Figure(
        "critical-difference",
        "Critical-difference diagram",
        f"Mean ranks over {r.blocks} blocks of task and seed that all entries have; 1 is the fastest. {overall}"
        f"Of dots on one bar, none is better by Wilcoxon's test with Holm's correction ({r.alpha:g}) and by more than "
        f"the tie band ({share(r.band, 1)}).{distance}",
        lambda width: rank_diagram(ranked, r.cliques, width, r.critical_difference),
    )


def _matrix(material: Material) -> Figure:
    order = [s.entry for s in material.ranked]
    chances: Floats = np.full((len(order), len(order)), np.nan)
    for p in material.ranking.pairs:
        a, b = order.index(p.a), order.index(p.b)
        chances[a, b], chances[b, a] = p.improvement.value, 1 - p.improvement.value
    looks = [material.looks[e] for e in order]
    return Figure(
        "win-matrix",
        "Probability of winning",
        f"Probability in per cent that the entry of the row finds a faster program than that of the column, on a task "
        f"of the experiment with any seed; ties (within {share(material.tie)}) count half.",
        lambda width: share_matrix(looks, chances, width, "faster", "than the entry with this number"),
    )


def _pairs(material: Material) -> TableBlock:
    order = {s.entry: n for n, s in enumerate(material.ranked)}
    turned = (p if order[p.a] < order[p.b] else p.turned for p in material.ranking.pairs)
    found = sorted(turned, key=lambda p: (order[p.a], order[p.b]))
    note = ""
    if len(found) > _MOST_PAIRS:
        found = [p for p in found if p.a == material.ranked[0].entry]
        note = "Only pairs with the first entry; the data section has all pairs."
    columns = (
        Column("entry"),
        Column("against"),
        Column("speed-up", True, "geometric mean of the other's time over the entry's, with its 95 % interval"),
        Column("wins", True),
        Column("ties", True),
        Column("losses", True),
        Column("Cliff's δ", True, "effect size from -1 (always slower) to 1 (always faster), mean over tasks"),
        Column("p (Holm)", True, "Wilcoxon's signed-rank test, corrected for the number of pairs"),
        Column("verdict"),
    )
    rows = []
    for p in found:
        s = p.speedup
        ends = f" ({digits(s.low)}–{digits(s.high)})" if s and s.low is not None and s.high is not None else ""
        tone = {Verdict.FASTER: "good", Verdict.SLOWER: "bad"}.get(p.verdict, "soft")
        rows.append(
            (
                TableCell(p.a, look=material.looks[p.a]),
                TableCell(p.b, look=material.looks[p.b]),
                TableCell(digits(s.value) + ends if s else "–", s.value if s else np.nan),
                *(TableCell(str(n), n) for n in (p.wins, p.ties, p.losses)),
                TableCell(digits(p.delta, 2), p.delta, hint=p.magnitude),
                TableCell(p_value(p.p_holm).removeprefix("p ").removeprefix("= "), p.p_holm),
                TableCell(wording.cell(p), tone=tone),
            )
        )
    return TableBlock("pairs-table", "Every pair of entries", columns, tuple(rows), note)
