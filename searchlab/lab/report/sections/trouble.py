"""Failures by class, errors of cells, and measurement noise."""

from __future__ import annotations

from collections import Counter

import numpy as np

from searchlab.lab.report.blocks import Block, Column, Figure, Section, TableBlock, TableCell, Words
from searchlab.lab.report.drawing import Axis, stacked_chart
from searchlab.lab.report.material import Material
from searchlab.lab.report.steadiness import final_times, spreads
from searchlab.lab.report.words import count, share


def section(material: Material) -> Section:
    """Failed trials, failed cells, and the spread of repeats within a measurement."""
    blocks: list[Block] = [*_failures(material), *_errors(material), *_noise(material)]
    return Section("trouble", "Failures and noise", tuple(blocks))


def _failures(material: Material) -> list[Block]:
    by_entry = {e: sum((Counter(c.failures) for c in material.of_entry(e)), Counter()) for e in material.order}
    trials = {e: sum(len(c.seconds) for c in material.of_entry(e)) for e in material.order}
    classes = [name for name, _ in sum(by_entry.values(), Counter()).most_common()]
    if not classes:
        return [Words(f"No trial failed, of {sum(trials.values())}.")]
    bars = [
        (e, {k: n / trials[e] for k, n in found.items()}, f"{found.total()} of {trials[e]}")
        for e, found in by_entry.items()
        if trials[e]
    ]
    figure = Figure(
        "failures",
        "Trials that failed, by class",
        "Fraction of all trials of an entry, over tasks and seeds. A failed trial counts towards the budget and "
        "is taken as infinitely slow.",
        lambda width: stacked_chart(bars, classes, Axis("fraction of trials", low=0.0, percent=True), width),
    )
    columns = (Column("entry"), Column("trials", True), *(Column(k, True) for k in classes))
    rows = [
        (
            TableCell(e, look=material.looks[e]),
            TableCell(str(trials[e]), trials[e]),
            *(TableCell(str(found[k]), found[k]) for k in classes),
        )
        for e, found in by_entry.items()
    ]
    return [figure, TableBlock("failure-table", "Failed trials by class", columns, tuple(rows))]


def _errors(material: Material) -> list[Block]:
    failed = [c for c in material.cells if c.state == "failed" or c.error]
    open_ = [c for c in material.cells if c.state in ("interrupted", "waiting")]
    blocks: list[Block] = []
    if open_:
        blocks.append(Words(f"{count(len(open_), 'cell')} did not finish and are left out of all figures.", "warning"))
    if failed:
        rows = tuple(
            (
                TableCell(c.entry, look=material.looks[c.entry]),
                TableCell(c.task),
                TableCell(str(c.seed), c.seed),
                TableCell(c.error or "–"),
            )
            for c in failed
        )
        columns = (Column("entry"), Column("task"), Column("seed", True), Column("error"))
        blocks.append(TableBlock("error-table", "Cells that failed", columns, rows))
    return blocks


def _noise(material: Material) -> list[Block]:
    blocks: list[Block] = [Words(text)] if (text := final_times(material)) else []
    found = spreads(material)
    if not found:
        return blocks
    columns = (
        Column("task"),
        Column("measurements", True),
        Column("median", True, "half of the measurements are steadier than this"),
        Column("95th percentile", True, "one measurement in twenty is less steady than this"),
    )
    rows = []
    for task, values in found.items():
        middle, most = (float(v) for v in np.quantile(values, (0.5, 0.95)))
        rows.append(
            (
                TableCell(task),
                TableCell(str(len(values)), len(values)),
                TableCell(share(middle, 1), middle),
                TableCell(share(most, 1), most),
            )
        )
    caption = "Noise: how far a repeat typically is from the median of its measurement"
    note = "Relative to the median. A search minimises the fastest repeat, which other programs disturb least."
    return [*blocks, TableBlock("noise-table", caption, columns, tuple(rows), note)]
