"""Whole models: their measured times, end to end, beside the sums of their kernels, and how they are compiled."""

from __future__ import annotations

from collections.abc import Sequence

from searchlab.lab.report.blocks import Block, Column, Section, TableBlock, TableCell, Words
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import digits, seconds, share
from searchlab.lab.tuning.model_result import DEFAULT, TUNED, ModelResult, VariantTime, model_results

_BUSY = 0.1


def section(material: Material) -> Section | None:
    """The section; None if no model was timed as a whole."""
    found = [result for run in material.runs if run.folder for result in model_results(run.folder) if result.times]
    if not found:
        return None
    lead = (
        "A model is compiled with what the searches found, and whole runs of it are timed in turns with the model "
        "compiled with default schedules, and with torch. The sum of the kernels' times, each taken alone, leaves out "
        "the tasks that were not searched, what caches lose between kernels, and the machine that calls them."
    )
    blocks: list[Block] = [Words(lead)]
    for number, result in enumerate(found, 1):
        blocks.append(_times(result, number))
        if result.by_size:
            blocks.append(_sizes(result, number))
        if result.variants:
            before = f"{result.name}: ways to compile it, timed in turns before the search with {DEFAULT} schedules"
            blocks.append(_variants(result.variants, f"model-{number}-decisions", before))
        if result.decided_again:
            after = f"{result.name}: ways to compile it, timed in turns with what was found; tasks of other ways than "
            after += f"the first, {result.decided_again[0].name}, were searched only if they are the same"
            blocks.append(_variants(result.decided_again, f"model-{number}-decided-again", after))
    return Section("models", "Whole models, end to end", tuple(blocks))


def _times(result: ModelResult, number: int) -> TableBlock:
    columns = (
        Column("model"),
        Column("whole run", True, "the fastest run"),
        Column("median", True),
        Column("kernels", True, "the sum over the searched tasks, each timed alone"),
        Column("× tuned", True, "its time relative to that of the tuned model"),
    )
    rows = []
    for name, times in sorted(result.times.items(), key=lambda item: item[1].min):
        alone = result.kernels.get(name)
        ratio = times.min / result.times[TUNED].min if TUNED in result.times else None
        rows.append(
            (
                TableCell(name),
                TableCell(seconds(times.min), times.min),
                TableCell(seconds(times.median), times.median),
                TableCell("–" if alone is None else seconds(alone), alone),
                TableCell("–" if ratio is None else digits(ratio), ratio),
            )
        )
    return TableBlock(f"model-{number}", f"{result.name}: times of whole runs", columns, tuple(rows), _note(result))


def _sizes(result: ModelResult, number: int) -> TableBlock:
    """Whole runs at other sizes than those of the example inputs."""
    names = list(dict.fromkeys(name for race in result.by_size for name in race.sizes))
    columns = (*(Column(n, True) for n in names), Column(TUNED, True), Column(DEFAULT, True), Column("× default", True))
    rows = []
    for race in result.by_size:
        tuned, default = race.seconds[TUNED], race.seconds[DEFAULT]
        figures = (TableCell(seconds(tuned), tuned), TableCell(seconds(default), default))
        ratio = default / tuned
        at = (race.sizes.get(name) for name in names)
        sizes = (TableCell("–" if n is None else str(n), n) for n in at)
        rows.append((*sizes, *figures, TableCell(digits(ratio), ratio)))
    caption = f"{result.name}: whole runs at other sizes, the fastest of each"
    return TableBlock(f"model-{number}-sizes", caption, columns, tuple(rows))


def _note(result: ModelResult) -> str:
    tasks = f"{result.searched} tasks were searched"
    if result.known:
        tasks += f", {result.known} taken from earlier runs"
    if result.others:
        tasks += f", {result.others} left at their default schedule"
    options = ", ".join(f"{name}: {value}" for name, value in (result.taken or result.options).items())
    note = f"{tasks}. Results differ from the reference by {result.error:.1e} of the largest number at most."
    note += f" Compiled with {options}." if options else ""
    if result.load > _BUSY:
        note += f" Other programs used {share(result.load)} of the cores meanwhile."
    return note


def _variants(variants: Sequence[VariantTime], name: str, caption: str) -> TableBlock:
    columns = (Column("decision"), Column("whole run", True), Column("", False))
    rows = tuple(
        (
            TableCell(v.name),
            TableCell("–" if v.seconds is None else seconds(v.seconds), v.seconds),
            TableCell("chosen" if v.chosen else v.error),
        )
        for v in sorted(variants, key=lambda v: (v.seconds is None, v.seconds))
    )
    return TableBlock(name, caption, columns, rows)
