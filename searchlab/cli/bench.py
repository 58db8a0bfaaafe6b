"""`searchlab bench`: races the default schedule against the libraries."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from searchlab.cli.names import NamedWorkload, resolve
from searchlab.cli.output import (
    AsCsv,
    AsJson,
    duration,
    err,
    form,
    hint,
    kept,
    out,
    print_rows,
    print_table,
    table,
    three_digits,
)
from searchlab.errors import WorkloadError

if TYPE_CHECKING:
    from rich.table import Table

    from searchlab.bench import ContestRow
    from searchlab.targets import Target

# Small enough for half a minute in all, different enough to say something: products, convolutions, row operations.
_QUICKSTART = {
    "matmul 512x512x512": "matmul:m=512,n=512,k=512",
    "dense, bias, relu 128x3072x768": "dense:m=128,n=3072,k=768,activation=relu",
    "conv2d 3x3 64x56x56": "conv2d:ci=64,co=64,h=56,w=56,k=3,padding=1",
    "depthwise 3x3 144x56x56": "depthwise_conv2d:c=144,h=56,w=56,k=3,padding=1",
    "softmax 128x4096": "softmax:rows=128,cols=4096",
    "layer_norm 512x768": "layer_norm:rows=512,cols=768",
}
_OPTIONAL = {"torch": "torch", "onnxruntime": "peers"}  # libraries, and the extras that install them
_BUSY = 0.1  # the share of the machine that others may take before the times are called into question


def bench_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="WORKLOAD", help="Workloads, networks or suites.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads for all contenders; all cores if not given.")] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="Seconds to time each workload.")] = 1.0,
    pack_weights: Annotated[
        bool, typer.Option("--pack-weights", help="Pack constant weights into another layout ahead of time.")
    ] = False,
    quickstart: Annotated[bool, typer.Option("--quickstart", help="Run a small fixed set that takes seconds.")] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Compile workloads with the default schedule and race them against numpy, torch and onnxruntime.

    Results are checked before anything is timed. Exit code 1 if a result is wrong.
    """
    from searchlab.targets import detect

    wanted = form(as_json, as_csv)
    if quickstart == bool(names):
        raise WorkloadError("name the workloads to time (`searchlab list` shows all), or give --quickstart")
    entries = _quickstart() if quickstart else _entries(names or [])
    target = detect(threads)
    rows: list[ContestRow] = []
    found = kept(_run(entries, target, seconds, pack_weights), rows)
    if wanted:
        print_rows((fields for row in found for fields in _fields(row, target)), wanted)
    else:
        _print_rows(list(found), target, quickstart)
    if len(rows) < len(entries) or any(row.wrong for row in rows):
        raise typer.Exit(1)


def _quickstart() -> list[NamedWorkload]:
    return [NamedWorkload(case, resolve(spec).entries[0].workload) for case, spec in _QUICKSTART.items()]


def _entries(names: list[str]) -> list[NamedWorkload]:
    found = [entry for name in names for entry in resolve(name).entries]
    for entry in found:
        if entry.workload.sizes:
            sizes = ", ".join(entry.workload.sizes)
            raise WorkloadError(f"{entry.case}: give numbers instead of the run-time sizes {sizes} to time it")
    return found


def _run(entries: list[NamedWorkload], target: Target, seconds: float, pack_weights: bool) -> Iterator[ContestRow]:
    """The rows as they come; what was measured before an interrupt is not lost."""
    from searchlab.bench import measure

    min_rounds = 5 if len(entries) > 1 else 10
    try:
        for number, (case, workload, _) in enumerate(entries, 1):
            _progress(f"[{number}/{len(entries)}] {case}")
            yield measure(workload, target, case, seconds, min_rounds, pack_weights)
    except KeyboardInterrupt:
        _progress()
        err.print("stopped; these are the results so far")
    _progress()


def _progress(text: str = "") -> None:
    """A line that replaces itself. Nothing moves while times are taken: a spinner would need a core."""
    if err.is_terminal:
        from rich.control import Control
        from rich.segment import ControlType

        err.control(Control((ControlType.ERASE_IN_LINE, 2), ControlType.CARRIAGE_RETURN))
        err.print(text[: err.width - 1], end="", style="dim", markup=False, soft_wrap=True)


# --- printing ---------------------------------------------------------------------------------------------------------


