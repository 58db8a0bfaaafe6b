"""`searchlab best`: shows or exports the best programs of a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from searchlab.cli.output import (
    AsCsv,
    AsJson,
    cost,
    duration,
    form,
    hint,
    out,
    print_program,
    print_rows,
    print_table,
    table,
)
from searchlab.cli.run_options import EntryOption, RunArgument, TaskOption
from searchlab.errors import ExportError

if TYPE_CHECKING:
    from searchlab.lab.export import Exported, Found, Verified

_NOTABLE = 0.1  # a difference to what was recorded that noise does not explain


def best_command(
    run: RunArgument,
    task: TaskOption = None,
    entry: EntryOption = None,
    top: Annotated[int, typer.Option(min=1, help="Number of programs per task.")] = 1,
    export: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the best of each task to DIR/<task> as a library.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check and time the exported programs again, outside the search.")
    ] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show the best programs of a run, and export them as libraries for C and Python.

    Exit code 1 if a verified kernel gives a wrong result.
    """
    from searchlab.cli.size_tables import family_fields, print_families
    from searchlab.lab.export import best_programs, family_results

    wanted = form(as_json, as_csv)
    families = family_results(run, task, entry)
    if families and (export is not None or verify):
        raise ExportError(
            f"'{next(iter(families))}' is a family of sizes, and libraries have fixed ones: call it with"
            " searchlab.load, or name one of the sizes that it was searched at with --task"
        )
    found = best_programs(run, task, entry, top, sizes=not families)
    right, rows = True, [family_fields(label, result) for label, result in families.items()]
    for name, programs in found.items():
        done, seen = _taken(programs[0], export, verify)
        right &= seen is None or seen.wrong is None
        if wanted:
            taken = {1: _taken_fields(done, seen, export)}
            rows += [_fields(rank, program) | taken.get(rank, {}) for rank, program in enumerate(programs, 1)]
            continue
        _print_task(name, programs)
        _print_export(done if export is not None else None)
        _print_verified(seen)
    if wanted:
        print_rows(rows, wanted)
    else:
        _print_notes(run)
        if families:
            print_families(run, families)
        if found:
            _next(run, [first for first, *_ in found.values()], export is not None)
    if not right:
        raise typer.Exit(1)


# --- taking -----------------------------------------------------------------------------------------------------


def _taken(found: Found, export: Path | None, verify: bool) -> tuple[Exported | None, Verified | None]:
    """The export of a program and the second look at it, as far as asked for."""
    from tempfile import TemporaryDirectory

    from searchlab.lab.export import verify as look
    from searchlab.lab.export.bundle import identifier

    if export is None and not verify:
        return None, None
    with TemporaryDirectory() as temporary:
        done = found.export((export or Path(temporary)) / identifier(found.task))
        if not verify:
            return done, None
        return done, look(done.folder, found.workload, found.program, found.target, found.seconds)


def _fields(rank: int, found: Found) -> dict[str, Any]:
    program = {} if found.cell.recorded else {"program": str(found.program)}
    return {
        "task": found.task, "rank": rank, "entry": found.entry, "seed": found.cell.seed, "seconds": found.seconds,
        "origin": found.origin,
        "confirmed": found.confirmed, "baselines": dict(found.baselines), "point": found.point,
        "knobs": dict(found.choice) if found.origin == "search" else {}, "cell": found.cell.id,
        "code": found.code_facts, **program,
    }  # fmt: skip


