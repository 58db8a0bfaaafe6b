"""Where the time went: the ledger of every entry."""

from __future__ import annotations

import numpy as np

from searchlab.lab.report.blocks import Column, Figure, Section, TableBlock, TableCell
from searchlab.lab.report.drawing import Axis, stacked_chart
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import digits, seconds
from searchlab.lab.results import CellResult

# In groups that get tints of one colour: deciding, measuring, the rest.
PHASES = ("propose", "predict", "fit", "programs", "build", "check", "run", "confirm", "queue", "record", "other")


def section(material: Material) -> Section | None:
    """Mean seconds per cell by phase; None if no cell kept a ledger."""
    entries = [e for e in material.order if any(c.ledger for c in material.of_entry(e))]
    if not entries:
        return None
    means = {e: _means([c for c in material.of_entry(e) if c.ledger]) for e in entries}
    phases = list(PHASES) + [p for p in dict.fromkeys(k for m in means.values() for k in m) if p not in PHASES]
    longest = max(sum(m.values()) for m in means.values())
    scale, name = (60.0, "min") if longest >= 300 else (1.0, "s")
    bars = [(e, {p: v / scale for p, v in m.items()}, seconds(sum(m.values()))) for e, m in means.items()]
    figure = Figure(
        "ledger",
        "The time of a search, by phase",
        "Wall time of a cell by phase, mean over tasks and seeds; the phases add up to the whole. Deciding (propose, "
        "predict, fit, programs) in one colour, measuring (build, check, run, confirm) in another.",
        lambda width: stacked_chart(bars, phases, Axis(f"{name} per cell", low=0.0), width),
    )
    return Section("time", "Where the time went", (figure, _table(material, means, phases)))


def _means(cells: list[CellResult]) -> dict[str, float]:
    names = dict.fromkeys(name for c in cells for name in c.ledger)
    return {n: float(np.mean([c.ledger.get(n, 0.0) for c in cells])) for n in names}


def _table(material: Material, means: dict[str, dict[str, float]], phases: list[str]) -> TableBlock:
    used = [p for p in phases if any(m.get(p, 0.0) > 0 for m in means.values())]
    columns = (Column("entry"), Column("trials", True), Column("total, s", True), *(Column(p, True) for p in used))
    rows = []
    for entry, m in means.items():
        trials = float(np.mean([len(c.seconds) for c in material.of_entry(entry)]))
        cells = [TableCell(_short(m.get(p, 0.0)), m.get(p, 0.0)) for p in used]
        total = sum(m.values())
        rows.append(
            (
                TableCell(entry, look=material.looks[entry]),
                TableCell(f"{trials:.0f}", trials),
                TableCell(_short(total), total),
                *cells,
            )
        )
    return TableBlock("ledger-table", "Seconds per cell by phase", columns, tuple(rows))


def _short(value: float) -> str:
    """Seconds, rounded to a thousandth."""
    return "0" if value == 0 else "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 1 else digits(value)
