"""What there is to tune in a model: the tasks of its graph as it is compiled, with open sizes at a few values each."""

from __future__ import annotations

from collections.abc import Sequence

from searchlab.errors import GraphError
from searchlab.graph.functions import GraphModule
from searchlab.graph.model.options import CompileOptions
from searchlab.graph.model.pipeline import lowered
from searchlab.graph.model_source import ModelSource
from searchlab.graph.operator import Array
from searchlab.graph.tasks.graph_tasks import CalledFunction, GraphTask, graph_tasks
from searchlab.graph.tasks.reference_functions import with_references
from searchlab.ir.algebra import solvable
from searchlab.targets import Target

LEGALISE = "legalise"  # the pass by which operators become programs
_BALANCE = 8.0  # operations that take as long as a byte from memory, roughly, on today's cores


def model_tasks(
    source: ModelSource, options: CompileOptions | None = None, target: Target | None = None
) -> tuple[GraphTask, ...]:
    """The tasks of a model that is compiled with these options for a target, in the order of their first calls.

    Programs with open sizes are tasks at several of these.
    """
    functions = [
        CalledFunction(name, call.weight, sizes_of(source.module, call.inputs, name), call.sizes)
        for name, call in source.calls.items()
    ]
    return graph_tasks(lowered_with_references(source.module, options, target), *functions)


def task_counts(tasks: Sequence[GraphTask]) -> dict[str, float]:
    """How often each workload occurs in one run, by its text; the shares of open sizes are parts of one call."""
    found: dict[str, float] = {}
    for task in tasks:
        found[task.workload.spec] = found.get(task.workload.spec, 0) + task.count
    return found


def lowered_with_references(
    module: GraphModule, options: CompileOptions | None = None, target: Target | None = None
) -> GraphModule:
    """The module as it is compiled, with a function beside every program that says what it computes."""
    seen: list[GraphModule] = []

    def observe(name: str, before: GraphModule, after: GraphModule) -> None:
        if name == LEGALISE:
            seen.append(before)

    found = lowered(module, options or CompileOptions(), observe, target)
    for before in seen:
        found = with_references(found, before)
    return found


def worth_tuning(tasks: Sequence[GraphTask], share: float = 0.99) -> tuple[GraphTask, ...]:
    """The tasks that make up a share of the expected time, in their order; the others are left as they are.

    The expectation is crude: operations and bytes, weighted for a typical core.  It only has to tell additions of
    vectors from convolutions.  The sizes of a family stay together.
    """
    costs: dict[str, float] = {}
    for t in tasks:
        each = t.count * (t.workload.flops + _BALANCE * t.workload.bytes)
        costs[_whole(t)] = costs.get(_whole(t), 0.0) + each
    total, reached, kept = sum(costs.values()), 0.0, set()
    for name in sorted(costs, key=lambda name: -costs[name]):
        if reached < share * total:
            kept.add(name)
        reached += costs[name]
    return tuple(task for task in tasks if _whole(task) in kept)


def _whole(task: GraphTask) -> str:
    return task.workload.key if task.family is None else task.family.key


def sizes_of(module: GraphModule, inputs: Sequence[Array], function: str = "main") -> dict[str, int]:
    """The values that the symbols of a function have for these inputs."""
    parameters = module[function].parameters
    if len(parameters) != len(inputs):
        names = ", ".join(p.name for p in parameters)
        raise GraphError(f"{function} takes ({names}), got {len(inputs)} example inputs")
    sizes: dict[str, int] = {}
    for p, array in zip(parameters, inputs, strict=True):
        for e, n in zip(p.annotation.dims(), array.shape, strict=False):
            if (found := solvable(e)) is not None:
                symbol, scale, offset = found
                sizes.setdefault(symbol.name, (int(n) - offset) // scale)
    return sizes
