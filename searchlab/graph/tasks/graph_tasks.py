"""The tasks of a graph: its distinct programs, how often each is called, and which of their inputs are weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from searchlab.errors import GraphError
from searchlab.graph.calls import FunctionCall, ProgramCall
from searchlab.graph.deduction import interface
from searchlab.graph.functions import GraphFunction, GraphModule
from searchlab.graph.tasks.task_workload import program_key, task_workload
from searchlab.workloads.definition import Workload


@dataclass(frozen=True)
class GraphTask:
    """A program of a graph as a workload, and how often one run of the graph calls it.

    `programs` are the names of the program in the module: those that are called with different constants are one task.
    """

    workload: Workload
    count: int
    programs: tuple[str, ...] = field(default=())


def graph_tasks(module: GraphModule, function: str = "main") -> tuple[GraphTask, ...]:
    """The tasks of a function whose operators have been lowered to programs, in the order of their first calls.

    A program is checked and tuned against the function of the module that has its name.  Calls inside functions count
    as often as these are called.
    """
    counted: Counter[tuple[str, frozenset[str]]] = Counter(_calls(module, module[function], frozenset()))
    found: dict[str, GraphTask] = {}
    for (name, weights), count in counted.items():
        program = module.program(name)
        key = program_key(program, weights)
        known = found.get(key) or GraphTask(task_workload(program, _reference(module, name), weights), 0)
        found[key] = GraphTask(known.workload, known.count + count, (*known.programs, name))
    return tuple(found.values())


def _calls(module: GraphModule, function: GraphFunction, fixed: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Every call of a program with the inputs that are weights; `fixed` are the parameters that are constants."""
    for b in function.bindings:
        still = [isinstance(o, str) and (o in fixed or o in module.constants) for o in b.call.operands()]
        if isinstance(b.call, ProgramCall):
            inputs, _ = interface(module.program(b.call.program))
            yield b.call.program, frozenset(i.name for i, one in zip(inputs, still, strict=True) if one)
        elif isinstance(b.call, FunctionCall):
            callee = module[b.call.function]
            names = (p.name for p, one in zip(callee.parameters, still, strict=True) if one)
            yield from _calls(module, callee, frozenset(names))


def _reference(module: GraphModule, program: str) -> GraphFunction:
    if program not in module.functions:
        raise GraphError(f"program '{program}' is no task: the module has no function of this name to compare it with")
    return module[program]
