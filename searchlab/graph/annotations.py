"""Annotations: what is known about a value of a graph before it runs.

A tensor has a shape of index expressions (those of the IR, with run-time sizes as symbols) and a dtype; either may be
unknown.  Shapes are values, too: a `ShapeType` parameter hands symbols to a function that no tensor's shape determines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from searchlab.dtype import DTYPES
from searchlab.errors import GraphError
from searchlab.ir.expr import Expr, Like, Var, index, value_of
from searchlab.ir.walk import variables

Shape = tuple[Expr, ...]
Put = Callable[[Expr], Expr]


@dataclass(frozen=True, slots=True)
class Annotation:
    """Base of all annotations; immutable, compared by structure."""

    def dims(self) -> Iterator[Expr]:
        """All index expressions in it, in order."""
        return iter(())

    def map_dims(self, put: Put) -> Annotation:
        """The annotation with every index expression replaced."""
        return self

    def coarse(self, known: Iterable[Var]) -> Annotation:
        """The annotation without the shapes that mention other symbols than the `known` ones."""
        return self

    @property
    def symbols(self) -> frozenset[Var]:
        """All symbols of its index expressions."""
        return frozenset().union(*map(variables, self.dims()))


@dataclass(frozen=True, slots=True)
class ObjectType(Annotation):
    """Any value: nothing is known about it."""

    def __str__(self) -> str:
        return "object"


@dataclass(frozen=True, slots=True)
class TensorType(Annotation):
    """A tensor: its shape, or only its rank, or neither; its dtype, or None."""

    shape: Shape | None = None
    dtype: str | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in DTYPES:
            raise GraphError(f"unknown dtype '{self.dtype}'; known: {', '.join(DTYPES)}")
        if self.shape is not None:
            if self.rank not in (None, len(self.shape)):
                raise GraphError(f"a tensor of shape {self.shape} does not have rank {self.rank}")
            object.__setattr__(self, "rank", len(self.shape))

    @property
    def is_whole(self) -> bool:
        """Whether shape and dtype are known."""
        return self.shape is not None and self.dtype is not None

    def dims(self) -> Iterator[Expr]:
        """All index expressions in it, in order."""
        return iter(self.shape or ())

    def map_dims(self, put: Put) -> TensorType:
        """The annotation with every index expression replaced."""
        return self if self.shape is None else replace(self, shape=tuple(map(put, self.shape)))

    def coarse(self, known: Iterable[Var]) -> TensorType:
        """The annotation, with its rank only if its shape mentions other symbols than the `known` ones."""
        return self if self.symbols <= frozenset(known) else replace(self, shape=None)

    def __str__(self) -> str:
        dtype = self.dtype or "?"
        if self.shape is not None:
            return f"{dtype}[{', '.join(map(str, self.shape))}]"
        return f"{dtype}[...]" if self.rank is None else f"{dtype}[{', '.join('?' * self.rank)}]"


@dataclass(frozen=True, slots=True)
class ShapeType(Annotation):
    """A shape as a value: its extents, or only their number, or neither."""

    extents: Shape | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        if self.extents is not None:
            if self.rank not in (None, len(self.extents)):
                raise GraphError(f"the shape {self.extents} does not have rank {self.rank}")
            object.__setattr__(self, "rank", len(self.extents))

    def dims(self) -> Iterator[Expr]:
        """All index expressions in it, in order."""
        return iter(self.extents or ())

    def map_dims(self, put: Put) -> ShapeType:
        """The annotation with every index expression replaced."""
        return self if self.extents is None else replace(self, extents=tuple(map(put, self.extents)))

    def coarse(self, known: Iterable[Var]) -> ShapeType:
        """The annotation, with its rank only if its extents mention other symbols than the `known` ones."""
        return self if self.symbols <= frozenset(known) else replace(self, extents=None)

    def __str__(self) -> str:
        if self.extents is not None:
            return f"shape[{', '.join(map(str, self.extents))}]"
        return "shape[...]" if self.rank is None else f"shape[{', '.join('?' * self.rank)}]"


@dataclass(frozen=True, slots=True)
class TupleType(Annotation):
    """Several values."""

    parts: tuple[Annotation, ...] = field(default=())

    def dims(self) -> Iterator[Expr]:
        """All index expressions in it, in order."""
        return (e for part in self.parts for e in part.dims())

    def map_dims(self, put: Put) -> TupleType:
        """The annotation with every index expression replaced."""
        return TupleType(tuple(part.map_dims(put) for part in self.parts))

    def coarse(self, known: Iterable[Var]) -> TupleType:
        """The annotation whose parts mention no other symbols than the `known` ones."""
        allowed = frozenset(known)
        return TupleType(tuple(part.coarse(allowed) for part in self.parts))

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parts))})"


def extents(shape: Sequence[Like]) -> Shape:
    """A shape from integers and index expressions; extents are at least 1."""
    made = tuple(index(e) for e in shape)
    if any((known := value_of(e)) is not None and known < 1 for e in made):
        raise GraphError(f"({', '.join(map(str, made))}) is not a shape: extents are at least 1")
    return made


def tensor(shape: Sequence[Like], dtype: str = "float32") -> TensorType:
    """The annotation of a tensor whose shape and dtype are known."""
    return TensorType(extents(shape), dtype)


def plain(e: Expr) -> int | Expr:
    """An extent as an integer if it is one."""
    known = value_of(e)
    return e if known is None else known
