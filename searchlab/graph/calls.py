"""The calls that a graph consists of, as immutable values; operands are known by name, as buffers are in a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from searchlab.dtype import BOOL, DTYPES, FLOATS
from searchlab.errors import GraphError
from searchlab.graph.annotations import Annotation, Put, Shape, ShapeType, TensorType
from searchlab.graph.operator import GraphOperator, attribute_dims, map_attribute
from searchlab.ir.expr import Expr


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number as an operand: a tensor of rank 0 that programs contain as a constant; it may be an index expression."""

    value: int | float | bool | Expr
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise GraphError(f"unknown dtype '{self.dtype}'; known: {', '.join(DTYPES)}")
        if not isinstance(self.value, Expr) and self.dtype not in FLOATS and self.dtype != BOOL:
            if int(self.value) != self.value:
                raise GraphError(f"{self.value!r} is not a whole number, so it cannot be an operand of {self.dtype}")

    @property
    def annotation(self) -> TensorType:
        """A tensor of rank 0."""
        return TensorType((), self.dtype)


@dataclass(frozen=True, slots=True)
class Extents:
    """A shape as an operand."""

    dims: Shape

    @property
    def annotation(self) -> ShapeType:
        """A shape whose extents are known."""
        return ShapeType(self.dims)


Operand = str | Scalar | Extents


@dataclass(frozen=True, slots=True)
class GraphCall(ABC):
    """Base of all calls: what is called, on which operands."""

    @property
    @abstractmethod
    def callee(self) -> str:
        """What is called, in a word."""

    @abstractmethod
    def operands(self) -> tuple[Operand, ...]:
        """The operands in order."""

    @abstractmethod
    def with_operands(self, operands: tuple[Operand, ...]) -> GraphCall:
        """The same call on other operands."""

    def own_dims(self) -> Iterator[Expr]:
        """The index expressions of the call itself: in attributes, sizes and annotations."""
        return iter(())

    def map_own_dims(self, put: Put) -> GraphCall:
        """The call with its own index expressions replaced."""
        return self

    def functions(self) -> tuple[str, ...]:
        """The functions of the module that it may call."""
        return ()

    def dims(self) -> Iterator[Expr]:
        """The index expressions of the call and of its operands."""
        yield from self.own_dims()
        for operand in self.operands():
            if isinstance(operand, Extents):
                yield from operand.dims
            elif isinstance(operand, Scalar) and isinstance(operand.value, Expr):
                yield operand.value

    def map_dims(self, put: Put) -> GraphCall:
        """The call with the index expressions of itself and of its operands replaced."""
        return self.map_own_dims(put).with_operands(tuple(_map_operand(o, put) for o in self.operands()))

    def names(self) -> tuple[str, ...]:
        """The operands that are values with a name."""
        return tuple(o for o in self.operands() if isinstance(o, str))

    def renamed(self, names: Mapping[str, Operand]) -> GraphCall:
        """The same call with other operands in place of named ones."""
        return self.with_operands(tuple(names.get(o, o) if isinstance(o, str) else o for o in self.operands()))


def _map_operand(operand: Operand, put: Put) -> Operand:
    if isinstance(operand, Extents):
        return Extents(tuple(map(put, operand.dims)))
    if isinstance(operand, Scalar) and isinstance(operand.value, Expr):
        return replace(operand, value=put(operand.value))
    return operand


@dataclass(frozen=True, slots=True)
class _ArgumentCall(GraphCall):
    """A call with a field `args`."""

    args: tuple[Operand, ...]

    def operands(self) -> tuple[Operand, ...]:
        """The operands in order."""
        return self.args

    def with_operands(self, operands: tuple[Operand, ...]) -> GraphCall:
        """The same call on other operands."""
        return replace(self, args=operands)


@dataclass(frozen=True, slots=True)
class OperatorCall(_ArgumentCall):
    """A call of an operator of the registry, which holds its attributes."""

    operator: GraphOperator

    @property
    def callee(self) -> str:
        """What is called, in a word."""
        return self.operator.name

    def own_dims(self) -> Iterator[Expr]:
        """The index expressions among the attributes."""
        return (e for _, value in self.operator.attributes() for e in attribute_dims(value))

    def map_own_dims(self, put: Put) -> OperatorCall:
        """The call with the index expressions among its attributes replaced."""
        return replace(self, operator=self.operator.map_dims(put))


@dataclass(frozen=True, slots=True)
class _OutputCall(_ArgumentCall):
    """A call in destination-passing style: the caller allocates `outputs`, the callee writes them."""

    outputs: tuple[TensorType, ...]

    def output_dims(self) -> Iterator[Expr]:
        """The extents of all outputs."""
        return (e for output in self.outputs for e in output.dims())


