"""Functions beside programs: what a program of one operator computes, as the operator said it."""

from __future__ import annotations

from searchlab.graph.annotations import Annotation
from searchlab.graph.calls import Operand, OperatorCall, ProgramCall
from searchlab.graph.functions import Binding, GraphFunction, GraphModule, GraphParameter


def with_references(lowered: GraphModule, before: GraphModule) -> GraphModule:
    """The lowered module with a function for every program that has none: the operator that was called in its place.

    `before` is the module before operators became programs; results of calls have the same names in both.
    """
    for function in tuple(lowered):
        calls = before.functions[function.name].calls if function.name in before.functions else {}
        for b in function.bindings:
            if not isinstance(b.call, ProgramCall) or b.call.program in lowered.functions:
                continue
            was = calls.get(b.name)
            if isinstance(was, OperatorCall):
                lowered = lowered.with_function(_outlined(lowered, function, b, was))
    return lowered


def _outlined(module: GraphModule, function: GraphFunction, b: Binding, call: OperatorCall) -> GraphFunction:
    """A function of one call, with a parameter for each operand that is a tensor, as often as it is one."""
    assert isinstance(b.call, ProgramCall)
    parameters: list[GraphParameter] = []
    operands: list[Operand] = []
    for operand in call.args:
        if isinstance(operand, str):
            parameters.append(GraphParameter(f"x{len(parameters)}", _annotation(module, function, operand)))
            operand = parameters[-1].name
        operands.append(operand)
    body = Binding("y", call.with_operands(tuple(operands)), b.annotation)
    return GraphFunction(b.call.program, tuple(parameters), (body,), "y", function.ranges)


def _annotation(module: GraphModule, function: GraphFunction, name: str) -> Annotation:
    return function.annotations[name] if name in function.annotations else module.constants[name].annotation
