"""Matching annotations: whether a value fits a parameter, and what its shape says about the parameter's symbols."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from searchlab.errors import GraphError
from searchlab.graph.annotations import Annotation, ObjectType, ShapeType, TensorType, TupleType
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.algebra import solvable
from searchlab.ir.expr import Expr, Var
from searchlab.ir.walk import Substitution, variables


@dataclass
class Unification:
    """Symbols of wanted annotations, solved by given ones; `facts` are about the symbols of the given side.

    An extent that is a symbol by itself, or a multiple of one, determines it; all other extents are compared once
    everything is solved.  What is certainly wrong is refused, and what cannot be decided is left to run time.
    """

    facts: SizeFacts
    solved: dict[Var, Expr] = field(default_factory=dict)
    _left: list[tuple[str, Expr, Expr]] = field(default_factory=list)

    def match(self, where: str, wanted: Annotation, given: Annotation) -> None:
        """Notes what a value says about symbols; refuses one of another kind, dtype or rank."""
        if isinstance(wanted, ObjectType) or isinstance(given, ObjectType):
            return
        if type(wanted) is not type(given):
            raise GraphError(f"{where} is {given}, expected {wanted}")
        if isinstance(wanted, TupleType) and isinstance(given, TupleType):
            if len(wanted.parts) != len(given.parts):
                raise GraphError(f"{where} is {given}, expected {len(wanted.parts)} parts: {wanted}")
            for number, (part, held) in enumerate(zip(wanted.parts, given.parts, strict=True)):
                self.match(f"{where}[{number}]", part, held)
            return
        if isinstance(wanted, TensorType) and isinstance(given, TensorType):
            if wanted.dtype is not None and given.dtype is not None and wanted.dtype != given.dtype:
                raise GraphError(f"{where} is {given}, expected the dtype of {wanted}")
        for want, got in _extents(where, wanted, given):
            if not self._solves(want, got):
                self._left.append((where, want, got))

    def _solves(self, want: Expr, got: Expr) -> bool:
        """Whether an extent tells a symbol for the first time: n, or such as 4 * n if what is given visibly divides."""
        symbol, scale, offset = solvable(want) or (None, 1, 0)
        if symbol is None or symbol in self.solved:
            return False
        value = (got - offset) // scale
        if value * scale + offset == got:
            self.solved[symbol] = value
        return symbol in self.solved

    def finish(self) -> Substitution:
        """The solution, once all annotations are matched; refuses extents that certainly differ."""
        put = Substitution(self.solved)
        for where, want, got in self._left:
            if variables(want) <= self.solved.keys() and self.facts.differ(put(want), got):
                solution = ", ".join(f"{v} = {self.solved[v]}" for v in sorted(variables(want), key=str))
                raise GraphError(
                    f"{where} has an extent {got}, expected {want}{f' with {solution}' if solution else ''}"
                )
        return put


def _extents(where: str, wanted: Annotation, given: Annotation) -> Iterator[tuple[Expr, Expr]]:
    """Pairs of extents of two tensors or two shapes, as far as both are known."""
    assert isinstance(wanted, (TensorType, ShapeType)) and isinstance(given, (TensorType, ShapeType))
    if wanted.rank is not None and given.rank is not None and wanted.rank != given.rank:
        raise GraphError(f"{where} is {given}, of rank {given.rank}; expected {wanted}, of rank {wanted.rank}")
    return zip(wanted.dims(), given.dims(), strict=False)
