"""What there is to tune in a model: the tasks of its graph as it is compiled, at the sizes of its example inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from searchlab.errors import GraphError
from searchlab.graph.deduction import deduced
from searchlab.graph.functions import GraphFunction, GraphModule
from searchlab.graph.model.options import CompileOptions
from searchlab.graph.model.pipeline import lowered
from searchlab.graph.model_source import ModelSource
from searchlab.graph.operator import Array
from searchlab.graph.symbols import solvable
from searchlab.graph.tasks.graph_tasks import GraphTask, graph_tasks
from searchlab.graph.tasks.reference_functions import with_references
from searchlab.ir.expr import Const, Var
from searchlab.ir.walk import Substitution
from searchlab.targets import Target

LEGALISE = "legalise"  # the pass by which operators become programs
_BALANCE = 8.0  # operations that take as long as a byte from memory, roughly, on today's cores


def model_tasks(
    source: ModelSource, options: CompileOptions | None = None, target: Target | None = None
) -> tuple[GraphTask, ...]:
    """The tasks of a model that is compiled with these options for a target, in the order of their first calls."""
    return graph_tasks(lowered_with_references(at_sizes(source.module, source.inputs), options, target))


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
    vectors from convolutions.
    """
    costs = [t.count * (t.workload.flops + _BALANCE * t.workload.bytes) for t in tasks]
    whole, reached, kept = sum(costs), 0.0, set()
    for n in sorted(range(len(tasks)), key=lambda n: -costs[n]):
        if reached < share * whole:
            kept.add(n)
        reached += costs[n]
    return tuple(task for n, task in enumerate(tasks) if n in kept)


def at_sizes(module: GraphModule, inputs: Sequence[Array], function: str = "main") -> GraphModule:
    """The module with the symbols of a function at the values that they have for these inputs."""
    sizes = {Var(name, "size"): Const(value) for name, value in sizes_of(module, inputs, function).items()}
    return module if not sizes else module.with_function(deduced(module, _put(module[function], Substitution(sizes))))


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


def _put(function: GraphFunction, put: Substitution) -> GraphFunction:
    parameters = tuple(replace(p, annotation=p.annotation.map_dims(put)) for p in function.parameters)
    bindings = tuple(replace(b, call=b.call.map_dims(put)) for b in function.bindings)
    left = {symbol: known for symbol, known in function.ranges.items() if symbol not in put.mapping}
    return replace(function, parameters=parameters, bindings=bindings, ranges=left)
