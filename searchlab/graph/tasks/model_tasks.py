"""What there is to tune in a model: the tasks of its graph as it is compiled, at the sizes of its example inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from searchlab.errors import GraphError
from searchlab.graph.deduction import deduced
from searchlab.graph.functions import GraphFunction, GraphModule
from searchlab.graph.legalising import legalise
from searchlab.graph.model_source import ModelSource
from searchlab.graph.operator import Array
from searchlab.graph.passes import fuse_operators, fuse_programs
from searchlab.graph.symbols import solvable
from searchlab.graph.tasks.graph_tasks import GraphTask, graph_tasks
from searchlab.graph.tasks.reference_functions import with_references
from searchlab.ir.expr import Const, Expr, Var
from searchlab.ir.walk import Substitution

_BALANCE = 8.0  # operations that take as long as a byte from memory, roughly, on today's cores


def model_tasks(source: ModelSource) -> tuple[GraphTask, ...]:
    """The tasks of a model, in the order of their first calls."""
    module = fuse_programs(fuse_operators(at_sizes(source.module, source.inputs)))
    return graph_tasks(with_references(legalise(module), module))


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
    old = module[function]
    if len(old.parameters) != len(inputs):
        names = ", ".join(p.name for p in old.parameters)
        raise GraphError(f"{function} takes ({names}), got {len(inputs)} example inputs")
    sizes: dict[Var, Expr] = {}
    for p, array in zip(old.parameters, inputs, strict=True):
        for e, n in zip(p.annotation.dims(), array.shape, strict=False):
            if (found := solvable(e)) is not None:
                symbol, scale, offset = found
                sizes.setdefault(symbol, Const((int(n) - offset) // scale))
    return module if not sizes else module.with_function(deduced(module, _put(old, Substitution(sizes))))


def _put(function: GraphFunction, put: Substitution) -> GraphFunction:
    parameters = tuple(replace(p, annotation=p.annotation.map_dims(put)) for p in function.parameters)
    bindings = tuple(replace(b, call=b.call.map_dims(put)) for b in function.bindings)
    left = {symbol: known for symbol, known in function.ranges.items() if symbol not in put.mapping}
    return replace(function, parameters=parameters, bindings=bindings, ranges=left)
