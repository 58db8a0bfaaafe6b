"""Tables of families: which program is run for which sizes, and its times beside those of tuning each size alone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchlab.cli.output import duration, hint, out, print_table, table

if TYPE_CHECKING:
    from searchlab.lab.results import CellResult
    from searchlab.lab.study import FamilyTable


def family_fields(label: str, result: CellResult) -> dict[str, Any]:
    """The table of a family as plain data."""
    made = _table_of(result)
    figures = {"regret": made.regret, "worst_regret": made.worst.regret, "default_s": made.default_s}
    return {
        "task": label, "entry": result.entry, "seed": result.seed, "seconds": result.final_s, "alone_s": made.alone_s,
        **figures, "cell": result.id, **asdict(made),
    }  # fmt: skip


def print_families(run: Path, found: Mapping[str, CellResult]) -> None:
    """Prints the tables of families, and how they are called."""
    from rich.markup import escape

    for label, result in found.items():
        made = _table_of(result)
        faster = f"{made.default_s / made.seconds:.2f}x default"
        out.print(f"\n[bold green]{escape(label)}[/]")
        where = f"found by [bold]{escape(result.entry)}[/], seed {result.seed}"
        out.print(f"[bold]{duration(result.final_s)}[/] a call on average   {faster}   {where}\n")
        print_table(_rule(made))
        print_table(_times(made))
        worst = made.worst
        out.print(
            f"[dim]regret against tuning each size alone: {made.regret:.1%} on average, at worst {worst.regret:.1%} "
            f"({made.size}={worst.size})[/]"
        )
        for reason in made.refused:
            out.print(f"[dim]not used: {escape(reason)}[/]", soft_wrap=True)
    several = f", task={next(iter(found))!r}" if len(found) > 1 else ""
    one = shlex.quote(str(run))
    hint(
        f"{escape(f'kernel = searchlab.load({str(run)!r}{several})')}   [dim]one function for all sizes[/]",
        f"searchlab report {escape(one)}   [dim]one page with all results[/]",
    )


def _table_of(result: CellResult) -> FamilyTable:
    assert result.best is not None and result.best.table is not None
    return result.best.table


def _rule(made: FamilyTable) -> Any:
    from rich.markup import escape

    rows = table(made.size, "found at", "program", right=("found at",))
    for i in made.intervals:
        found = made.programs[i.program]
        rows.add_row(f"{i.low}..{i.high}", str(found.found_at or "-"), escape(found.point))
    return rows


def _times(made: FamilyTable) -> Any:
    right = (made.size, "weight", "time", "alone", "regret", "default")
    rows = table(*right, right=right)
    for t in made.times:
        times = (duration(s) for s in (t.seconds, t.alone_s))
        rows.add_row(str(t.size), f"{t.weight:.1%}", *times, f"{t.regret:+.1%}", duration(t.default_s))
    return rows
