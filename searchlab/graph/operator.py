"""Operators of graphs: a registry by name.  An operator is a frozen dataclass, whose fields are its attributes.

    @graph_operator("softmax")
    @dataclass(frozen=True)
    class SoftmaxOp(GraphOperator):
        axis: int = -1
        def deduce(self, facts, x): ...         the annotation of the result
        def reference(self, x): ...             the result in numpy
        def program(self, facts, x): ...        the computation as a tensor program

An attribute is an int, float, bool or str, `Ints` (integers), `Dim` (an index expression) or `Dims` (several), or one
of these or None; values are normalised when an operator is made, so equal operators are equal values.
"""

from __future__ import annotations

import dataclasses
import inspect
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError, IRError
from searchlab.graph.annotations import Annotation, Put, TensorType
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.expr import Expr, index
from searchlab.ir.program import Program
from searchlab.registry import nearest

Array = npt.NDArray[Any]
Ints = tuple[int, ...]
Dim = Expr
Dims = tuple[Expr, ...]


@dataclass(frozen=True)
class GraphOperator(ABC):
    """Base of operators; subclasses add their attributes as fields."""

    name: ClassVar[str] = ""
    is_view: ClassVar[bool] = False  # whether the result has the elements of its operand in the same order
    takes_numbers: ClassVar[bool] = False  # whether plain numbers may be operands, as constants of the program
    library: ClassVar[str | None] = None  # the library function that computes it if there is no program

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            object.__setattr__(self, f.name, _read(self.name, f, getattr(self, f.name)))

    @abstractmethod
    def deduce(self, facts: SizeFacts, *args: Any) -> Annotation:
        """The annotation of the result, from operands whose shapes and dtypes are known; refuses those that misfit."""

    @abstractmethod
    def reference(self, *args: Any) -> Array | tuple[Array, ...]:
        """The result in numpy; floats are given as float64, so that sums are exact to float32."""

    def program(self, facts: SizeFacts, *args: Any) -> Program | None:
        """The computation as a program whose inputs are the operands that are no numbers; None if there is none."""
        return None

    def coarse(self, *args: TensorType) -> Annotation:
        """What is known of the result if the shape or the dtype of an operand is not."""
        return TensorType(dtype=args[0].dtype if args else None)

    def attributes(self) -> tuple[tuple[str, Any], ...]:
        """All attributes by name."""
        return tuple((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))

    def telling(self) -> tuple[tuple[str, Any], ...]:
        """The attributes that are not at their default."""
        return tuple((f.name, v) for f in dataclasses.fields(self) if (v := getattr(self, f.name)) != f.default)

    def map_dims(self, put: Put) -> GraphOperator:
        """The operator with the index expressions among its attributes replaced."""
        changed = {name: new for name, value in self.attributes() if (new := map_attribute(value, put)) is not value}
        return dataclasses.replace(self, **changed) if changed else self

    @classmethod
    def arity(cls) -> tuple[int, int | None, str]:
        """The fewest and the most operands (None: any number), and their names."""
        return _arity(cls)


@cache
def _arity(cls: type[GraphOperator]) -> tuple[int, int | None, str]:
    _, _, *operands = inspect.signature(cls.deduce).parameters.values()
    least = sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in operands)
    several = any(p.kind is p.VAR_POSITIONAL for p in operands)
    names = (f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in operands)
    return least, None if several else len(operands), ", ".join(names)


def attribute_dims(value: object) -> Iterator[Expr]:
    """The index expressions of an attribute."""
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple):
        yield from (e for e in value if isinstance(e, Expr))


def map_attribute(value: Any, put: Put) -> Any:
    """An attribute with its index expressions replaced; the same object if it has none."""
    if isinstance(value, Expr):
        return put(value)
    if isinstance(value, tuple) and any(isinstance(e, Expr) for e in value):
        return tuple(put(e) if isinstance(e, Expr) else e for e in value)
    return value


# --- attributes -------------------------------------------------------------------------------------------------------


def _integer(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    return int(value.__index__())


def _boolean(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError
    return bool(value)


def _number(value: Any) -> float | int | bool | Expr:
    """A number, an index expression, or a truth value."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, Expr):
        return index(value)
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, np.floating, np.integer)):
        raise TypeError
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _several(read: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda values: tuple(read(v) for v in ((values,) if isinstance(values, (int, Expr)) else values))


_READERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "int": (_integer, "an integer"),
    "float": (_float, "a number"),
    "bool": (_boolean, "True or False"),
    "str": (_text, "a text"),
    "Number": (_number, "a number"),
    "Ints": (_several(_integer), "a tuple of integers"),
    "Dim": (index, "an integer or an index expression"),
    "Dims": (_several(index), "a tuple of integers and index expressions"),
}
Number = float | int | bool | Expr
_HINTS: dict[str, Any] = {
    "int": int, "float": float, "bool": bool, "str": str, "Number": Number, "Ints": Ints, "Dim": Dim, "Dims": Dims,
}  # fmt: skip


def _kind(f: dataclasses.Field[Any]) -> tuple[str | None, bool]:
    """The kind of an attribute, None if there is no such kind, and whether it may be None."""
    if isinstance(f.type, str):  # annotations of a module that postpones their evaluation
        name = f.type.removesuffix(" | None")
        return name if name in _READERS else None, name != f.type
    for name, hint in _HINTS.items():
        if f.type in (hint, hint | None):
            return name, f.type != hint
    return None, False


def _read(name: str, f: dataclasses.Field[Any], value: Any) -> Any:
    """The normal form of an attribute's value."""
    kind, optional = _kind(f)
    if optional and value is None:
        return None
    assert kind is not None  # the registry has checked it
    read, expected = _READERS[kind]
    try:
        return read(value)
    except (AttributeError, TypeError, ValueError, IRError):
        raise GraphError(f"{name}: {f.name} = {value!r} is not {expected}") from None


# --- the registry -----------------------------------------------------------------------------------------------------

_table: dict[str, type[GraphOperator]] = {}
C = TypeVar("C", bound=type[GraphOperator])


def graph_operator(name: str) -> Callable[[C], C]:
    """Registers a class of operators under a name."""

    def register(cls: C) -> C:
        known = _table.get(name)
        if known is not None and known.__module__ != cls.__module__:  # the same module again: it was reloaded
            raise GraphError(f"operator '{name}' of {cls.__module__} is already defined by {known.__module__}")
        for f in dataclasses.fields(cls):
            if _kind(f)[0] is None:
                raise GraphError(
                    f"operator '{name}': attribute '{f.name}' needs one of the types {', '.join(_READERS)}"
                )
        cls.name = name
        _table[name] = cls
        return cls

    return register


def graph_operators() -> dict[str, type[GraphOperator]]:
    """All operators by name."""
    return dict(sorted(_table.items()))


def operator_named(name: str, /, **attributes: Any) -> GraphOperator:
    """An operator with attributes; unknown names and attributes are refused with those accepted."""
    if name not in _table:
        raise GraphError(f"unknown operator '{name}'{nearest(name, sorted(_table))}")
    cls = _table[name]
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for given in attributes:
        if given not in fields:
            raise GraphError(f"{name}: unknown attribute '{given}'{nearest(given, fields, 'accepted')}")
    for f in fields.values():
        if f.name not in attributes and f.default is dataclasses.MISSING:
            raise GraphError(f"{name}: attribute '{f.name}' must be given")
    return cls(**attributes)
