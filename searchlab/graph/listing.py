"""Graphs as stable text, for people and golden files: a line per call, with the annotation of its result.

function main(x: float32[n, 8]) -> float32[n, 4]:
  1 <= n <= 64
  linear: float32[n, 4] = linear(x, w)
  return linear
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from searchlab.graph.calls import (
    BranchCall,
    Extents,
    FunctionCall,
    GraphCall,
    ItemCall,
    LibraryCall,
    MatchCast,
    Operand,
    OperatorCall,
    ProgramCall,
    Scalar,
    TupleCall,
)
from searchlab.ir.printer import buffer_text

if TYPE_CHECKING:
    from searchlab.graph.functions import GraphFunction, GraphModule
    from searchlab.ir.program import Program


def operand_text(operand: Operand) -> str:
    """A name, a number or a shape."""
    if isinstance(operand, str):
        return operand
    if isinstance(operand, Scalar):
        return str(operand.value) if isinstance(operand.value, (bool, float)) else f"{operand.dtype}({operand.value})"
    assert isinstance(operand, Extents)
    return f"shape[{', '.join(map(str, operand.dims))}]"


def _arguments(operands: Iterable[Operand], attributes: Iterable[tuple[str, Any]] = ()) -> str:
    named = (f"{name}={_attribute(value)}" for name, value in attributes)
    return ", ".join([*map(operand_text, operands), *named])


def _attribute(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_attribute, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def _program_call(call: ProgramCall) -> str:
    sizes = ((name, value) for name, value in call.sizes if str(value) != name)
    workspace = "" if call.workspace is None else f" with {call.workspace} bytes"
    return f"program {call.program}({_arguments(call.args, sizes)}){workspace}"


_TEXTS: dict[type[GraphCall], Callable[[Any], str]] = {
    OperatorCall: lambda c: f"{c.operator.name}({_arguments(c.args, c.operator.telling())})",
    ProgramCall: _program_call,
    LibraryCall: lambda c: f"library {c.function}({_arguments(c.args, c.attributes)})",
    FunctionCall: lambda c: f"call {c.function}({_arguments(c.args)})",
    BranchCall: lambda c: f"call ({c.then} if {c.condition} else {c.otherwise})({_arguments(c.args)})",
    MatchCast: lambda c: f"match_cast({_arguments(c.operands())}, {c.annotation})",
    TupleCall: lambda c: f"({_arguments(c.args)})",
    ItemCall: lambda c: f"{operand_text(c.value)}[{c.index}]",
}


def call_text(call: GraphCall) -> str:
    """One call, without its result."""
    return _TEXTS[type(call)](call)


def function_text(function: GraphFunction) -> str:
    """The function: signature, ranges of symbols, a line per call."""
    return "\n".join(_function_lines(function)) + "\n"


def _function_lines(function: GraphFunction) -> Iterator[str]:
    parameters = ", ".join(f"{p.name}: {p.annotation}" for p in function.parameters)
    returns = "" if function.returns is None else f" -> {function.returns}"
    yield f"function {function.name}({parameters}){returns}:"
    for symbol, known in sorted(function.ranges.items(), key=lambda item: item[0].name):
        yield f"  {known.low} <= {symbol}" + ("" if known.high is None else f" <= {known.high}")
    for b in function.bindings:
        yield f"  {b.name}: {b.annotation} = {call_text(b.call)}"
    yield f"  return {function.result}"


def module_text(module: GraphModule) -> str:
    """The module: constants and programs by their signatures, then the functions."""
    lines = [f"constant {name}: {c.annotation}" for name, c in module.constants.items()]
    lines += [f"program {name}{_signature(p)}" for name, p in module.programs.items()]
    parts = (["\n".join(lines) + "\n"] if lines else []) + [function_text(f) for f in module]
    return "\n".join(parts)


def _signature(program: Program) -> str:
    inputs = ", ".join(buffer_text(program.buffers[n]) for n in program.inputs)
    outputs = ", ".join(buffer_text(program.buffers[n]) for n in program.outputs)
    return f"({inputs}) -> {outputs}"
