"""The tasks of a graph: its distinct programs, how often each is called, and which of their inputs are weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from searchlab.errors import GraphError
from searchlab.graph.calls import FunctionCall, ProgramCall
from searchlab.graph.deduction import interface
from searchlab.graph.functions import GraphFunction, GraphModule
from searchlab.graph.tasks.task_family import OpenSize, TaskFamily, family_of
from searchlab.graph.tasks.task_workload import plain_sizes, program_key, task_workload
from searchlab.ir.program import Program
from searchlab.workloads.definition import Workload


@dataclass(frozen=True)
class GraphTask:
    """A program of a graph as a workload, and how often one run of the graph calls it.

    `programs` are the names of the program in the module: those that are called with different constants are one task.
    A program with open sizes is a `family`, of which this is one size; its share of the calls is part of the count.
    """

    workload: Workload
    count: float
    programs: tuple[str, ...] = field(default=())
    family: TaskFamily | None = None


@dataclass(frozen=True)
class CalledFunction:
    """A function of a graph, how often it is called where others are called once, and what its sizes are.

    `examples` are values of open sizes, as those of example inputs, and `often` how often which values occur.
    """

    name: str = "main"
    weight: float = 1
    examples: Mapping[str, int] = field(default_factory=dict)
    often: Mapping[str, Mapping[int, float]] = field(default_factory=dict)


def graph_tasks(module: GraphModule, *functions: CalledFunction) -> tuple[GraphTask, ...]:
    """The tasks of functions whose operators have been lowered to programs, in the order of their first calls.

    A program is checked and tuned against the function of the module that has its name.  Calls inside functions count
    as often as these are called.  Without functions, the tasks are those of `main`.
    """
    found: dict[str, _Counted] = {}
    for function in functions or (CalledFunction(),):
        for call in _calls(module, module[function.name], frozenset(), function):
            program = module.program(call.name)
            known = found.setdefault(program_key(program, call.weights), _Counted(call, program, function.examples))
            known.add(call, function.weight)
    return tuple(task for counted in found.values() for task in counted.tasks(module))


@dataclass(frozen=True)
class _Call:
    """A call of a program, the inputs that are weights, and what is known of the sizes that it passes."""

    name: str
    weights: frozenset[str]
    sizes: Mapping[str, OpenSize]


class _Counted:
    """A task while its calls are counted."""

    def __init__(self, first: _Call, program: Program, examples: Mapping[str, int]) -> None:
        self.first, self.program, self.examples = first, program, examples
        self.names: dict[str, None] = {}
        self.sizes: dict[str, OpenSize] = {}
        self.count: float = 0

    def add(self, call: _Call, weight: float) -> None:
        """Counts a call; its sizes are the same ones under other names, if they have others."""
        self.count += weight
        self.names[call.name] = None
        for own, size in zip(self.first.sizes, call.sizes.values(), strict=True):
            self.sizes[own] = self.sizes[own].joined(size) if own in self.sizes else size

    def tasks(self, module: GraphModule) -> Iterator[GraphTask]:
        """The task, or one for each size that stands for others."""
        function, names = _reference(module, self.first.name), tuple(self.names)
        if not self.program.sizes:
            workload = task_workload(self.program, function, self.first.weights)
            yield GraphTask(workload, self.count, names)
            return
        family = family_of(self.program, function, self.first.weights, self.sizes, self.examples)
        for size, share in family.representatives:
            yield GraphTask(family.at(size), self.count * share, names, family)


def _calls(
    module: GraphModule, function: GraphFunction, fixed: frozenset[str], known: CalledFunction
) -> Iterator[_Call]:
    """Every call of a program; `fixed` are the parameters that are constants."""
    for b in function.bindings:
        still = [isinstance(o, str) and (o in fixed or o in module.constants) for o in b.call.operands()]
        if isinstance(b.call, ProgramCall):
            program = module.program(b.call.program)
            given = dict(b.call.sizes)
            sizes = {
                name: OpenSize.of(given[name], function.facts, known.examples, known.often)
                for name in plain_sizes(program)
            }
            names = zip(interface(program)[0], still, strict=True)
            yield _Call(b.call.program, frozenset(i.name for i, one in names if one), sizes)
        elif isinstance(b.call, FunctionCall):
            callee = module[b.call.function]
            named = (p.name for p, one in zip(callee.parameters, still, strict=True) if one)
            yield from _calls(module, callee, frozenset(named), CalledFunction(callee.name, known.weight))


def _reference(module: GraphModule, program: str) -> GraphFunction:
    if program not in module.functions:
        raise GraphError(f"program '{program}' is no task: the module has no function of this name to compare it with")
    return module[program]
