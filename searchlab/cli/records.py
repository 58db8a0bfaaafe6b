"""`searchlab records`: inspects, converts and merges files of measurements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from searchlab.cli.output import AsCsv, AsJson, OutputForm, duration, err, form, out, print_rows, print_table, table
from searchlab.errors import RecordError

if TYPE_CHECKING:
    from searchlab.lab.records import Record, RecordStore

app = typer.Typer(no_args_is_help=True, help="Inspect, convert and merge files of measurements.")


class Format(StrEnum):
    """Formats other than our own."""

    t4 = "t4"
    csv = "csv"


class TaskRecords(NamedTuple):
    """What a file holds of one task."""

    file: Path
    task: str
    label: str
    statuses: dict[str, int]
    best: Record | None


_Out = Annotated[Path, typer.Option("--output", "-o", help="The file to write.")]


@app.command("stats")
def stats_command(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files of records.")],
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Count the records of each task by outcome, with the best time."""
    wanted = form(as_json, as_csv)
    stores = [_existing(path) for path in paths]
    found = [task for store in stores for task in _tasks(store)]
    if wanted:
        skipped = {str(store.path): len(store.skipped) for store in stores}
        lost = [{"case": f, "metric": "skipped_lines", "value": n, "target": None} for f, n in skipped.items()]
        print_rows([*map(_fields, found), *lost], wanted)
    else:
        _print_tasks(found, len(stores) > 1)


@app.command("export")
def export_command(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file of records.")],
    to: Annotated[Format, typer.Option("--to", help="The format to write.")],
    output: _Out,
    task: Annotated[str | None, typer.Option(help="Only this task, by its key or its label.")] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Write records in another format: T4, which auto-tuners exchange, or CSV."""
    wanted = form(as_json, as_csv)
    store = _existing(path)
    keys = _keys(store, task)
    if to is Format.t4 and len(keys) > 1:
        err.print(
            f"{path} holds {len(keys)} tasks, but a T4 file holds one; choose it with --task",
            markup=False,
            soft_wrap=True,
        )
    count = _export(store, keys[0] if task else None, to, output)
    _report(wanted, count, f"{count} records written to {output}", case=str(output), metric="records")


@app.command("import")
def import_command(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A file in the other format.")],
    source: Annotated[Format, typer.Option("--from", help="The format to read.")],
    output: _Out,
    task: Annotated[
        str, typer.Option(help="Name of the task if a T4 file does not give one; the file's name by default.")
    ] = "",
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Read records from another format and append those that are new to a file of records."""
    from searchlab.lab.records import RecordStore, add_new, csv_export, t4_export

    wanted = form(as_json, as_csv)
    records = t4_export.read(path, task) if source is Format.t4 else csv_export.read(path)
    done = add_new(RecordStore(output), list(records))  # all are read before any is written
    _report_merged(wanted, done.added, done.known, output)


@app.command("merge")
def merge_command(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files of records.")],
    output: _Out,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Append the records of several files to one, each record once."""
    from searchlab.lab.records import RecordStore, merge

    wanted = form(as_json, as_csv)
    done = merge(RecordStore(output), [_existing(path) for path in paths])
    _report_merged(wanted, done.added, done.known, output)


# --- reading and writing ----------------------------------------------------------------------------------------------


def _existing(path: Path) -> RecordStore:
    from searchlab.lab.records import RecordStore

    if not path.is_file():
        raise RecordError(f"{path}: file not found")
    return RecordStore(path)


def _tasks(store: RecordStore) -> Iterator[TaskRecords]:
    index = store.index
    for key in index.tasks:
        best = store.best(key)
        one = best or next(store.records(key), None)
        label = (one.label or one.workload) if one else ""
        yield TaskRecords(store.path, key, label or key, index.by_status(key), best)


def _keys(store: RecordStore, task: str | None) -> list[str]:
    if task is None or task in store.index.tasks:
        return [task] if task else store.index.tasks
    known = {one.label: one.task for one in _tasks(store)}
    if task not in known:
        raise RecordError(f"{store.path}: no task '{task}'; it holds {', '.join(known) or 'none'}")
    return [known[task]]


def _export(store: RecordStore, key: str | None, to: Format, output: Path) -> int:
    from searchlab.lab.records import csv_export, t4_export

    if output.exists() and output.samefile(store.path):
        raise RecordError(f"{output}: this is the input file")
    # Whoever reads the output while it is written sees the old one, or none.
    partial = output.with_name(f"{output.name}.partial")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            if to is Format.t4:
                count = t4_export.write(store.records(key), file)
            else:
                count = csv_export.write(lambda: store.records(key), file)
        partial.replace(output)
    except OSError as e:
        raise RecordError(f"{output}: cannot write: {e.strerror or e}") from e
    finally:
        with suppress(OSError):
            partial.unlink()
    return count


# --- printing ---------------------------------------------------------------------------------------------------------


def _fields(one: TaskRecords) -> dict[str, Any]:
    return {
        "case": one.label,
        "metric": "best_seconds",
        "value": one.best.seconds if one.best else None,
        "target": None,
        "file": str(one.file),
        "task": one.task,
        "records": sum(one.statuses.values()),
        "statuses": one.statuses,
        "best": one.best.id if one.best else None,
        "program": one.best.program if one.best else None,
        "knobs": one.best.knobs if one.best else None,
    }


def _print_tasks(found: list[TaskRecords], several: bool) -> None:
    from rich.markup import escape

    right = ("records", "ok", "best median")
    made = table("task", *(["file"] if several else []), *right, "failures", right=right)
    for one in found:
        failures = ", ".join(f"{n} {status}" for status, n in sorted(one.statuses.items()) if status != "ok")
        best = duration(one.best.seconds) if one.best else "-"
        counts = (str(sum(one.statuses.values())), str(one.statuses.get("ok", 0)), best)
        file = [escape(str(one.file))] if several else []
        made.add_row(escape(one.label), *file, *counts, escape(failures))
    print_table(made)


def _report_merged(form: OutputForm | None, added: int, known: int, output: Path) -> None:
    text = f"{added} records added to {output}" + (f", {known} were already there" if known else "")
    _report(form, added, text, case=str(output), metric="records_added", known=known)


def _report(form: OutputForm | None, value: int, text: str, case: str, metric: str, **more: Any) -> None:
    if form:
        print_rows([{"case": case, "metric": metric, "value": value, "target": None, **more}], form)
    else:
        out.print(text, markup=False, soft_wrap=True)
