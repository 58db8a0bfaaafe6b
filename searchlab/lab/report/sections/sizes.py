"""Families of sizes: the programs that are run for which sizes, and what that costs against tuning each size alone."""

from __future__ import annotations

from collections.abc import Sequence

from searchlab.lab.report.blocks import Block, Column, Section, TableBlock, TableCell, Words
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import count, digits, seconds, share
from searchlab.lab.results import CellResult
from searchlab.lab.study import FamilyTable, SizeTimes
from searchlab.lab.tuning.kept_tables import KeptTable, kept_tables

_LEAD = (
    "The size of these workloads is known only at run time. Each is searched at a few sizes; the best schedules are "
    "applied to the program for every size, and a table says which of them is run for which sizes. Regret is how much "
    "longer the table takes than what was tuned for one size alone, timed in turns."
)


def section(material: Material) -> Section | None:
    """The section; None if no task is a family."""
    blocks: list[Block] = []
    for number, task in enumerate(material.tasks, 1):
        found = [(c, c.best.table) for c in material.working if c.task == task and c.best and c.best.table]
        if found:
            cell, table = min(found, key=lambda pair: pair[0].final_s)
            blocks += [_times(cell, table, number), _rule(table, number, task)]
            if len(found) > 1:
                blocks.append(_entries(material, task, number))
    for number, run in enumerate(material.runs, 1):
        if run.folder and (kept := kept_tables(run.folder)):
            blocks.append(_of_model(kept, number))
    return Section("sizes", "Families of sizes", (Words(_LEAD), *blocks)) if blocks else None


def _of_model(tables: Sequence[KeptTable], number: int) -> TableBlock:
    """The tables of the programs of models whose sizes are open."""
    columns = (
        Column("program"),
        Column("sizes", False, "the values of the size that the schedule is run for"),
        Column("schedule"),
        Column("time", True, "the mean time of a call"),
        Column("× default", True, "speed-up over the default schedule"),
    )
    rows = []
    for table in tables:
        low = 1
        ratio = None if table.default_s is None else table.default_s / table.seconds
        for n, point in enumerate(table.points):
            last = table.last[n] if n < len(table.last) else None
            first = TableCell(table.label if n == 0 else "")
            figures = (TableCell("" if n else seconds(table.seconds), table.seconds),
                       TableCell("" if n or ratio is None else digits(ratio), ratio))  # fmt: skip
            rows.append((first, TableCell(f"{low}–{last}" if last else f"from {low}"), TableCell(point), *figures))
            low = (last or 0) + 1
    note = "A compiled model runs the schedule that is listed for the size of the call."
    return TableBlock(f"open-sizes-{number}", "Programs of models with open sizes", columns, tuple(rows), note)


def _times(cell: CellResult, table: FamilyTable, number: int) -> TableBlock:
    columns = (
        Column(table.size, True),
        Column("weight", True, "the share of calls that the size stands for"),
        Column("time", True, "of the program that the table has for the size"),
        Column("alone", True, "of what was tuned for this size alone"),
        Column("regret", True, "how much longer the table takes"),
        Column("× default", True, "speed-up over the default schedule for a run-time size"),
    )
    worst = table.worst
    note = (
        f"Found by {cell.entry}, seed {cell.seed}. A call takes {seconds(table.seconds)} on average, "
        f"{digits(table.default_s / table.seconds)} times as fast as with the default schedule. The mean regret is "
        f"{share(table.regret, 1)}, the worst {share(worst.regret, 1)} at {table.size} = {worst.size}."
    )
    rows = tuple(_row(t) for t in table.times)
    return TableBlock(f"family-{number}", f"{cell.task}: times by size", columns, rows, note)


def _row(t: SizeTimes) -> tuple[TableCell, ...]:
    ratio = t.default_s / t.seconds
    return (
        TableCell(str(t.size), t.size),
        TableCell(share(t.weight, 1), t.weight),
        TableCell(seconds(t.seconds), t.seconds),
        TableCell(seconds(t.alone_s), t.alone_s),
        TableCell(share(t.regret, 1), t.regret),
        TableCell(digits(ratio), ratio),
    )


def _rule(table: FamilyTable, number: int, task: str) -> TableBlock:
    """The intervals of sizes and their programs."""
    columns = (Column(table.size), Column("found at", True), Column("program"))
    rows = tuple(
        (
            TableCell(f"{i.low}..{i.high}", i.low),
            TableCell(str(found.found_at or "–"), found.found_at),
            TableCell(found.point),
        )
        for i in table.intervals
        for found in [table.programs[i.program]]
    )
    said = f"{count(len(table.refused), 'candidate')} cannot be used for every size"
    note = f"{said}: {table.refused[0]}." if table.refused else ""
    return TableBlock(f"family-{number}-rule", f"{task}: what is run for which sizes", columns, rows, note)


def _entries(material: Material, task: str, number: int) -> TableBlock:
    """The tables of all entries and seeds."""
    columns = (
        Column("entry"),
        Column("seed", True),
        Column("mean time", True),
        Column("mean regret", True),
        Column("worst regret", True),
        Column("programs", True),
    )
    rows = []
    for cell in material.working:
        table = cell.best.table if cell.task == task and cell.best else None
        if table is not None:
            worst = table.worst.regret
            rows.append(
                (
                    TableCell(cell.entry, look=material.looks[cell.entry]),
                    TableCell(str(cell.seed), cell.seed),
                    TableCell(seconds(cell.final_s), cell.final_s),
                    TableCell(share(table.regret, 1), table.regret),
                    TableCell(share(worst, 1), worst),
                    TableCell(str(len(table.programs)), len(table.programs)),
                )
            )
    return TableBlock(f"family-{number}-entries", f"{task}: the tables of all searches", columns, tuple(rows))
