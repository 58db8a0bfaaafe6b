"""The value of each part of a search: every variant of an ablation beside the full configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from searchlab.lab.report.blocks import Figure, Section
from searchlab.lab.report.drawing import Axis, Bar, EntryStyle, interval_chart
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import digits, p_value, share
from searchlab.lab.results import CellResult
from searchlab.lab.statistics import METHOD, Pair, Score, pairs, scores

FACTOR = "ablation"  # the factor that holds the name of a variant


def section(material: Material) -> Section | None:
    """The section; None if the experiment has no ablation."""
    cells = [c for c in material.ended if c.factors.get(FACTOR)]
    if len({c.factors[FACTOR] for c in cells}) < 2:
        return None
    full = cells[0].factors[FACTOR]  # experiments list the full configuration first
    found = pairs(_rows(cells), material.rng(), band=material.tie, alpha=material.alpha, control=full)
    looks = {
        c.factors[FACTOR]: replace(material.looks[c.entry], name=c.factors[FACTOR], muted=False)
        for c in reversed(cells)
    }
    bars = sorted((_bar(looks[p.b], p) for p in found if p.speedup), key=lambda b: -b.value)
    axis = Axis(f"time relative to {full} (1 = as fast, more = slower)")
    figure = Figure(
        "ablation",
        f"The loss without each part of {full}",
        f"Geometric mean over tasks and seeds of a variant's time divided by that of {full}, paired by seed, where "
        f"both found a program. Whiskers: {METHOD}. A star marks variants that are slower or faster "
        f"by Wilcoxon's test with Holm's correction at {material.alpha:g} and by more than the tie band, "
        f"{share(material.tie, 1)}.",
        lambda width: interval_chart(bars, axis, width, reference=1.0),
    )
    return Section("ablation", "Ablation", (figure,))


def _rows(cells: Sequence[CellResult]) -> list[Score]:
    """Scores per variant; all other swept factors become the context, so that like is compared with like."""
    return [
        replace(row, entry=(variant := c.factors[FACTOR]), context=c.entry.removesuffix(variant))
        for c, row in zip(cells, scores(cells), strict=True)
    ]


def _bar(look: EntryStyle, pair: Pair) -> Bar:
    """The full configuration is the pair's first, so its speed-up over the variant is the variant's slow-down."""
    assert pair.speedup is not None
    s, star = pair.speedup, " ★" if pair.verdict.ordered else ""
    low, high = (np.nan if v is None else v for v in (s.low, s.high))
    return Bar(look, s.value, low, high, f"{digits(s.value)} ×, {p_value(pair.p_holm)}{star}")
