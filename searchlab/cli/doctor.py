"""`searchlab doctor`: whether this machine is suited to measuring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from searchlab.cli.output import AsCsv, AsJson, form, hint, out, print_rows, print_table, table

if TYPE_CHECKING:
    from searchlab.doctor import MachineCheck

_MARKS = {
    "ok": "[green]ok[/]",
    "note": "[dim]note[/]",
    "warning": "[bold yellow]warning[/]",
    "problem": "[bold red]problem[/]",
}


def doctor_command(as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """Examine this machine: cores, clock, memory, libraries, and sources of measurement noise.

    Exit code 1 if something makes measuring impossible.
    """
    from searchlab.doctor import examine, summary

    wanted = form(as_json, as_csv)
    checks = list(examine())
    found = summary(checks)
    if wanted:
        print_rows([*(c.to_dict() for c in checks), {"group": "summary", "name": "summary", **found}], wanted)
    else:
        _print(checks)
    if not found["can_measure"]:
        raise typer.Exit(1)


def _print(checks: list[MachineCheck]) -> None:
    from rich.markup import escape

    rows = table("", "", "", "")
    rows.show_header = False
    last = checks[0].group if checks else ""
    for check in checks:
        if check.group != last:
            rows.add_section()
        last = check.group
        value = escape(check.value) + (f"\n[dim]{escape(check.advice)}[/]" if check.advice else "")
        rows.add_row(check.name, _MARKS[check.state], value)
    out.print()
    print_table(rows)
    _print_verdict(checks)


def _print_verdict(checks: list[MachineCheck]) -> None:
    names = {state: [c.name for c in checks if c.state == state] for state in ("warning", "problem")}
    if names["problem"]:
        out.print(f"[bold red]Measuring is impossible here[/] until this is fixed: {', '.join(names['problem'])}.")
    elif names["warning"]:
        out.print(f"Measuring works, but check: [bold yellow]{', '.join(names['warning'])}[/].")
    else:
        out.print("[green]Ready to measure.[/]")
    hint("searchlab noise   [dim]how far two measurements of the same kernel differ here[/]")
