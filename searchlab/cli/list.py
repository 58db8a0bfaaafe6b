"""`searchlab list`: the available components."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from searchlab.cli.output import AsCsv, AsJson, amount, form, hint, out, print_rows, print_table, table

if TYPE_CHECKING:
    from searchlab.targets import Target

Row = dict[str, Any]
_SEARCHED = ("cpu", "cuda")  # the kinds of machines that spaces are made for


class ListedKind(StrEnum):
    """The kinds of components that can be listed."""

    workloads = "workloads"
    networks = "networks"
    suites = "suites"
    targets = "targets"
    spaces = "spaces"
    models = "models"
    strategies = "strategies"
    intrinsics = "intrinsics"


def list_command(
    kind: Annotated[ListedKind | None, typer.Argument(help="The kind to list; all kinds if not given.")] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List the workloads, networks, suites, targets, spaces, models, strategies and intrinsics that are available."""
    wanted = form(as_json, as_csv)
    kinds = [kind] if kind else list(ListedKind)
    if wanted:
        print_rows(({"kind": one.value, **row} for one in kinds for row in _ROWS[one]()), wanted)
        return
    for one in kinds:
        _print(one, list(_ROWS[one]()))
    hint(
        "searchlab show conv2d:ci=64,co=64,h=56,w=56,k=3,padding=1   [dim]the program of a workload[/]",
        "searchlab show matmul --space sketch                        [dim]the search space of a workload[/]",
        "searchlab bench softmax:rows=128,cols=4096                  [dim]its speed against the libraries[/]",
    )


# --- rows -------------------------------------------------------------------------------------------------------------


def _workloads() -> Iterator[Row]:
    from searchlab.workloads import operators
    from searchlab.workloads.parameters import text

    for name, op in operators().items():
        parameters = {p.name: None if p.default is None else text(p.default) for p in op.parameters}
        yield {"name": name, "summary": op.summary, "options": parameters}


def _networks() -> Iterator[Row]:
    from searchlab.workloads import network, networks

    for name, summary in networks().items():
        tasks = network(name)
        flops = sum(t.workload.flops * t.weight for t in tasks)
        weight = sum(t.weight for t in tasks)
        yield {"name": name, "summary": summary, "tasks": len(tasks), "weight": weight, "flops": flops}


def _suites() -> Iterator[Row]:
    from searchlab.workloads import suite, suites

    for name, summary in suites().items():
        yield {"name": name, "summary": summary, "cases": len(suite(name))}


def _targets() -> Iterator[Row]:
    from searchlab import targets

    for name in targets.known():
        target = targets.parse(name)
        summary = f"{target}{_machine(name)}"
        yield {"name": name, "summary": summary, "here": list(_possible(target))}


def _machine(name: str) -> str:
    """That a target is this machine, or a device of it."""
    from searchlab.targets.cuda_devices import cuda_devices

    here = [d.name for d in cuda_devices().found] if name == "cuda" else ["this machine"] * (name == "native")
    return f" ({', '.join(here)})" if here else ""


def _possible(target: Target) -> Iterator[str]:
    """What can be done with programs for a target on this machine."""
    from searchlab.backend import backend_of
    from searchlab.errors import BuildError

    if target.kind in _SEARCHED:
        yield "search"
    yield "compile"
    backend = backend_of(target)
    with suppress(BuildError):
        backend.require(target)
        yield "emulate" if backend.emulated else "measure"


def _intrinsics() -> Iterator[Row]:
    from searchlab.intrinsics import intrinsics
    from searchlab.targets import detect

    here = detect()
    for name, found in sorted(intrinsics().items()):
        what = (
            f"{found.nest.store.buffer} += {found.sum.term} in {' x '.join(str(lp.extent) for lp in found.nest.loops)}"
        )
        yield {
            "name": name,
            "summary": f"{what}; {found.promise.words}",
            "missing": ", ".join(found.needs.missing(here)),
        }


def _components(kind: str) -> Iterator[Row]:
    from searchlab.registry import summary
    from searchlab.search import REGISTRIES

    for name, cls in REGISTRIES[kind].all().items():
        yield {"name": name, "summary": summary(cls), "options": _options(cls), "version": cls.version}


def _options(cls: type) -> Mapping[str, str | None]:
    from inspect import Parameter

    from searchlab.registry import accepted_options

    found = {k: v for k, v in accepted_options(cls).items() if k not in ("space", "rng")}  # given by the study
    return {k: None if v is Parameter.empty else _shown(v) for k, v in found.items()}


def _shown(value: object) -> str:
    """A default as a person reads it: objects that do not say what they are go by the name of their class."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_shown, value))}]"
    return type(value).__name__ if type(value).__repr__ is object.__repr__ else str(value)


_ROWS: dict[ListedKind, Callable[[], Iterator[Row]]] = {
    ListedKind.workloads: _workloads,
    ListedKind.networks: _networks,
    ListedKind.suites: _suites,
    ListedKind.targets: _targets,
    ListedKind.spaces: lambda: _components("space"),
    ListedKind.models: lambda: _components("model"),
    ListedKind.strategies: lambda: _components("strategy"),
    ListedKind.intrinsics: _intrinsics,
}


# --- printing ---------------------------------------------------------------------------------------------------------

_TITLES = {ListedKind.spaces: "Search spaces", ListedKind.models: "Cost models"}
_FIRST = {ListedKind.strategies: "strategy"}
_NUMBERS = ("tasks", "weight", "flops", "cases")


def _print(kind: ListedKind, rows: list[Row]) -> None:
    from rich.markup import escape

    more = [name for name in (rows[0] if rows else {}) if name not in ("name", "summary", "options")]
    what = "description; [dim]options with their defaults[/]" if rows and "options" in rows[0] else "description"
    first = _FIRST.get(kind, kind.value.removesuffix("s"))
    made = table(first, what, *more, right=_NUMBERS, title=_TITLES.get(kind, kind.value.capitalize()))
    for row in rows:
        options = ", ".join(k if v is None else f"{k}={v}" for k, v in row.get("options", {}).items())
        text = escape(row["summary"]) + (f"\n[dim]{escape(options)}[/]" if options else "")
        made.add_row(row["name"], text, *(_cell(name, row[name]) for name in more))
    print_table(made)
    if kind is ListedKind.intrinsics:
        out.print("[dim]missing: what this machine would need to run it[/]\n")
    if kind is ListedKind.networks:
        out.print(
            "[dim]tasks: distinct operators; weight: operators in one run of the network, repetitions included[/]\n"
        )


def _cell(name: str, value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return amount(value, "flop") if name == "flops" else str(value)
