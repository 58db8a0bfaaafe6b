"""Networks, task by task: how their time and their trials are distributed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from searchlab.lab.report.blocks import Block, Column, Section, TableBlock, TableCell, Words
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import digits, listed, seconds, share
from searchlab.lab.results import CellResult, PartWinner


def section(material: Material) -> Section | None:
    """The section; None if no task is a network."""
    blocks: list[Block] = []
    for number, task in enumerate(material.tasks, 1):
        cells = [c for c in material.working if c.task == task and _parts(c)]
        if cells:
            blocks += [_times(min(cells, key=lambda c: c.final_s), number), _turns(material, cells, number)]
    if not blocks:
        return None
    lead = "The time of a network is the sum over its tasks, each as often as it occurs. The tasks share one budget."
    return Section("networks", "Networks, task by task", (Words(lead), *blocks))


def _parts(cell: CellResult) -> Sequence[PartWinner]:
    return () if cell.best is None or cell.cell.family is not None else cell.best.parts


def _times(cell: CellResult, number: int) -> TableBlock:
    """The tasks of the fastest network, those that take most of its time first."""
    parts = sorted(_parts(cell), key=lambda p: -p.weight * p.best.seconds)
    names = tuple(dict.fromkeys(name for p in parts for name in p.baselines))
    columns = (
        Column("task"),
        Column("occurs", True, "how often it occurs in one run of the network"),
        Column("each", True),
        Column("share", True, "fraction of the network's time"),
        *(Column(f"× {name}", True, f"speed-up over {name}") for name in names),
    )
    rows = tuple(_row(p, cell.final_s, names) for p in parts)
    note = f"Found by {cell.entry}, seed {cell.seed}; the whole network takes {seconds(cell.final_s)}."
    if tasks := [p.task for p in parts if p.best.origin == "default"]:
        kept = "The default schedule was faster, and is the one to take home, for"
        note += f" {kept} {listed(tasks)}: with it, the network takes {seconds(cell.taken_s)}."
    return TableBlock(f"network-{number}", f"{cell.task}: the time of the fastest, by task", columns, rows, note)


def _row(part: PartWinner, whole_s: float, names: Sequence[str]) -> tuple[TableCell, ...]:
    own = part.best.seconds
    total = part.weight * own / whole_s
    ratios = [part.baselines.get(name, np.nan) / own for name in names]
    return (
        TableCell(part.task),
        TableCell(f"{part.weight:g}", part.weight),
        TableCell(seconds(own), own),
        TableCell(share(total), total),
        *(TableCell(digits(r), r) for r in ratios),
    )


def _turns(material: Material, cells: Sequence[CellResult], number: int) -> TableBlock:
    """The number of trials that each entry spent on each task."""
    entries = [e for e in material.order if any(c.entry == e for c in cells)]
    given = {e: [_trials(c) for c in cells if c.entry == e] for e in entries}
    labels = [p.task for p in _parts(cells[0])]
    columns = (Column("task"), *(Column(e, True) for e in entries))
    rows = tuple(
        (TableCell(label), *(TableCell(f"{(m := _mean(given[e], n)):.0f}", m) for e in entries))
        for n, label in enumerate(labels)
    )
    caption = f"{cells[0].task}: trials that each task got, mean over seeds"
    return TableBlock(f"network-{number}-trials", caption, columns, rows)


def _mean(counts: Sequence[Counter[int]], part: int) -> float:
    return float(np.mean([c[part] for c in counts]))


def _trials(cell: CellResult) -> Counter[int]:
    """The trials of a cell, per task of the network."""
    found: Counter[int] = Counter()
    before = 0
    for done in cell.rounds:
        found[done.part or 0] += done.trials - before
        before = done.trials
    return found