def _fields(row: ContestRow, target: Target) -> Iterator[dict[str, Any]]:
    """What was measured of a workload, one figure per row."""
    common: dict[str, Any] = {"target": None, "threads": row.threads, "cpu": target.name, "spec": row.workload.spec}
    common["other_load"] = round(row.other_load, 3)
    metric = "gbytes_per_second" if row.memory_bound else "gflops_per_second"
    for name, times in row.times.items():
        more = {"min_seconds": times.min, "median_seconds": times.median, "rounds": times.rounds}
        yield {"case": row.case, "metric": metric, "value": row.rate(name), "contender": name, **more, **common}
    for name, problem in row.inexact.items():
        yield {"case": row.case, "metric": "inexact", "value": None, "contender": name, "problem": problem, **common}
    for name, problem in row.wrong.items():
        yield {"case": row.case, "metric": "error", "value": None, "contender": name, "problem": problem, **common}
    if row.ratio is not None:
        yield {"case": row.case, "metric": "speedup", "value": row.ratio, "over": row.best_library, **common}


def _print_rows(rows: list[ContestRow], target: Target, quickstart: bool) -> None:
    from rich.markup import escape

    from searchlab.bench import geometric_mean

    if not rows:
        return
    out.print(f"\n{escape(str(target))}")
    out.print()
    print_table(_table(rows, brief=quickstart))
    for row in rows:
        for name, problem in row.wrong.items():
            err.print(f"[bold red]wrong:[/] {escape(row.case)}: {name}: {escape(problem)}", soft_wrap=True)
        for name, problem in row.inexact.items():
            text = f"{row.case}: {name} saturates at 16 bits on this CPU: {problem}"
            err.print(f"[bold yellow]not exact (~):[/] {escape(text)}", soft_wrap=True)
    for name, extra in _OPTIONAL.items():
        if find_spec(name) is None:
            out.print(f"{name} is not installed and did not take part; `pip install 'searchlab\\[{extra}]'` adds it.")
    load, mean = max(row.other_load for row in rows), geometric_mean([row.ratio for row in rows if row.ratio])
    if load > _BUSY:
        out.print(
            f"[bold yellow]The machine was busy[/]: other programs took up to {load:.0%} of it. These times mean"
            " little, least of all for the libraries, whose threads wait for each other. Try again on an idle machine."
        )
    elif mean is not None and len(rows) > 1:
        out.print(f"On average [bold]{mean:.2f}x[/] the speed of the fastest library (geometric mean).")
    _explain(quickstart)


def _explain(quickstart: bool) -> None:
    if quickstart:
        out.print(
            "Each program was scheduled by fixed rules (no search yet), compiled with LLVM, checked against a"
            " reference in double precision, and raced against the libraries. Times are the best of all rounds.\n"
        )
        hint(
            "searchlab list workloads                              [dim]all workloads[/]",
            "searchlab bench conv2d:ci=256,co=256,h=14,w=14,k=3    [dim]a shape of your own[/]",
            "python -m benchmarks.codegen                          [dim]the whole benchmark[/]",
        )
    else:
        out.print("[dim]All results were checked first. Speeds and ratios use the best times.[/]")


def _table(rows: list[ContestRow], brief: bool) -> Table:
    from rich.markup import escape

    from searchlab.bench import EVERY_LIBRARY, OURS

    seen = {name for row in rows for name in (*row.times, *row.wrong)}
    contenders = [OURS, *(name for name in EVERY_LIBRARY if name in seen)]
    times = [name.replace("-", "\n") if brief else f"{name}\n[dim]best / median[/]" for name in contenders]
    found = table("workload", *times, "speed", "", "ratio", "to", right=(*times, "speed", "ratio"))
    for row in rows:
        rate, best = row.rate(OURS), f"[dim]{row.best_library or '-'}[/]"
        speed = ("-", "") if rate is None else (three_digits(rate), f"[dim]{row.unit}[/]")
        cells = [_cell(row, name, brief) for name in contenders]
        found.add_row(escape(row.case), *cells, *speed, _ratio(row), best)
    return found


def _cell(row: ContestRow, name: str, brief: bool) -> str:
    if name in row.wrong:
        return "[bold red]wrong[/]"
    if name not in row.times:
        return "[dim]-[/]"
    times = row.times[name]
    best = f"{'~' * (name in row.inexact)}{duration(times.min)}"
    return best if brief else f"{best} [dim]/ {duration(times.median)}[/]"


def _ratio(row: ContestRow) -> str:
    if row.ratio is None:
        return "[dim]-[/]"
    if row.other_load > _BUSY:  # good or bad, it may be somebody else's doing
        return f"[dim]{three_digits(row.ratio)}x ?[/]"
    color = "green" if row.ratio >= 1.0 else "yellow" if row.ratio >= 0.8 else "red"
    return f"[{color}]{row.ratio:.2f}x[/]"
