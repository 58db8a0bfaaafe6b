"""GraphBuilder: writes a function call by call; annotations are deduced, and errors raised, where a call is written.

    n = size("n")
    b = GraphBuilder("main", ranges={n: (1, 64)})
    x = b.input("x", (n, 8))
    h = b.relu(b.linear(x, b.constant("w", w)))         every operator of the registry is a method
    module = b.build(h * 2.0)

A module with several functions grows by one builder each: `GraphBuilder("main", module)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.dtype import BOOL, FLOATS
from searchlab.errors import GraphError
from searchlab.graph.annotations import Annotation, ShapeType, TensorType, extents, tensor
from searchlab.graph.calls import (
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
from searchlab.graph.deduction import TypeScope, interface
from searchlab.graph.functions import Binding, Constant, GraphFunction, GraphModule, GraphParameter
from searchlab.graph.operator import GraphOperator, operator_named
from searchlab.graph.symbols import SizeFacts, SizeRange
from searchlab.graph.unification import Unification
from searchlab.ir.expr import Expr, Like, Var
from searchlab.ir.program import Program
from searchlab.ir.walk import Substitution


@dataclass(frozen=True)
class GraphValue:
    """A value of the function that a builder writes; arithmetic on it writes further calls."""

    builder: GraphBuilder
    name: str
    annotation: Annotation

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The extents of a tensor or of a shape, which must be known."""
        known = self.annotation
        found = known.shape if isinstance(known, TensorType) else None
        found = known.extents if isinstance(known, ShapeType) else found
        if found is None:
            raise GraphError(f"the shape of '{self.name}' is not known: it is {known}; match_cast asserts one")
        return found

    @property
    def dtype(self) -> str:
        """The dtype of a tensor, which must be known."""
        known = self.annotation
        if not isinstance(known, TensorType) or known.dtype is None:
            raise GraphError(f"the dtype of '{self.name}' is not known: it is {known}; match_cast asserts one")
        return known.dtype

    def __add__(self, other: Given) -> GraphValue:
        return self.builder.op("add", self, other)

    def __radd__(self, other: Given) -> GraphValue:
        return self.builder.op("add", other, self)

    def __sub__(self, other: Given) -> GraphValue:
        return self.builder.op("sub", self, other)

    def __rsub__(self, other: Given) -> GraphValue:
        return self.builder.op("sub", other, self)

    def __mul__(self, other: Given) -> GraphValue:
        return self.builder.op("mul", self, other)

    def __rmul__(self, other: Given) -> GraphValue:
        return self.builder.op("mul", other, self)

    def __truediv__(self, other: Given) -> GraphValue:
        return self.builder.op("div", self, other)

    def __rtruediv__(self, other: Given) -> GraphValue:
        return self.builder.op("div", other, self)

    def __matmul__(self, other: Given) -> GraphValue:
        return self.builder.op("matmul", self, other)

    def __neg__(self) -> GraphValue:
        return self.builder.op("neg", self)

    def __getitem__(self, index: int) -> GraphValue:
        return self.builder.item(self, index)

    def __iter__(self) -> Any:
        raise TypeError(f"'{self.name}' has no known number of parts; write value[0], value[1], ...")


Given = GraphValue | Scalar | Extents | int | float | bool | Expr  # what a builder takes as an operand
Bounds = SizeRange | tuple[int, int | None]