def _taken_fields(done: Exported | None, seen: Verified | None, export: Path | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if done is not None and export is not None:
        fields["export"] = {"folder": str(done.folder), "files": list(done.files), "missing": done.missing}
    if seen is not None:
        fields["verified"] = {**vars(seen), "gap": seen.gap}
    return fields


# --- printing ---------------------------------------------------------------------------------------------------


def _print_task(name: str, programs: list[Found]) -> None:
    from rich.markup import escape

    first = programs[0]
    out.print(f"\n[bold green]{escape(name)}[/]")
    if len(programs) == 1:
        where = f"found by [bold]{escape(first.entry)}[/], seed {first.cell.seed}"
        where = where if first.origin == "search" else "by rules, without search"
        out.print(f"[bold]{cost(first.seconds, first.cell.modelled)}[/]{_ratios(first)}   {where}")
        _print_kept(first)
        out.print(f"[dim]point:[/] {escape(first.point)}\n", soft_wrap=True)
        if facts := first.code_facts:
            told = ", ".join(f"{name} {text}" for name, text in facts.items())
            out.print(f"[dim]code:[/] {escape(told)}\n", soft_wrap=True)
    else:
        print_table(_standings(programs))
        _print_kept(first)
        out.print(
            "[dim]confirmed: it won its search and was re-measured; others may be a single, lucky measurement[/]\n"
        )
    if not first.cell.recorded:
        print_program(str(first.program))


def _print_kept(found: Found) -> None:
    """Says that the default schedule is the one to take, if so."""
    from searchlab.lab.statistics.wording import kept

    if found.beaten_s is not None:
        out.print(f"[yellow]{kept(found.seconds, found.beaten_s)}[/]")


def _standings(programs: list[Found]) -> Any:
    from rich.markup import escape

    right = ("time", "ratio")
    made = table("entry", "seed", "time", "ratio", "confirmed", "point", right=right)
    for f in programs:
        ratio = f"{f.seconds / programs[0].seconds:.3f}"
        confirmed = "yes" if f.confirmed else "no"
        made.add_row(
            escape(f.entry), str(f.cell.seed), cost(f.seconds, f.cell.modelled), ratio, confirmed, escape(f.point)
        )
    return made


def _ratios(found: Found) -> str:
    """How many times as fast as others."""
    from searchlab.bench import DEFAULT

    others = {name: s for name, s in found.baselines.items() if found.origin == "search" or name != DEFAULT}
    parts = [f"{seconds / found.seconds:.2f}x {name}" for name, seconds in others.items()]
    return f"   {', '.join(parts)}" if parts else ""


def _print_export(done: Exported | None) -> None:
    from rich.markup import escape

    if done is None:
        return
    out.print(f"\n[bold]exported[/] to {escape(str(done.folder))}/  [dim]{', '.join(done.files)}[/]", soft_wrap=True)
    if done.missing and "kernel.o" in done.files:
        out.print(f"[yellow]no libkernel.so:[/] {escape(done.missing)}; searchlab.load takes kernel.o", soft_wrap=True)
    elif done.missing:
        out.print(f"[yellow]note:[/] {escape(done.missing)}", soft_wrap=True)


def _print_verified(seen: Verified | None) -> None:
    from rich.markup import escape

    if seen is None:
        return
    if seen.wrong is not None:
        out.print(f"\n[bold red]wrong:[/] {escape(seen.wrong)}", soft_wrap=True)
    else:
        out.print("\n[bold green]right:[/] the exported kernel agrees with numpy")
    made = table("", "time", "to recorded", right=("time", "to recorded"))
    rows = (("recorded", seen.recorded_s), ("exported, now", seen.exported_s), ("as searched, now", seen.built_s))
    for name, seconds in rows:
        made.add_row(name, duration(seconds), f"{100 * (seconds / seen.recorded_s - 1):+.1f} %")
    print_table(made)
    interval = f"{seen.low:.3f} to {seen.high:.3f}"
    out.print(f"exported : as searched = {seen.ratio:.3f} [dim]({interval} at 90 %, interleaved)[/]")
    if abs(seen.built_s / seen.recorded_s - 1) > _NOTABLE:
        out.print("[yellow]The search's own kernel differs from its record, too: the machine has changed since.[/]")


def _print_notes(run: Path) -> None:
    """What has changed since the programs were found."""
    from rich.markup import escape

    from searchlab.lab.run import load
    from searchlab.lab.statistics import modelled_note, version_notes

    cells = load(run).cells
    for note in filter(None, (modelled_note(cells), *version_notes(cells))):
        out.print(f"[dim]note: {escape(note)}[/]", soft_wrap=True)


def _next(run: Path, found: list[Found], exported: bool) -> None:
    from rich.markup import escape

    out.print()
    tasks = [f.task for f in found if not f.cell.recorded]
    if exported:
        hint("read README.md in the folder of a task   [dim]how to call it from Python and C[/]")
        return
    if not tasks:
        hint(f"searchlab report {escape(shlex.quote(str(run)))}   [dim]how the searches compare[/]")
        return
    several = len(tasks) > 1
    shell = f" --task {shlex.quote(tasks[0])}" if several else ""
    python = f"{str(run)!r}, task={tasks[0]!r}" if several else repr(str(run))
    command = f"searchlab best {shlex.quote(str(run))}{shell} --export kernels --verify"
    hint(
        f"{escape(command)}   [dim]export it as a library[/]",
        f"{escape(f'kernel = searchlab.load({python})')}   [dim]or call it from Python[/]",
    )
