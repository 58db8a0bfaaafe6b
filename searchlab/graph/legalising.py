"""Legalisation: calls of operators become calls of tensor programs, or of library functions where there are none.

A view, whose result is its operand under another shape, needs no program: what runs graphs lets both share memory.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any

from searchlab.errors import GraphError, SearchLabError
from searchlab.graph.annotations import Annotation, TensorType, TupleType
from searchlab.graph.calls import GraphCall, LibraryCall, OperatorCall, ProgramCall, Scalar
from searchlab.graph.deduction import TypeScope, interface, scope_of
from searchlab.graph.functions import Binding, GraphFunction, GraphModule
from searchlab.ir.expr import Var
from searchlab.ir.program import Program

Wanted = Callable[[OperatorCall], bool]


def computes(call: OperatorCall) -> bool:
    """Whether a call has to be computed: views of values have not, as they are the memory of these."""
    return not (call.operator.is_view and isinstance(call.args[0], str))


def everything(call: OperatorCall) -> bool:
    """Wants programs for views as well, which copy."""
    return True


def legalise(module: GraphModule, wanted: Wanted = computes) -> GraphModule:
    """The module with the wanted calls of operators legalised, by default all but views; equal programs are held once.

    A function under the name of a program is the program's reference, and stays as it is.
    """
    programs = ProgramTable(module.programs)
    for function in module:
        if function.name not in module.programs:
            module = module.with_function(_legalised(module, function, wanted, programs))
    return replace(module, programs=programs.held)


def operator_program(call: OperatorCall, scope: TypeScope) -> Program | None:
    """The program that computes a call, in the symbols of its function; None if a library function has to."""
    args: list[Any] = []
    for operand in call.args:
        annotation = scope.annotation(operand)
        if not isinstance(annotation, TensorType) or not annotation.is_whole:
            raise GraphError(f"{call.callee}: its operand {operand} is {annotation}, so there is no program for it")
        args.append(operand if isinstance(operand, Scalar) else annotation)
    try:
        return call.operator.program(scope.facts, *args)
    except SearchLabError as e:
        raise GraphError(f"{call.callee}: {e}") from e


class OperatorPrograms:
    """The programs of calls of operators, each made once for equal operators on equal operands."""

    def __init__(self) -> None:
        self._made: dict[Any, Program | None] = {}

    def of(self, call: OperatorCall, scope: TypeScope) -> Program | None:
        """The program that computes a call; None if a library function has to."""
        operands = tuple(o if isinstance(o, Scalar) else scope.annotation(o) for o in call.args)
        key = (call.operator, operands)
        if key not in self._made:
            self._made[key] = operator_program(call, scope)
        return self._made[key]


class ProgramTable:
    """The programs of a module, each under one name."""

    def __init__(self, held: Mapping[str, Program]) -> None:
        self.held = dict(held)
        self.made = OperatorPrograms()
        self._names = {program.hash: name for name, program in held.items()}

    def added(self, program: Program, taken: Container[str] = ()) -> str:
        """The name of a program, which is added unless an equal one is there; names that are `taken` get a number."""
        if program.hash not in self._names:
            name, number = program.name, 0
            while name in self.held or name in taken:
                number += 1
                name = f"{program.name}_{number}"
            self.held[name] = program
            self._names[program.hash] = name
        return self._names[program.hash]


def _legalised(module: GraphModule, function: GraphFunction, wanted: Wanted, programs: ProgramTable) -> GraphFunction:
    scope = scope_of(module, function)
    bindings = []
    for b in function.bindings:
        call = b.call
        if isinstance(call, OperatorCall) and wanted(call):
            try:
                call = _lowered(call, b.annotation, scope, programs)
            except GraphError as e:
                raise GraphError(f"{function.name}: {b.name}: {e}") from e
        bindings.append(Binding(b.name, call, b.annotation))
        scope.define(b.name, b.annotation)
    return replace(function, bindings=tuple(bindings))


def _lowered(call: OperatorCall, annotation: Annotation, scope: TypeScope, programs: ProgramTable) -> GraphCall:
    outputs = annotation.parts if isinstance(annotation, TupleType) else (annotation,)
    tensors = tuple(o for o in outputs if isinstance(o, TensorType))
    program = programs.made.of(call, scope)
    if program is None:
        if call.operator.library is None:
            raise GraphError(f"{call.callee}: there is neither a program nor a library function for it")
        return LibraryCall(call.args, tensors, call.operator.library, call.operator.attributes())
    name = programs.added(program, scope.module.functions)
    inputs, _ = interface(program)
    operands = tuple(o for o in call.args if not isinstance(o, Scalar))
    assert len(inputs) == len(operands), f"{name} has {len(inputs)} inputs for {len(operands)} operands"
    return ProgramCall(operands, tensors, name, tuple((n, Var(n, "size")) for n in program.sizes))
