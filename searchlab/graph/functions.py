"""Functions of graphs: parameters, bindings of names to calls in order, a result; and modules of these.

A module holds everything that calls refer to by name: functions, tensor programs and constants.  Operators, loops and
library calls stand beside each other in it, so parts of a graph can be lowered one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.dtype import DTYPES
from searchlab.errors import GraphError
from searchlab.graph.annotations import Annotation, TensorType, tensor
from searchlab.graph.calls import GraphCall
from searchlab.graph.listing import function_text, module_text
from searchlab.graph.symbols import SizeFacts, SizeRange, determined
from searchlab.ir.expr import Var
from searchlab.ir.program import Program
from searchlab.registry import nearest


@dataclass(frozen=True, slots=True)
class GraphParameter:
    """A parameter of a function: a name and what is known of its value."""

    name: str
    annotation: Annotation


@dataclass(frozen=True, slots=True)
class Binding:
    """The result of a call, under a name; the annotation is deduced from the call."""

    name: str
    call: GraphCall
    annotation: Annotation


@dataclass(frozen=True)
class GraphFunction:
    """A pure function: straight-line calls, each of which may use the parameters and the results before it.

    Its symbols are its own: `ranges` bounds them.  The result is the name of a value (a tuple, if there are several).
    """

    name: str
    parameters: tuple[GraphParameter, ...]
    bindings: tuple[Binding, ...]
    result: str
    ranges: Mapping[Var, SizeRange] = field(default_factory=dict)

    @cached_property
    def annotations(self) -> dict[str, Annotation]:
        """The annotations of parameters and results of calls, by name."""
        found = {p.name: p.annotation for p in self.parameters}
        return found | {b.name: b.annotation for b in self.bindings}

    @cached_property
    def calls(self) -> dict[str, GraphCall]:
        """The calls by the names of their results, in order."""
        return {b.name: b.call for b in self.bindings}

    @cached_property
    def facts(self) -> SizeFacts:
        """What is known of its symbols."""
        return SizeFacts(self.ranges)

    @cached_property
    def symbols(self) -> frozenset[Var]:
        """The symbols that the shapes of arguments determine."""
        return determined(e for p in self.parameters for e in p.annotation.dims())

    @cached_property
    def returns(self) -> Annotation | None:
        """What callers know of the result: its annotation as far as the parameters determine it.

        None if the result is a constant of the module, whose annotation the module knows.
        """
        found = self.annotations.get(self.result)
        return None if found is None else found.coarse(self.symbols)

    @cached_property
    def uses(self) -> Counter[str]:
        """How often the value of a name is an operand; the result of the function counts as a use."""
        counted = Counter(name for b in self.bindings for name in b.call.names())
        counted[self.result] += 1
        return counted

    def __str__(self) -> str:
        return function_text(self)


@dataclass(frozen=True, eq=False)
class Constant:
    """An array of a module that does not change; floats of 16 bits that numpy lacks are held as their bits."""

    array: npt.NDArray[Any]
    dtype: str

    def __post_init__(self) -> None:
        storage = DTYPES[self.dtype].storage if self.dtype in DTYPES else None
        if storage != self.array.dtype.name:
            raise GraphError(f"an array of {self.array.dtype} does not hold {self.dtype}; it would be {storage}")
        still = np.ascontiguousarray(self.array).reshape(self.array.shape).view()
        still.flags.writeable = False
        object.__setattr__(self, "array", still)

    @staticmethod
    def of(array: npt.ArrayLike, dtype: str | None = None) -> Constant:
        """An array as a constant, by default of the dtype it has in numpy."""
        held = np.asarray(array)
        return Constant(held, dtype or held.dtype.name)

    @cached_property
    def annotation(self) -> TensorType:
        """Its shape and dtype."""
        return tensor(self.array.shape, self.dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        a, b = self.array, other.array
        return self.dtype == other.dtype and a.shape == b.shape and (a is b or a.tobytes() == b.tobytes())

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class GraphModule:
    """Functions, programs and constants that refer to each other by name."""

    functions: Mapping[str, GraphFunction] = field(default_factory=dict)
    programs: Mapping[str, Program] = field(default_factory=dict)
    constants: Mapping[str, Constant] = field(default_factory=dict)

    def __getitem__(self, name: str) -> GraphFunction:
        if name not in self.functions:
            raise GraphError(f"the module has no function '{name}'{nearest(name, self.functions, 'its functions')}")
        return self.functions[name]

    def __iter__(self) -> Iterator[GraphFunction]:
        return iter(self.functions.values())

    def program(self, name: str) -> Program:
        """The program of a name."""
        if name not in self.programs:
            raise GraphError(f"the module has no program '{name}'{nearest(name, self.programs, 'its programs')}")
        return self.programs[name]

    def with_function(self, function: GraphFunction) -> GraphModule:
        """The module with a function added, or another one of the same name replaced."""
        return replace(self, functions={**self.functions, function.name: function})

    def returns(self, function: GraphFunction) -> Annotation:
        """What callers know of the result of a function."""
        return function.returns or self.constants[function.result].annotation

    def __str__(self) -> str:
        return module_text(self)
