"""`searchlab list`: what there is."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from searchlab.cli.output import amount, hint, out, print_table, table

if TYPE_CHECKING:
    from searchlab.registry import Registry
    from searchlab.workloads import Operator


class Kind(StrEnum):
    """What can be listed."""

    workloads = "workloads"
    networks = "networks"
    suites = "suites"
    targets = "targets"
    spaces = "spaces"
    models = "models"
    strategies = "strategies"


def list_command(
    kind: Annotated[Kind | None, typer.Argument(help="What to list; everything if not given.")] = None,
) -> None:
    """List the workloads, networks, suites, targets, search spaces, cost models and strategies there are."""
    kinds = [kind] if kind else list(Kind)
    for one in kinds:
        _LISTS[one]()
    hint(
        "searchlab show conv2d:ci=64,co=64,h=56,w=56,k=3,padding=1   [dim]the program of a workload[/]",
        "searchlab show matmul --space sketch                        [dim]the search space of a workload[/]",
        "searchlab bench softmax:rows=128,cols=4096                  [dim]its speed beside numpy and torch[/]",
    )


def _workloads() -> None:
    from rich.markup import escape

    from searchlab.workloads import operators

    found = table("workload", "what it computes; [dim]parameters with their defaults[/]", title="Workloads")
    for name, op in operators().items():
        found.add_row(name, f"{escape(op.summary)}\n[dim]{escape(_parameters(op))}[/]")
    print_table(found)


def _parameters(op: Operator) -> str:
    from searchlab.workloads.parameters import text

    return ", ".join(p.name if p.default is None else f"{p.name}={text(p.default)}" for p in op.parameters)


def _networks() -> None:
    from searchlab.workloads import network, networks

    right = ("tasks", "weight", "flops")
    found = table("network", "what it is", *right, right=right, title="Networks")
    for name, summary in networks().items():
        tasks = network(name)
        flops = sum(t.workload.flops * t.weight for t in tasks)
        found.add_row(name, summary, str(len(tasks)), str(sum(t.weight for t in tasks)), amount(flops, "flop"))
    print_table(found)
    out.print("[dim]tasks: different operators; weight: how many of them one run of the network takes[/]\n")


def _suites() -> None:
    from searchlab.workloads import suite, suites

    found = table("suite", "what it is", "cases", right=("cases",), title="Suites")
    for name, summary in suites().items():
        found.add_row(name, summary, str(len(suite(name))))
    print_table(found)


def _targets() -> None:
    from searchlab import targets

    found = table("target", "description", title="Targets")
    for name in targets.known():
        note = " [dim](this machine)[/]" if name == "native" else ""
        found.add_row(name, f"{targets.parse(name)}{note}")
    print_table(found)


def _components(kind: str, title: str) -> None:
    from rich.markup import escape

    from searchlab.registry import summary
    from searchlab.search import MODELS, SPACES, STRATEGIES

    registries: dict[str, Registry[Any]] = {"space": SPACES, "model": MODELS, "strategy": STRATEGIES}
    found = table(kind, "what it is; [dim]options with their defaults[/]", "version", title=title)
    for name, cls in registries[kind].all().items():
        options = _options(cls)
        found.add_row(name, escape(summary(cls)) + (f"\n[dim]{escape(options)}[/]" if options else ""), cls.version)
    print_table(found)


def _options(cls: type) -> str:
    from inspect import Parameter

    from searchlab.registry import accepted_options

    found = {k: v for k, v in accepted_options(cls).items() if k not in ("space", "rng")}  # given by the study
    return ", ".join(k if v is Parameter.empty else f"{k}={_short(v)}" for k, v in found.items())


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 24 else "..."


_LISTS: dict[Kind, Callable[[], None]] = {
    Kind.workloads: _workloads,
    Kind.networks: _networks,
    Kind.suites: _suites,
    Kind.targets: _targets,
    Kind.spaces: lambda: _components("space", "Search spaces"),
    Kind.models: lambda: _components("model", "Cost models"),
    Kind.strategies: lambda: _components("strategy", "Strategies"),
}
