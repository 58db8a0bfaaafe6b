"""Forward deduction: the annotation of a call from those of its operands; one step per call, so linear in a graph.

Operators deduce by their own rules.  Calls of programs and library functions state their outputs; of functions only the
signature is used, never the body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from searchlab.errors import GraphError, SearchLabError
from searchlab.graph.annotations import Annotation, ObjectType, TensorType, TupleType
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
from searchlab.graph.functions import Binding, GraphFunction, GraphModule, GraphParameter
from searchlab.graph.library import library_function
from searchlab.graph.operator import GraphOperator
from searchlab.graph.symbols import SizeFacts, SizeRange, determined, undetermined
from searchlab.graph.unification import Unification
from searchlab.ir.expr import Expr, Var
from searchlab.ir.program import Program
from searchlab.ir.stmt import Buffer
from searchlab.ir.walk import Substitution


class TypeScope:
    """What is known at a point of a function: the annotations of all values so far, and the symbols in scope."""

    def __init__(self, module: GraphModule, facts: SizeFacts) -> None:
        self.module, self.facts = module, facts
        self.annotations: dict[str, Annotation] = {}
        self.symbols: set[Var] = set()

    def parameters(self, parameters: Iterable[GraphParameter]) -> None:
        """Begins a function: its parameters, and the symbols that their shapes determine."""
        for p in parameters:
            self.define(p.name, p.annotation)
            self.symbols |= determined(p.annotation.dims())

    def define(self, name: str, annotation: Annotation) -> None:
        """Adds a value; every name is used once."""
        if name in self.annotations or name in self.module.constants:
            raise GraphError(f"two values are called '{name}'")
        self.annotations[name] = annotation

    def annotation(self, operand: Operand) -> Annotation:
        """What is known of an operand."""
        if not isinstance(operand, str):
            return operand.annotation
        found = self.annotations.get(operand)
        if found is None and operand in self.module.constants:
            return self.module.constants[operand].annotation
        if found is None:
            raise GraphError(f"'{operand}' is not defined before its use")
        return found

    def deduce(self, call: GraphCall) -> Annotation:
        """The annotation of a call's result; errors name the callee.  A match_cast brings its symbols into scope."""
        try:
            args = [self.annotation(operand) for operand in call.operands()]
            new = determined(call.annotation.dims()) if isinstance(call, MatchCast) else frozenset()
            missing = undetermined(call.dims(), self.symbols | new)
            if missing:
                raise GraphError(f"the symbol {missing[0]} is not in scope; no parameter or match_cast determines it")
            found = _RULES[type(call)](self, call, args)
            self.symbols |= new
            return found
        except SearchLabError as e:
            raise GraphError(f"{call.callee}: {str(e).removeprefix(f'{call.callee}: ')}") from e

    def bind(self, name: str, call: GraphCall) -> Binding:
        """Adds the result of a call, with its annotation deduced."""
        made = Binding(name, call, self.deduce(call))
        self.define(name, made.annotation)
        return made


def operator_annotation(operator: GraphOperator, facts: SizeFacts, args: Sequence[Annotation]) -> Annotation:
    """The annotation of an operator's result: whole if its operands' are, else what the operator knows anyway."""
    least, most, names = operator.arity()
    if len(args) < least or (most is not None and len(args) > most):
        raise GraphError(f"it takes {'no operands' if most == 0 else f'({names})'}, got {len(args)} operands")
    for number, arg in enumerate(args):
        if not isinstance(arg, (TensorType, ObjectType)):
            raise GraphError(f"operand {number} is {arg}, not a tensor")
    tensors = [arg if isinstance(arg, TensorType) else TensorType() for arg in args]
    if not all(t.is_whole for t in tensors):
        return operator.coarse(*tensors)
    return operator.deduce(facts, *tensors).map_dims(facts.simplify)


def _operator(scope: TypeScope, call: OperatorCall, args: list[Annotation]) -> Annotation:
    for operand in call.args:
        if isinstance(operand, Scalar) and not call.operator.takes_numbers:
            raise GraphError(f"the number {operand.value} is no operand of it; full makes a tensor of a number")
    return operator_annotation(call.operator, scope.facts, args)


def _outputs(outputs: tuple[TensorType, ...]) -> Annotation:
    for output in outputs:
        if not output.is_whole:
            raise GraphError(f"its output {output} cannot be allocated: the shape or the dtype is not known")
    return outputs[0] if len(outputs) == 1 else TupleType(outputs)


def _program(scope: TypeScope, call: ProgramCall, args: list[Annotation]) -> Annotation:
    program = scope.module.program(call.program)
    given = [name for name, _ in call.sizes]
    if sorted(given) != sorted(program.sizes):
        raise GraphError(f"it has the sizes ({', '.join(program.sizes)}), got ({', '.join(given)})")
    put = Substitution({Var(name, "size"): value for name, value in call.sizes})
    inputs, outputs = interface(program)
    _fits(scope.facts, "operand", inputs, put, args)
    _fits(scope.facts, "output", outputs, put, call.outputs)
    return _outputs(call.outputs)


