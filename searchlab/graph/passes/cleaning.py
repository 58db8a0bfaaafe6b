"""What other passes leave behind: results that nothing uses, and calls that compute the same twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from searchlab.graph.calls import FunctionCall, GraphCall, ItemCall, MatchCast, Operand, ProgramCall, TupleCall
from searchlab.graph.functions import Binding, GraphFunction, GraphModule
from searchlab.graph.passes.operator_fusion import FUSED


def remove_dead(module: GraphModule) -> GraphModule:
    """The module without results, constants, programs and fused functions that nothing uses.

    Calls have no effects, so their results are all that matters; a match_cast is kept, because it checks.
    """
    functions = {name: _without_dead(f) for name, f in module.functions.items()}
    calls = [c for f in functions.values() for c in f.calls.values()]
    programs = {c.program for c in calls if isinstance(c, ProgramCall)}
    called = {c.function for c in calls if isinstance(c, FunctionCall)} | programs
    functions = {name: f for name, f in functions.items() if name in called or not name.startswith(FUSED)}
    used = {name for f in functions.values() for name in (f.result, *_operands(f.bindings))}
    return replace(
        module,
        functions=functions,
        programs={name: p for name, p in module.programs.items() if name in programs},
        constants={name: c for name, c in module.constants.items() if name in used},
    )


def _operands(bindings: Iterable[Binding]) -> Iterable[str]:
    return (name for b in bindings for name in b.call.names())


def _without_dead(function: GraphFunction) -> GraphFunction:
    used = {function.result}
    kept: list[Binding] = []
    for b in reversed(function.bindings):
        if b.name in used or isinstance(b.call, MatchCast):
            kept.append(b)
            used.update(b.call.names())
    return function if len(kept) == len(function.bindings) else replace(function, bindings=tuple(reversed(kept)))


def forward_items(module: GraphModule) -> GraphModule:
    """The module with the members of tuples in place of items that are taken of these again.

    Functions that return tuples leave such items when they are inlined; calls on both sides can then be fused.
    """
    return replace(module, functions={name: _forwarded(f) for name, f in module.functions.items()})


def _forwarded(function: GraphFunction) -> GraphFunction:
    names: dict[str, Operand] = {}
    tuples: dict[str, tuple[Operand, ...]] = {}
    kept = []
    for b in function.bindings:
        call = b.call.renamed(names)
        if isinstance(call, TupleCall):
            tuples[b.name] = call.args
        if isinstance(call, ItemCall) and str(call.value) in tuples:
            member = tuples[str(call.value)][call.index]
            if isinstance(member, str):
                names[b.name] = member
                continue
        kept.append(Binding(b.name, call, b.annotation))
    result = names.get(function.result, function.result)
    return replace(function, bindings=tuple(kept), result=str(result)) if names else function


def share_equal_calls(module: GraphModule) -> GraphModule:
    """The module with equal calls on equal operands made once."""
    return replace(module, functions={name: _shared(f) for name, f in module.functions.items()})


def _shared(function: GraphFunction) -> GraphFunction:
    names: dict[str, Operand] = {}
    first: dict[tuple[GraphCall, str], str] = {}
    kept = []
    for b in function.bindings:
        call = b.call.renamed(names)
        key = call, repr(call)  # 0.0 and -0.0 are equal, as are 1 and True, but they are not the same operand
        if not isinstance(call, MatchCast) and key in first:
            names[b.name] = first[key]
            continue
        first[key] = b.name
        kept.append(Binding(b.name, call, b.annotation))
    result = names.get(function.result, function.result)
    return replace(function, bindings=tuple(kept), result=str(result)) if names else function
