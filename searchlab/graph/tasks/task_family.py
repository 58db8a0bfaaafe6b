"""TaskFamily: a program of a graph whose sizes are known only at run time, and its workload at any value of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from searchlab.errors import GraphError
from searchlab.graph.annotations import ShapeType
from searchlab.graph.deduction import deduced
from searchlab.graph.functions import GraphFunction, GraphModule
from searchlab.graph.symbols import SizeFacts
from searchlab.graph.tasks.task_workload import program_key, task_workload
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import Const, Expr, Var
from searchlab.ir.program import Program
from searchlab.ir.walk import Substitution, variables
from searchlab.workloads.definition import Workload
from searchlab.workloads.families import DynamicRange

_LARGEST = 1 << 20  # of a range that is searched
_MOST_FLOPS, _MOST_BYTES = 2e10, 1 << 29  # of the largest size that is searched, but for that of the example inputs
_BEYOND = 2  # times the size of the example inputs, up to which a size without an upper bound is searched


@dataclass(frozen=True, eq=False)
class TaskFamily:
    """A program with open sizes and the function that it computes.

    `size` is the one that decides which schedule is run, and `range` its values; `others` are the values of all other
    symbols while programs are searched and compared.
    """

    program: Program
    function: GraphFunction
    weights: frozenset[str]
    size: str
    range: DynamicRange
    others: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """What the task is known by, whatever its sizes are called."""
        return program_key(self.program, self.weights)

    @property
    def label(self) -> str:
        """The readable form `linear_relu.3f2a(n=1..64)`."""
        return f"{self.at(self.range.low).label.partition('.')[0]}.{self.key[:4]}({self.size}={self.range})"

    @property
    def representatives(self) -> tuple[tuple[int, float], ...]:
        """The sizes at which it is searched and measured, and the share of calls that each stands for."""
        return self.range.representatives

    def at(self, size: int) -> Workload:
        """The task at one size."""
        values = {**self.others, self.size: size}
        put = Substitution({Var(name, "size"): Const(value) for name, value in values.items()})
        function = at_values(self.function, put)
        return task_workload(self.program.with_symbols(put.mapping), function, self.weights)


def at_values(function: GraphFunction, put: Substitution) -> GraphFunction:
    """A function with numbers for its symbols, and without the shapes that it was passed to know them."""
    kept = (p for p in function.parameters if not isinstance(p.annotation, ShapeType))
    parameters = tuple(replace(p, annotation=p.annotation.map_dims(put)) for p in kept)
    bindings = tuple(replace(b, call=b.call.map_dims(put)) for b in function.bindings)
    left = {symbol: known for symbol, known in function.ranges.items() if symbol not in put.mapping}
    made = replace(function, parameters=parameters, bindings=bindings, ranges=left)
    return deduced(GraphModule({made.name: made}), made)


@dataclass(frozen=True)
class OpenSize:
    """The values that a size of a program may have, as far as they are bounded, and that of the example inputs.

    `often` are values that occur with their weights, if these are known.
    """

    low: int
    high: int | None
    example: int | None
    often: Mapping[int, float] = field(default_factory=dict)

    @staticmethod
    def of(
        e: Expr, facts: SizeFacts, examples: Mapping[str, int], often: Mapping[str, Mapping[int, float]] | None = None
    ) -> OpenSize:
        """What is known of a size that a call passes, from what is known of the symbols in it."""
        least = facts.upper(-e)
        known = all(v.name in examples for v in variables(e))
        example = int(evaluate(e, examples)) if known else None
        values: dict[int, float] = {}
        for symbol in (v.name for v in variables(e) if known and v.name in (often or {})):
            for value, weight in (often or {})[symbol].items():
                size = int(evaluate(e, {**examples, symbol: value}))
                values[size] = values.get(size, 0) + weight
        return OpenSize(1 if least is None else max(1, -least), facts.upper(e), example, values)

    @property
    def range(self) -> DynamicRange:
        """The sizes to search."""
        high = self.high if self.high is not None else max(_BEYOND * (self.example or self.low), *self.often, 0)
        low = min(self.low, _LARGEST - 1)
        return DynamicRange(low, min(max(high, low + 1), _LARGEST), tuple(sorted(self.often.items())))

    @property
    def typical(self) -> int:
        """The size that is searched where another size decides."""
        return self.range.high if self.example is None else self.example

    def joined(self, other: OpenSize) -> OpenSize:
        """What is known if a size may be either."""
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        often = {n: self.often.get(n, 0) + other.often.get(n, 0) for n in {**self.often, **other.often}}
        example = other.example if self.example is None else self.example
        return OpenSize(min(self.low, other.low), high, example, often if self.often and other.often else {})


def family_of(
    program: Program,
    function: GraphFunction,
    weights: frozenset[str],
    sizes: Mapping[str, OpenSize],
    examples: Mapping[str, int],
) -> TaskFamily:
    """The family of a program: the size with the widest range, by ratio, decides which schedule is run."""
    size = max(program.sizes, key=lambda name: sizes[name].range.high / sizes[name].range.low)
    others = {name: sizes[name].typical for name in program.sizes if name != size}
    for name in _symbols(function):  # some may be in annotations alone
        if name not in sizes:
            if name not in examples:
                raise GraphError(f"{program.name}: nothing says what {name} is while the program is searched")
            others[name] = examples[name]
    return _affordable(TaskFamily(program, function, weights, size, sizes[size].range, others), sizes[size].example)


def _affordable(family: TaskFamily, example: int | None) -> TaskFamily:
    """The family without sizes that take too long to measure; the example's is always searched."""
    least = max(family.range.low + 1, example or 0)
    while family.range.high > least:
        largest = family.at(family.range.high)
        if largest.flops <= _MOST_FLOPS and largest.bytes <= _MOST_BYTES:
            break
        high = max(family.range.high // 2, least)
        often = tuple((size, weight) for size, weight in family.range.weights if size <= high)
        family = replace(family, range=DynamicRange(family.range.low, high, often))
    return family


def _symbols(function: GraphFunction) -> Iterator[str]:
    dims: Iterable[Expr] = (e for p in function.parameters for e in p.annotation.dims())
    found = frozenset().union(*map(variables, dims)) | function.ranges.keys()
    yield from sorted({v.name for v in found if v.role == "size"})
