"""The verifier: one clear error for the first thing that is wrong with a graph, with the function and the call.

Names are defined once and before use; symbols are determined before they are used; every annotation follows from its
call; calls of functions end, since no function calls itself, directly or through others.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from searchlab.errors import GraphError, SearchLabError
from searchlab.graph.deduction import scope_of
from searchlab.graph.functions import GraphFunction, GraphModule
from searchlab.graph.listing import call_text
from searchlab.graph.symbols import undetermined
from searchlab.ir.verify import verify


def verify_graph(module: GraphModule) -> None:
    """Raises a GraphError if the module is not well formed."""
    for name, program in module.programs.items():
        try:
            verify(program)
        except SearchLabError as e:
            raise GraphError(f"program {name}: {e}") from e
    for name, function in module.functions.items():
        if name != function.name:
            raise GraphError(f"the function '{function.name}' is held under the name '{name}'")
        _verify_function(module, function)
    _verify_calls_end(module)


def _verify_function(module: GraphModule, function: GraphFunction) -> None:
    where = function.name
    try:
        scope = scope_of(module, function)
        for symbol in function.ranges:
            if symbol.role != "size":
                raise GraphError(f"{symbol} has a range, but it is no run-time size; size('{symbol}') makes one")
        for p in function.parameters:
            missing = undetermined(p.annotation.dims(), scope.symbols)
            if missing:
                raise GraphError(
                    f"no extent of a parameter determines the symbol {missing[0]} of '{p.name}: {p.annotation}'; "
                    f"add a shape parameter that carries it"
                )
        for b in function.bindings:
            where = f"{function.name}: {b.name} = {call_text(b.call)}"
            found = scope.deduce(b.call)
            if found != b.annotation:
                raise GraphError(f"its annotation is {b.annotation}, but {found} is deduced")
            scope.define(b.name, b.annotation)
        where = f"{function.name}: return {function.result}"
        scope.annotation(function.result)
    except GraphError as e:
        raise GraphError(f"{where}: {e}") from e


def _verify_calls_end(module: GraphModule) -> None:
    called = {f.name: {name for c in f.calls.values() for name in c.functions()} for f in module}
    try:
        TopologicalSorter(called).prepare()
    except CycleError as e:
        raise GraphError(f"functions call themselves: {' -> '.join(reversed(e.args[1]))}") from e