class GraphBuilder:
    """Writes one function; `build` returns the module with it."""

    def __init__(
        self, name: str = "main", module: GraphModule | None = None, ranges: Mapping[Var, Bounds] | None = None
    ) -> None:
        self.name = name
        self._ranges = {v: r if isinstance(r, SizeRange) else SizeRange(*r) for v, r in (ranges or {}).items()}
        self._module = module or GraphModule()
        self._constants = dict(self._module.constants)
        self._programs = dict(self._module.programs)
        # the scope sees constants and programs as they are added
        known = replace(self._module, constants=self._constants, programs=self._programs)
        self._scope = TypeScope(known, SizeFacts(self._ranges))
        self._parameters: list[GraphParameter] = []
        self._bindings: list[Binding] = []
        self._numbers: dict[str, int] = {}

    # --- inputs -------------------------------------------------------------------------------------------------------

    def input(self, name: str, shape: Sequence[Like] | Annotation, dtype: str = "float32") -> GraphValue:
        """A parameter: a tensor of a shape and dtype, or whatever an annotation says."""
        annotation = shape if isinstance(shape, Annotation) else tensor(shape, dtype)
        made = GraphParameter(self._free(name), annotation)
        self._written(lambda: self._scope.parameters([made]))
        self._parameters.append(made)
        return GraphValue(self, name, annotation)

    def constant(self, name: str, array: npt.ArrayLike | Constant, dtype: str | None = None) -> GraphValue:
        """An array that the module holds; the same array may be added again under the same name."""
        made = array if isinstance(array, Constant) else self._written(lambda: Constant.of(array, dtype))
        if name not in self._constants:
            self._constants[self._free(name)] = made
        elif self._constants[name] != made:
            raise GraphError(f"{self.name}: there is another constant '{name}' already")
        return GraphValue(self, name, self._constants[name].annotation)

    def known(self, name: str) -> GraphValue:
        """The value of a name: a parameter, a result of a call, or a constant."""
        return GraphValue(self, name, self._written(lambda: self._scope.annotation(name)))

    # --- calls --------------------------------------------------------------------------------------------------------

    def op(self, operator: str | GraphOperator, *args: Given, name: str | None = None, **attributes: Any) -> GraphValue:
        """A call of an operator; a plain number takes the dtype of the first tensor among the operands."""
        if isinstance(operator, str):
            made: GraphOperator = self._written(lambda: operator_named(operator, **attributes))
        elif attributes:
            raise GraphError(f"{self.name}: {operator.name} has its attributes already")
        else:
            made = operator
        dtypes = [a.annotation.dtype for a in args if isinstance(getattr(a, "annotation", None), TensorType)]  # type: ignore[union-attr]
        dtype = next((d for d in dtypes if d != BOOL), None)  # the condition of `where` does not count
        return self.emit(OperatorCall(tuple(self._operand(a, dtype) for a in args), made), name)

    def __getattr__(self, operator: str) -> Callable[..., GraphValue]:
        if operator.startswith("_"):
            raise AttributeError(operator)
        return lambda *args, **attributes: self.op(operator, *args, **attributes)

    def call_program(
        self,
        program: str | Program,
        *args: Given,
        sizes: Mapping[str, Like] | None = None,
        name: str | None = None,
    ) -> GraphValue:
        """A call of a program; its sizes are taken from the operands' shapes where they are extents of inputs."""
        if isinstance(program, Program):
            program = self._added(program)
        held = self._written(lambda: self._scope.module.program(str(program)))
        operands = tuple(self._operand(a, None) for a in args)
        inputs, outputs = interface(held)
        found = Unification(self._scope.facts)
        for buffer, operand in zip(inputs, operands, strict=False):
            wanted = TensorType(buffer.shape, buffer.dtype)
            self._written(partial(found.match, buffer.name, wanted, self._scope.annotation(operand)))
        found.solved.update({Var(n, "size"): e for n, e in zip(sizes or {}, extents(list((sizes or {}).values())))})
        put = Substitution(found.solved)
        given = tuple((n, found.solved[Var(n, "size")]) for n in held.sizes if Var(n, "size") in found.solved)
        made = tuple(TensorType(tuple(map(put, b.shape)), b.dtype) for b in outputs)
        return self.emit(ProgramCall(operands, made, program, given), name)

    def call_library(
        self,
        function: str,
        *args: Given,
        out: TensorType | Sequence[TensorType],
        name: str | None = None,
        **attributes: Any,
    ) -> GraphValue:
        """A call of a library function that writes tensors `out`."""
        outputs = (out,) if isinstance(out, TensorType) else tuple(out)
        operands = tuple(self._operand(a, None) for a in args)
        return self.emit(LibraryCall(operands, outputs, function, tuple(sorted(attributes.items()))), name)

    def call(self, function: str, *args: Given, name: str | None = None) -> GraphValue:
        """A call of a function of the module."""
        return self.emit(FunctionCall(tuple(self._operand(a, None) for a in args), function), name)

    def match_cast(
        self, value: GraphValue, shape: Sequence[Like] | Annotation, dtype: str | None = None, name: str | None = None
    ) -> GraphValue:
        """The value with a finer annotation, checked at run time; symbols that are new here are bound by it."""
        if not isinstance(shape, Annotation):
            known = value.annotation.dtype if isinstance(value.annotation, TensorType) else None
            shape = TensorType(extents(shape), dtype or known)
        return self.emit(MatchCast(value.name, shape), name)

    def tuple(self, *args: Given, name: str | None = None) -> GraphValue:
        """Several values as one."""
        return self.emit(TupleCall(tuple(self._operand(a, None) for a in args)), name)

    def item(self, value: GraphValue, index: int, name: str | None = None) -> GraphValue:
        """One of the values of a tuple."""
        return self.emit(ItemCall(self._operand(value, None), index), name)

    def shape(self, *dims: Like) -> Extents:
        """A shape as an operand."""
        return Extents(tuple(extents(dims)))

    def emit(self, call: GraphCall, name: str | None = None) -> GraphValue:
        """Adds any call."""
        held = self._free(name) if name is not None else self._new(call.callee)
        made = self._written(lambda: self._scope.bind(held, call))
        self._bindings.append(made)
        return GraphValue(self, held, made.annotation)

    # --- the result ---------------------------------------------------------------------------------------------------

    def build(self, *results: GraphValue) -> GraphModule:
        """The module with the function, which returns a value, or a tuple of several."""
        if not results:
            raise GraphError(f"{self.name}: a function returns at least one value")
        result = results[0] if len(results) == 1 else self.tuple(*results)
        self._operand(result, None)
        made = GraphFunction(self.name, tuple(self._parameters), tuple(self._bindings), result.name, self._ranges)
        module = replace(self._module, constants=self._constants, programs=self._programs)
        return module.with_function(made)

    # --- names and operands -------------------------------------------------------------------------------------------

    def _operand(self, value: Given, dtype: str | None) -> Operand:
        if isinstance(value, GraphValue):
            if value.builder is not self:
                raise GraphError(f"{self.name}: '{value.name}' is a value of the function '{value.builder.name}'")
            return value.name
        if isinstance(value, (Scalar, Extents)):
            return value
        held: Any = value.item() if isinstance(value, np.generic) else value
        if isinstance(held, bool):
            return Scalar(held, BOOL)
        if not isinstance(held, (int, float, Expr)):
            raise GraphError(f"{self.name}: {value!r} is not an operand; arrays become constants first")
        if dtype is None:
            raise GraphError(f"{self.name}: the number {value!r} has no dtype here; write Scalar({value!r}, dtype)")
        return Scalar(float(held) if dtype in FLOATS and not isinstance(held, Expr) else held, dtype)

    def _added(self, program: Program) -> str:
        name, number = program.name, 0
        while self._programs.get(name, program) is not program and str(self._programs[name]) != str(program):
            number += 1
            name = f"{program.name}_{number}"
        self._programs[name] = program
        return name

    def is_taken(self, name: str) -> bool:
        """Whether a value of the function or a constant of the module has the name."""
        return name in self._scope.annotations or name in self._constants

    def _new(self, base: str) -> str:
        """A free name for the result of a call: that of the callee, numbered if it is taken."""
        name = base
        while self.is_taken(name):
            self._numbers[base] = self._numbers.get(base, 0) + 1
            name = f"{base}_{self._numbers[base]}"
        return name

    def _free(self, name: str) -> str:
        if not name.isidentifier():
            raise GraphError(f"{self.name}: '{name}' is not a name (letters, digits and underscores)")
        if self.is_taken(name):
            raise GraphError(f"{self.name}: two values are called '{name}'")
        return name

    def _written(self, step: Callable[[], Any]) -> Any:
        """Runs a step; its errors begin with the name of the function and say which call it would have been."""
        try:
            return step()
        except GraphError as e:
            raise GraphError(f"{self.name}: {e}") from e
