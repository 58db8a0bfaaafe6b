"""The interpreter of graphs on numpy: slow, obvious, and the oracle for everything that runs graphs.

Every value is checked against its annotation as soon as it is computed, so deduction is tested wherever a graph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.dtype import DTYPES, FLOATS
from searchlab.errors import GraphError
from searchlab.graph.annotations import Annotation, ObjectType, ShapeType, TensorType, TupleType
from searchlab.graph.calls import (
    BranchCall,
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
from searchlab.graph.deduction import interface, operator_annotation
from searchlab.graph.functions import GraphFunction, GraphModule
from searchlab.graph.library import library_function
from searchlab.graph.listing import call_text
from searchlab.graph.operator import GraphOperator, map_attribute
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.algebra import solvable
from searchlab.ir.bfloat16 import numbers, stored
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import Const, Expr, Var
from searchlab.ir.interpret import interpret

Array = npt.NDArray[Any]


def evaluate_graph(module: GraphModule, *args: Any, function: str = "main") -> Any:
    """The result of a function on arrays (tuples for tuples, tuples of integers for shapes)."""
    return _plain(_Frame(module, module[function], args).result())


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """A tensor at run time; the dtype says what the elements of the array stand for."""

    array: Array
    dtype: str

    @property
    def annotation(self) -> TensorType:
        """Its actual shape and dtype."""
        return TensorType(tuple(map(Const, self.array.shape)), self.dtype)


@dataclass
class _Frame:
    """One call of a function: its values, and the values of its symbols."""

    module: GraphModule
    function: GraphFunction
    args: Sequence[Any]
    symbols: dict[Var, int] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def enter(self) -> None:
        """Takes the arguments: all symbols are solved before any shape is checked, since one may need another's."""
        name, parameters = self.function.name, self.function.parameters
        if len(parameters) != len(self.args):
            names = ", ".join(p.name for p in parameters)
            raise GraphError(f"{name} takes ({names}), got {len(self.args)} values")
        for p, value in zip(parameters, self.args, strict=True):
            self.values[p.name] = _held(f"{name}: {p.name}", p.annotation, value)
            self.solve(p.annotation, self.values[p.name])
        for p in parameters:
            self.check(f"{name}: {p.name}", p.annotation, self.values[p.name])
        self.function.facts.check(self.symbols, name)

    def result(self) -> Any:
        """Runs all calls in order."""
        self.enter()
        for b in self.function.bindings:
            where = f"{self.function.name}: {b.name} = {call_text(b.call)}"
            try:
                value = _RULES[type(b.call)](self, b.call)
            except (GraphError, IndexError, ValueError) as e:  # also what numpy says of operands
                raise GraphError(f"{where}: {e}") from e
            self.check(where, b.annotation, value)
            self.values[b.name] = value
        return self.operand(self.function.result)

    # --- symbols ------------------------------------------------------------------------------------------------------

    def solve(self, annotation: Annotation, value: Any) -> None:
        """Binds symbols that the extents of a value determine, unless they are bound already."""
        if isinstance(annotation, TupleType):
            for part, item in zip(annotation.parts, value, strict=True):
                self.solve(part, item)
            return
        for e, n in zip(annotation.dims(), _actual(value), strict=False):
            if (found := solvable(e)) is not None:
                symbol, scale, offset = found
                self.symbols.setdefault(symbol, (int(n) - offset) // scale)  # `check` sees what does not divide

    def check(self, where: str, annotation: Annotation, value: Any) -> None:
        """Refuses a value that is not what its annotation says."""
        if isinstance(annotation, TupleType):
            for number, (part, item) in enumerate(zip(annotation.parts, value, strict=True)):
                self.check(f"{where}[{number}]", part, item)
        elif isinstance(annotation, (TensorType, ShapeType)) and not self._fits(annotation, value):
            got = value.annotation if isinstance(value, HeldTensor) else ShapeType(tuple(map(Const, value)))
            solution = ", ".join(f"{v} = {n}" for v, n in self.symbols.items())
            raise GraphError(
                f"{where}: the value is {got}, expected {annotation}{f' with {solution}' * bool(solution)}"
            )

    def _fits(self, annotation: TensorType | ShapeType, value: Any) -> bool:
        actual = _actual(value)
        if isinstance(annotation, TensorType):
            if not isinstance(value, HeldTensor) or annotation.dtype not in (None, value.dtype):
                return False
            known = annotation.shape
        else:
            known = annotation.extents
        if known is None:
            return annotation.rank in (None, len(actual))
        return tuple(map(self.number, known)) == actual

    def number(self, e: Expr) -> int:
        """The value of an index expression."""
        return int(evaluate(e, {v.name: n for v, n in self.symbols.items()}))

    def put(self, e: Expr) -> Expr:
        """An index expression as a constant."""
        return Const(self.number(e))

    def operand(self, operand: Operand) -> Any:
        """The value of an operand."""
        if isinstance(operand, str):
            if operand in self.values:
                return self.values[operand]
            constant = self.module.constants[operand]
            return HeldTensor(constant.array, constant.dtype)
        if isinstance(operand, Scalar):
            value = self.number(operand.value) if isinstance(operand.value, Expr) else operand.value
            return HeldTensor(stored(np.asarray(value), operand.dtype), operand.dtype)
        return tuple(self.number(e) for e in operand.dims)

    def outputs(self, call: ProgramCall | LibraryCall) -> list[HeldTensor]:
        """Arrays for the outputs of a call, full of what is recognisable."""
        shapes = [tuple(self.number(e) for e in o.dims()) for o in call.outputs]
        kinds = [o.dtype or "" for o in call.outputs]
        return [HeldTensor(np.full(s, 99, DTYPES[d].storage), d) for s, d in zip(shapes, kinds, strict=True)]


def _operator(run: _Frame, call: OperatorCall) -> Any:
    operator = call.operator.map_dims(run.put)
    return evaluate_operator(operator, [run.operand(o) for o in call.args])


def evaluate_operator(operator: GraphOperator, args: Sequence[HeldTensor]) -> Any:
    """The result of an operator by its reference, converted to the dtypes that it deduces."""
    deduced = operator_annotation(operator, SizeFacts(), [a.annotation for a in args])
    with np.errstate(all="ignore"):
        found = operator.reference(*(_wide(a) for a in args))
        if isinstance(deduced, TupleType):
            return tuple(_converted(y, part) for y, part in zip(found, deduced.parts, strict=True))
        return _converted(found, deduced)


def _wide(value: HeldTensor) -> Array:
    """The numbers that an array holds; floats in double precision."""
    held = numbers(value.array, value.dtype)
    return held.astype(np.float64) if value.dtype in FLOATS else held


def _converted(value: Any, annotation: Annotation) -> HeldTensor:
    assert isinstance(annotation, TensorType) and annotation.dtype is not None
    dtype = annotation.dtype
    array = np.asarray(value)
    return HeldTensor(np.ascontiguousarray(stored(array, dtype)).reshape(array.shape), dtype)


def _program(run: _Frame, call: ProgramCall) -> Any:
    program = run.module.program(call.program)
    inputs, _ = interface(program)
    if program.layouts:
        raise GraphError(f"{program.name} keeps inputs in layouts of its own; the interpreter runs plain programs")
    arrays = {b.name: run.operand(o).array for b, o in zip(inputs, call.args, strict=True)}
    found = interpret(program, arrays, {name: run.number(e) for name, e in call.sizes})
    held = tuple(HeldTensor(found[name], o.dtype or "") for name, o in zip(program.outputs, call.outputs, strict=True))
    return held[0] if len(held) == 1 else held


def _library(run: _Frame, call: LibraryCall) -> Any:
    outputs = run.outputs(call)
    attributes = {name: _attribute(map_attribute(value, run.put)) for name, value in call.attributes}
    arrays = [o.array if isinstance(o, HeldTensor) else o for o in map(run.operand, call.args)]
    library_function(call.function)(*arrays, *(o.array for o in outputs), **attributes)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _attribute(value: Any) -> Any:
    """An attribute whose index expressions are constants, as plain numbers."""
    if isinstance(value, tuple):
        return tuple(map(_attribute, value))
    return value.value if isinstance(value, Const) else value


def _function(run: _Frame, call: FunctionCall) -> Any:
    held = [run.operand(o) for o in call.args]
    return _Frame(run.module, run.module[call.function], held).result()


def _branch(run: _Frame, call: BranchCall) -> Any:
    return _function(run, FunctionCall(call.args, call.then if run.number(call.condition) else call.otherwise))


def _match_cast(run: _Frame, call: MatchCast) -> Any:
    value = run.operand(call.value)
    run.solve(call.annotation, value)
    run.function.facts.check(run.symbols, "match_cast")
    run.check("the value", call.annotation, value)
    return value


_RULES: dict[type[GraphCall], Callable[[_Frame, Any], Any]] = {
    OperatorCall: _operator,
    ProgramCall: _program,
    LibraryCall: _library,
    FunctionCall: _function,
    BranchCall: _branch,
    MatchCast: _match_cast,
    TupleCall: lambda run, call: tuple(run.operand(o) for o in call.args),
    ItemCall: lambda run, call: run.operand(call.value)[call.index],
}


def _held(where: str, annotation: Annotation, value: Any) -> Any:
    """A value that a caller passes, as the interpreter holds it."""
    if isinstance(value, HeldTensor):
        return value
    if isinstance(annotation, TupleType):
        if not isinstance(value, (tuple, list)) or len(value) != len(annotation.parts):
            raise GraphError(f"{where}: expected {annotation}, got {type(value).__name__}")
        return tuple(_held(f"{where}[{i}]", a, v) for i, (a, v) in enumerate(zip(annotation.parts, value, strict=True)))
    if isinstance(annotation, ShapeType) or (isinstance(annotation, ObjectType) and isinstance(value, (tuple, list))):
        return tuple(value)
    array = np.asarray(value)
    dtype = annotation.dtype if isinstance(annotation, TensorType) else None
    dtype = dtype or array.dtype.name
    if dtype not in DTYPES or array.dtype.name != DTYPES[dtype].storage:
        expected = DTYPES[dtype].described if dtype in DTYPES else str(annotation)
        raise GraphError(f"{where}: an array of {array.dtype}, expected {expected}")
    return HeldTensor(array, dtype)


def _actual(value: Any) -> tuple[int, ...]:
    """The extents of a tensor, or those that a shape consists of."""
    return value.array.shape if isinstance(value, HeldTensor) else tuple(value)


def _plain(value: Any) -> Any:
    """A result as plain arrays and tuples."""
    if isinstance(value, HeldTensor):
        return value.array
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value