def interface(program: Program) -> tuple[list[Buffer], list[Buffer]]:
    """The inputs and outputs of a program as its callers see them, whatever layout the program keeps them in."""
    plain = {la.buffer: replace(la.original, name=la.buffer) for la in program.layouts}
    inputs = [plain.get(n, program.buffers[n]) for n in program.inputs]
    return inputs, [plain.get(n, program.buffers[n]) for n in program.outputs]


def _fits(facts: SizeFacts, what: str, wanted: list[Buffer], put: Substitution, given: Sequence[Annotation]) -> None:
    """Refuses tensors that are not certainly those that a program takes: it would access memory beyond them."""
    if len(wanted) != len(given):
        raise GraphError(f"it has {len(wanted)} {what}s ({', '.join(b.name for b in wanted)}), got {len(given)}")
    for buffer, got in zip(wanted, given, strict=True):
        want = TensorType(tuple(map(put, buffer.shape)), buffer.dtype)
        if not isinstance(got, TensorType) or got.dtype != want.dtype or not same_shape(facts, want.shape, got.shape):
            raise GraphError(f"{what} {buffer.name} is {got}, expected {want}")


def same_shape(facts: SizeFacts, a: tuple[Expr, ...] | None, b: tuple[Expr, ...] | None) -> bool:
    """Whether two shapes are known and certainly the same."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(facts.equal(x, y) for x, y in zip(a, b, strict=True))


def _library(scope: TypeScope, call: LibraryCall, args: list[Annotation]) -> Annotation:
    library_function(call.function)
    return _outputs(call.outputs)


def _function(scope: TypeScope, call: FunctionCall, args: list[Annotation]) -> Annotation:
    callee = scope.module[call.function]
    wanted = callee.parameters
    if len(wanted) != len(args):
        raise GraphError(f"it takes ({', '.join(p.name for p in wanted)}), got {len(args)} operands")
    found = Unification(scope.facts)
    for p, arg in zip(wanted, args, strict=True):
        found.match(p.name, p.annotation, arg)
    put = found.finish()
    for symbol, known in callee.ranges.items():
        value = found.solved.get(symbol)
        if value is not None and _outside(scope.facts, value, known):
            raise GraphError(f"{symbol} = {value} is out of its range there, {known}")
    return scope.module.returns(callee).coarse(found.solved).map_dims(lambda e: scope.facts.simplify(put(e)))


def _branch(scope: TypeScope, call: BranchCall, args: list[Annotation]) -> Annotation:
    """Both functions take the arguments and return the same; ranges are left to the condition."""
    then, otherwise = (_function(scope, FunctionCall(call.args, name), args) for name in call.functions())
    if then != otherwise:
        raise GraphError(f"its functions return {then} and {otherwise}; they have to agree")
    return then


def _outside(facts: SizeFacts, value: Expr, known: SizeRange) -> bool:
    """Whether a value is certainly out of a range."""
    return facts.proves(value < known.low) or (known.high is not None and facts.proves(value > known.high))


def _match_cast(scope: TypeScope, call: MatchCast, args: list[Annotation]) -> Annotation:
    found = Unification(scope.facts, {symbol: symbol for symbol in scope.symbols})
    found.match("the value", call.annotation, args[0])
    found.finish()
    return call.annotation


def _tuple(scope: TypeScope, call: TupleCall, args: list[Annotation]) -> Annotation:
    return TupleType(tuple(args))


def _item(scope: TypeScope, call: ItemCall, args: list[Annotation]) -> Annotation:
    (whole,) = args
    if isinstance(whole, ObjectType):
        return ObjectType()
    if not isinstance(whole, TupleType):
        raise GraphError(f"{whole} is not a tuple")
    if not 0 <= call.index < len(whole.parts):
        raise GraphError(f"there is no item {call.index} in {whole}")
    return whole.parts[call.index]


_RULES: dict[type[GraphCall], Callable[[TypeScope, Any, list[Annotation]], Annotation]] = {
    OperatorCall: _operator,
    ProgramCall: _program,
    LibraryCall: _library,
    FunctionCall: _function,
    BranchCall: _branch,
    MatchCast: _match_cast,
    TupleCall: _tuple,
    ItemCall: _item,
}


def deduced(module: GraphModule, function: GraphFunction) -> GraphFunction:
    """The function with all annotations deduced again, as after a pass that changed calls or parameters."""
    scope = scope_of(module, function)
    return replace(function, bindings=tuple(scope.bind(b.name, b.call) for b in function.bindings))


def scope_of(module: GraphModule, function: GraphFunction) -> TypeScope:
    """What is known where the body of a function begins."""
    scope = TypeScope(module, function.facts)
    scope.parameters(function.parameters)
    return scope
