"""`searchlab show`: a workload's program, cost and code; the tasks of a network or suite."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from searchlab.cli.names import NamedGroup, NamedWorkload, resolve
from searchlab.cli.output import (
    AsCsv,
    AsJson,
    OutputForm,
    amount,
    form,
    hint,
    out,
    print_program,
    print_rows,
    print_table,
    table,
)
from searchlab.errors import SpaceError, WorkloadError

if TYPE_CHECKING:
    from searchlab.workloads import Workload


def show_command(
    name: Annotated[str, typer.Argument(metavar="WORKLOAD", help="A workload, a network or a suite.")],
    scheduled: Annotated[
        bool, typer.Option("--scheduled", help="Print the program after the default schedule.")
    ] = False,
    llvm: Annotated[bool, typer.Option("--llvm", help="Print the LLVM IR of the default schedule.")] = False,
    asm: Annotated[bool, typer.Option("--asm", help="Print the assembly of the default schedule.")] = False,
    space: Annotated[
        str | None, typer.Option(help="Show this search space of the workload; see `searchlab list spaces`.")
    ] = None,
    point: Annotated[
        str | None, typer.Option(help="A point of the space, as text or index: print its program.")
    ] = None,
    intrinsics: Annotated[
        bool,
        typer.Option("--intrinsics", help="Show which tensor intrinsics can compute its stages, and how."),
    ] = False,
    target: Annotated[str, typer.Option(help="The machine to schedule for; see `searchlab list targets`.")] = "native",
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show a workload's program and cost, its generated code, its search space, or the intrinsics that match it.

    For a network or a suite: its tasks, with weights and costs.
    """
    as_form, group = form(as_json, as_csv), resolve(name)
    wanted = [view for view, on in (("scheduled", scheduled), ("llvm", llvm), ("asm", asm)) if on]
    if intrinsics:
        from searchlab.cli.show_intrinsics import show_intrinsics

        if wanted or space is not None:
            raise WorkloadError(f"--intrinsics and --{wanted[0] if wanted else 'space'} exclude each other: give one")
        if group.kind != "workload":
            raise WorkloadError(f"'{name}' is a {group.kind}; --intrinsics needs a single workload")
        show_intrinsics(group.entries[0].workload, name, target, as_form)
        return
    if point is not None and space is None:
        raise SpaceError("--point needs --space NAME")
    if space is not None:
        from searchlab.cli.show_space import show_space

        if group.kind != "workload" or wanted:
            raise SpaceError(f"--space needs a single workload and no --{wanted[0] if wanted else group.kind}")
        show_space(group.entries[0].workload, space, point, target, as_form)
        return
    if wanted and group.kind != "workload":
        raise WorkloadError(f"'{name}' is a {group.kind}; --{wanted[0]} needs a single workload")
    _print(group, dict(_code(group.entries[0].workload, wanted, target)), as_form)


def _print(group: NamedGroup, texts: Mapping[str, str], as_form: OutputForm | None) -> None:
    """What a name stands for, or code made of it."""
    if as_form:
        print_rows((_fields(group, entry) | dict(texts) for entry in group.entries), as_form)
    elif texts:
        for text in texts.values():
            print_program(text)
    elif group.kind == "workload":
        _print_workload(group)
    else:
        _print_tasks(group)


def _code(workload: Workload, views: list[str], target_name: str) -> Iterator[tuple[str, str]]:
    """The scheduled program and what becomes of it, as far as asked for; works for other machines than this one."""
    if not views:
        return
    from searchlab import targets
    from searchlab.backend import backend_of
    from searchlab.defaults import default_schedule
    from searchlab.runtime.cpu_backend import ASSEMBLY, LLVM_IR

    target = targets.parse(target_name)
    program = default_schedule(workload.program, target)
    if "scheduled" in views:
        yield "scheduled", str(program)
    for view, language in (("llvm", LLVM_IR), ("asm", ASSEMBLY)):
        if view in views:
            yield view, backend_of(target).listing(program, target, language)


def _fields(group: NamedGroup, entry: NamedWorkload) -> dict[str, Any]:
    w = entry.workload
    known = not w.sizes  # a size known only at run time leaves the cost open
    return {
        "case": entry.case,
        "metric": "flops",
        "value": w.flops if known else None,
        "target": None,
        "bytes": w.bytes if known else None,
        "weight": entry.weight,
        "group": None if group.kind == "workload" else group.name,
        "spec": w.spec,
        **({"program": str(w.program), "weights": list(w.weights)} if group.kind == "workload" else {}),
    }


def _print_workload(group: NamedGroup) -> None:
    from rich.markup import escape

    workload = group.entries[0].workload
    out.print(f"[bold]{escape(workload.label)}[/]")
    out.print(f"[dim]{escape(group.summary)}[/]\n", soft_wrap=True)
    print_program(str(workload.program))
    facts = table("", "", "")
    facts.show_header, facts.box = False, None
    facts.padding = (0, 2, 0, 0)
    for row in _costs(workload):
        facts.add_row(*row)
    out.print()
    print_table(facts)
    name = escape(shlex.quote(group.name))
    speed = f"searchlab bench {name}              [dim]its speed against the libraries[/]"
    matching = f"searchlab show {name} --intrinsics     [dim]the tensor instructions that can compute it[/]"
    hint(
        f"searchlab show {name} --scheduled   [dim]the program after the default schedule[/]",
        f"searchlab show {name} --asm         [dim]its machine code[/]",
        f"searchlab show {name} --space sketch   [dim]its search space; `searchlab list spaces` names others[/]",
        *([matching] if any(b.reduces for b in workload.program.blocks.values()) else []),
        *([] if workload.sizes else [speed]),
    )


def _costs(workload: Workload) -> Iterator[tuple[str, str, str]]:
    if workload.sizes:
        yield "cost", f"depends on {', '.join(workload.sizes)}", "[dim]known only at run time[/]"
    else:
        yield "arithmetic", amount(workload.flops, "flop"), "[dim]a multiply-add counts as 2[/]"
        yield "data", amount(workload.bytes, "B"), "[dim]all inputs and outputs, once[/]"
        yield "intensity", f"{workload.flops / workload.bytes:.3g} flop/B", "[dim]arithmetic per byte[/]"
    if workload.weights:
        yield "weights", ", ".join(workload.weights), "[dim]inputs that are constants of a model[/]"


def _print_tasks(group: NamedGroup) -> None:
    from rich.markup import escape

    is_network, weighted = group.kind == "network", group.kind in ("network", "family")
    right = ("weight", "flops", "bytes") if weighted else ("flops", "bytes")
    first = () if weighted else ("case",)
    found = table(*first, "workload", *right, right=right, title=f"{escape(group.name)}: {escape(group.summary)}")
    for case, w, weight in group.entries:
        cost = (amount(w.flops, "flop"), amount(w.bytes, "B"))
        found.add_row(*([] if weighted else [case]), escape(w.label), *([f"{weight:.3g}"] if weighted else []), *cost)
    print_table(found)
    if is_network:
        flops = sum(e.workload.flops * e.weight for e in group.entries)
        runs = sum(e.weight for e in group.entries)
        out.print(f"{len(group.entries)} tasks, {runs:g} operators in one run, {amount(flops, 'flop')} in total\n")
    hint(f"searchlab bench {escape(shlex.quote(group.name))}   [dim]all of them against the libraries[/]")