@dataclass(frozen=True, slots=True)
class ProgramCall(_OutputCall):
    """A call of a tensor program of the module; `sizes` gives the program's run-time sizes by name.

    `workspace` is the number of bytes of scratch memory that the caller provides; None if the kernel has its own.
    """

    program: str
    sizes: tuple[tuple[str, Expr], ...] = ()
    workspace: Expr | None = None

    @property
    def callee(self) -> str:
        """What is called, in a word."""
        return self.program

    def own_dims(self) -> Iterator[Expr]:
        """The sizes, the extents of outputs, and the bytes of the workspace."""
        yield from (e for _, e in self.sizes)
        yield from self.output_dims()
        yield from () if self.workspace is None else (self.workspace,)

    def map_own_dims(self, put: Put) -> ProgramCall:
        """The call with sizes, outputs and workspace replaced."""
        outputs = tuple(output.map_dims(put) for output in self.outputs)
        sizes = tuple((name, put(e)) for name, e in self.sizes)
        workspace = None if self.workspace is None else put(self.workspace)
        return replace(self, outputs=outputs, sizes=sizes, workspace=workspace)


@dataclass(frozen=True, slots=True)
class LibraryCall(_OutputCall):
    """A call of a registered function (`library`), with attributes that are passed by name."""

    function: str
    attributes: tuple[tuple[str, object], ...] = ()

    @property
    def callee(self) -> str:
        """What is called, in a word."""
        return self.function

    def own_dims(self) -> Iterator[Expr]:
        """The index expressions among the attributes and the extents of outputs."""
        yield from (e for _, value in self.attributes for e in attribute_dims(value))
        yield from self.output_dims()

    def map_own_dims(self, put: Put) -> LibraryCall:
        """The call with attributes and outputs replaced."""
        attributes = tuple((name, map_attribute(value, put)) for name, value in self.attributes)
        return replace(self, outputs=tuple(o.map_dims(put) for o in self.outputs), attributes=attributes)


@dataclass(frozen=True, slots=True)
class FunctionCall(_ArgumentCall):
    """A call of a function of the same module, of which only the signature matters here."""

    function: str

    @property
    def callee(self) -> str:
        """What is called, in a word."""
        return self.function

    def functions(self) -> tuple[str, ...]:
        """The function."""
        return (self.function,)


@dataclass(frozen=True, slots=True)
class BranchCall(_ArgumentCall):
    """A call of one of two functions of the module, as a condition on sizes decides at run time."""

    condition: Expr
    then: str
    otherwise: str

    @property
    def callee(self) -> str:
        """What is called, in a word."""
        return self.then

    def functions(self) -> tuple[str, ...]:
        """Both functions."""
        return self.then, self.otherwise

    def own_dims(self) -> Iterator[Expr]:
        """The condition."""
        yield self.condition

    def map_own_dims(self, put: Put) -> BranchCall:
        """The call with the symbols of its condition replaced."""
        return replace(self, condition=put(self.condition))


@dataclass(frozen=True, slots=True)
class MatchCast(GraphCall):
    """A value that is asserted to have an annotation, which is checked at run time and may bind new symbols."""

    value: Operand
    annotation: Annotation

    @property
    def callee(self) -> str:
        """What is called, in a word."""
        return "match_cast"

    def operands(self) -> tuple[Operand, ...]:
        """The value."""
        return (self.value,)

    def with_operands(self, operands: tuple[Operand, ...]) -> MatchCast:
        """The same assertion on another value."""
        (value,) = operands
        return replace(self, value=value)

    def own_dims(self) -> Iterator[Expr]:
        """The extents that are asserted."""
        return self.annotation.dims()

    def map_own_dims(self, put: Put) -> MatchCast:
        """The assertion with other extents."""
        return replace(self, annotation=self.annotation.map_dims(put))


@dataclass(frozen=True, slots=True)
class TupleCall(_ArgumentCall):
    """Several values as one."""

    @property
    def callee(self) -> str:
        """What is called, in a word."""
        return "tuple"


@dataclass(frozen=True, slots=True)
class ItemCall(GraphCall):
    """One of the values of a tuple."""

    value: Operand
    index: int

    @property
    def callee(self) -> str:
        """What is called, in a word."""
        return "getitem"

    def operands(self) -> tuple[Operand, ...]:
        """The tuple."""
        return (self.value,)

    def with_operands(self, operands: tuple[Operand, ...]) -> ItemCall:
        """The same item of another tuple."""
        (value,) = operands
        return replace(self, value=value)
