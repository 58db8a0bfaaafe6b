"""Partial lowering to libraries: chains of operators that a library computes well become calls of its functions.

    h = linear(x, w, b)
    y = relu(h)                 =>    y = library numpy.linear(x, w, b, bias=True, then="relu")

It has to happen before legalisation, while there are operators to recognise.  A pattern applies only where its
condition is proved for all values of the symbols; `split_by_size` makes two functions where that depends on a size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from searchlab.errors import GraphError, SearchLabError
from searchlab.graph.annotations import Annotation, Shape, TensorType
from searchlab.graph.calls import LibraryCall, Operand, OperatorCall
from searchlab.graph.deduction import TypeScope, scope_of
from searchlab.graph.functions import Binding, GraphFunction, GraphModule
from searchlab.graph.library import GRAPH_LIBRARIES, GraphLibrary
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.expr import ONE, Expr, Like
from searchlab.registry import Component


@dataclass(frozen=True)
class PatternMatch:
    """Calls that a pattern has matched: each takes the result of the one before it, which nobody else uses."""

    calls: tuple[OperatorCall, ...]
    operands: tuple[Operand, ...]  # of all calls in order, without the results of calls before
    annotations: tuple[Annotation, ...]  # of these operands
    result: TensorType
    facts: SizeFacts

    @property
    def rows(self) -> Expr:
        """The number of rows of the result: all its extents but the last."""
        found: Expr = ONE
        for extent in (self.result.shape or ())[:-1]:
            found = found * extent
        return found

    def shape(self, operand: int) -> Shape | None:
        """The shape of an operand, if it is a tensor whose shape is known."""
        known = self.annotations[operand]
        return known.shape if isinstance(known, TensorType) else None

    def at_least(self, extent: Expr, least: Like) -> bool:
        """Whether an extent is at least a number, for all values of the symbols."""
        return self.facts.proves(extent >= least)

    def attribute(self, name: str, call: int = 0) -> Any:
        """An attribute of one of the operators."""
        return getattr(self.calls[call].operator, name)


@dataclass(frozen=True)
class LibraryPattern:
    """A chain of operators by name, the function that computes it, and on which conditions.

    The function is called as `function(*operands, out, **attributes)`.  Operands are tensors of known shape and dtype;
    without `attributes`, those of the operators must be at their defaults.
    """

    operators: tuple[str, ...]
    function: str
    accepts: Callable[[PatternMatch], bool] = lambda match: True
    attributes: Callable[[PatternMatch], Mapping[str, Any]] | None = None

    def call(self, match: PatternMatch) -> LibraryCall | None:
        """The call of the library in place of a match; None if a condition does not hold."""
        if self.attributes is None and any(call.operator.telling() for call in match.calls):
            return None
        if not self.accepts(match):
            return None
        given = dict(self.attributes(match)) if self.attributes is not None else {}
        return LibraryCall(match.operands, (match.result,), self.function, tuple(sorted(given.items())))


def dispatch_libraries(module: GraphModule, libraries: Iterable[Component | GraphLibrary]) -> GraphModule:
    """The module with everything that the libraries match as calls of their functions.

    A library is a name, {name: {options}} or "module:Class".  Earlier libraries and longer chains take precedence.
    """
    try:
        chosen = [GRAPH_LIBRARIES.make(library) for library in libraries]
        patterns = [p for library in chosen for p in sorted(library.patterns(), key=lambda p: -len(p.operators))]
    except (SearchLabError, ImportError) as e:
        raise GraphError(f"dispatch to libraries: {e}") from e
    for function in module:
        module = module.with_function(_dispatched(module, function, patterns))
    return module


def _dispatched(module: GraphModule, function: GraphFunction, patterns: Sequence[LibraryPattern]) -> GraphFunction:
    search = _ChainSearch(function, scope_of(module, function))
    for b in function.bindings:
        search.scope.define(b.name, b.annotation)
    for b in reversed(function.bindings):  # from the ends of chains
        if b.name not in search.gone:
            search.replace(b, patterns)
    bindings = (replace(b, call=search.calls.get(b.name, b.call)) for b in function.bindings)
    return replace(function, bindings=tuple(b for b in bindings if b.name not in search.gone))


@dataclass
class _ChainSearch:
    """Finds chains in a function; what is replaced is not matched again."""

    function: GraphFunction
    scope: TypeScope
    calls: dict[str, LibraryCall] = field(default_factory=dict)  # in place of others
    gone: set[str] = field(default_factory=set)

    def replace(self, end: Binding, patterns: Sequence[LibraryPattern]) -> None:
        """Replaces the first pattern that applies to a chain with this end."""
        for pattern in patterns:
            chain = self.chain(end, pattern.operators)
            match = None if chain is None else self.match(chain)
            call = None if match is None else pattern.call(match)
            if chain is not None and call is not None:
                self.calls[end.name] = call
                self.gone.update(name for name, _ in chain[:-1])
                return

    def chain(self, end: Binding, operators: tuple[str, ...]) -> list[tuple[str, OperatorCall]] | None:
        """The calls of these operators that lead to a binding, with the names of their results."""
        found: list[tuple[str, OperatorCall]] = []
        name, call = end.name, end.call
        for operator in reversed(operators):
            if not isinstance(call, OperatorCall) or call.callee != operator or name in self.calls:
                return None
            found.append((name, call))
            if len(found) == len(operators):
                return found[::-1]
            links = [o for o in call.names() if self._links(o, operators[-1 - len(found)])]
            if not links:
                return None
            name, call = links[0], self.function.calls[links[0]]
        return None

    def _links(self, name: str, operator: str) -> bool:
        """Whether a value is the result of an operator, and used once."""
        call = self.function.calls.get(name)
        return isinstance(call, OperatorCall) and call.callee == operator and self.function.uses[name] == 1

    def match(self, chain: list[tuple[str, OperatorCall]]) -> PatternMatch | None:
        """What a pattern is asked about; None if the shape or dtype of a tensor is not known."""
        inner = {name for name, _ in chain[:-1]}
        operands = tuple(o for _, call in chain for o in call.args if o not in inner)
        annotations = tuple(map(self.scope.annotation, operands))
        result = self.function.annotations[chain[-1][0]]
        tensors = [a for a in (*annotations, result) if isinstance(a, TensorType) and a.is_whole]
        if len(tensors) <= len(annotations) or not isinstance(result, TensorType):
            return None
        return PatternMatch(tuple(call for _, call in chain), operands, annotations, result, self.function.facts)
