"""Inlining: calls of functions become the calls of their bodies, so memory, sizes and weights are known as a whole.

Symbols of a callee that its arguments determine become expressions of the caller.  What cannot be proved at a boundary
is checked there when the function runs, by a match_cast, as it is by the interpreter.
"""

from __future__ import annotations

from dataclasses import replace

from searchlab.errors import GraphError
from searchlab.graph.annotations import Annotation, ShapeType, TensorType, TupleType
from searchlab.graph.calls import FunctionCall, MatchCast, Operand
from searchlab.graph.deduction import TypeScope, same_shape
from searchlab.graph.functions import Binding, GraphFunction, GraphModule
from searchlab.graph.symbols import SizeFacts, SizeRange, determined
from searchlab.graph.unification import Unification
from searchlab.ir.expr import Expr, Var
from searchlab.ir.walk import Substitution


def inline_functions(module: GraphModule) -> GraphModule:
    """The module with the bodies of functions in place of their calls."""
    done: dict[str, GraphFunction] = {}
    for function in module:
        _inlined(module, function, done)
    return replace(module, functions={name: done[name] for name in module.functions})


def _inlined(module: GraphModule, function: GraphFunction, done: dict[str, GraphFunction]) -> GraphFunction:
    if function.name not in done:
        called = [b.call.function for b in function.bindings if isinstance(b.call, FunctionCall)]
        for b in function.bindings:
            for name in b.call.functions():
                _inlined(module, module[name], done)
        done[function.name] = _Inlining(module, function, done).run() if called else function
    return done[function.name]


class _Inlining:
    """Writes a function again; `names` says what values are called now, if not as before."""

    def __init__(self, module: GraphModule, function: GraphFunction, done: dict[str, GraphFunction]) -> None:
        self.module, self.function, self.done = module, function, done
        self.ranges = dict(function.ranges)
        self.names: dict[str, Operand] = {}
        self.bindings: list[Binding] = []
        self.taken = {*function.annotations, *module.constants}
        self.symbols = {v.name for b in function.bindings for e in b.call.dims() for v in determined([e])}
        self.symbols |= {v.name for v in (*function.ranges, *function.symbols)}
        self.scope = TypeScope(module, function.facts)
        self.scope.parameters(function.parameters)

    def run(self) -> GraphFunction:
        """All bindings, with those of callees in place of calls."""
        for b in self.function.bindings:
            call = b.call.renamed(self.names)
            if isinstance(call, FunctionCall):
                self.names[b.name] = self.body(b, call)
            else:
                self.bind(b.name, Binding(b.name, call, b.annotation))
        result = self.names.get(self.function.result, self.function.result)
        assert isinstance(result, str)
        return replace(self.function, bindings=tuple(self.bindings), result=result, ranges=self.ranges)

    def bind(self, name: str, binding: Binding) -> None:
        """Adds a binding, with its annotation deduced again: more may be known now."""
        try:
            made = self.scope.bind(name, binding.call)
        except GraphError as e:
            raise GraphError(f"{self.function.name}: {name}: {e}") from e
        self.bindings.append(made)

    def body(self, b: Binding, call: FunctionCall) -> Operand:
        """Adds the body of a callee; returns what its result is called."""
        callee = self.done[call.function]
        put = self.solution(callee, call)
        inner: dict[str, Operand] = {}
        for p, operand in zip(callee.parameters, call.args, strict=True):
            inner[p.name] = self.passed(f"{b.name}_{p.name}", operand, p.annotation.map_dims(put))
        for step in callee.bindings:
            name = self.fresh(f"{b.name}_{step.name}")
            inner[step.name] = name
            self.bind(name, Binding(name, step.call.renamed(inner).map_dims(put), step.annotation))
        result = inner.get(callee.result, callee.result)
        return self.passed(b.name, result, b.annotation, known=True)

    def solution(self, callee: GraphFunction, call: FunctionCall) -> Substitution:
        """Expressions of the caller for the symbols of a callee, and new symbols for those that it does not know."""
        found = Unification(self.scope.facts)
        for p, operand in zip(callee.parameters, call.args, strict=True):
            found.match(p.name, p.annotation, self.scope.annotation(operand))
        found.finish()
        every = {*callee.symbols, *callee.ranges}
        every |= {v for b in callee.bindings for e in b.call.dims() for v in determined([e])}
        values: dict[Var, Expr] = {}
        for symbol in sorted(every, key=lambda v: v.name):
            value, allowed = found.solved.get(symbol), callee.ranges.get(symbol, SizeRange())
            inside = value is not None and _within(self.scope.facts, value, allowed)
            values[symbol] = value if value is not None and inside else self.new_symbol(symbol, allowed)
        return Substitution(values)

    def new_symbol(self, symbol: Var, allowed: SizeRange) -> Var:
        """A symbol of the caller in place of one of a callee, with its range."""
        number, name = 0, symbol.name
        while name in self.symbols:
            number += 1
            name = f"{symbol.name}_{number}"
        self.symbols.add(name)
        made = Var(name, "size")
        self.ranges[made] = allowed
        self.scope.facts = SizeFacts(self.ranges)
        return made

    def passed(self, name: str, operand: Operand, wanted: Annotation, known: bool = False) -> Operand:
        """A value at a boundary: as it is if it is certainly what is wanted, else checked when the function runs.

        A result is at least what callers knew (`known`), unless its shape is written in other symbols.
        """
        given = self.scope.annotation(operand)
        if given == wanted or _fits(self.scope.facts, wanted, given):
            return operand
        new = name if known else self.fresh(name)
        self.bind(new, Binding(new, MatchCast(operand, wanted), wanted))
        return new

    def fresh(self, name: str) -> str:
        """A name that no value has."""
        number, made = 0, name
        while made in self.taken:
            number += 1
            made = f"{name}_{number}"
        self.taken.add(made)
        return made


def _within(facts: SizeFacts, value: Expr, allowed: SizeRange) -> bool:
    """Whether a value is certainly in a range."""
    return facts.proves(value >= allowed.low) and (allowed.high is None or facts.proves(value <= allowed.high))


def _fits(facts: SizeFacts, wanted: Annotation, given: Annotation) -> bool:
    """Whether a value is certainly at least what is wanted of it."""
    if isinstance(wanted, TupleType) and isinstance(given, TupleType):
        return len(wanted.parts) == len(given.parts) and all(
            _fits(facts, w, g) for w, g in zip(wanted.parts, given.parts, strict=True)
        )
    if isinstance(wanted, TensorType) and isinstance(given, TensorType):
        if wanted.dtype not in (None, given.dtype):
            return False
        if wanted.shape is None:
            return wanted.rank in (None, given.rank)
        return same_shape(facts, wanted.shape, given.shape)
    if isinstance(wanted, ShapeType) and isinstance(given, ShapeType):
        if wanted.extents is None:
            return wanted.rank in (None, given.rank)
        return same_shape(facts, wanted.extents, given.extents)
    return not isinstance(wanted, (TupleType, TensorType, ShapeType))
