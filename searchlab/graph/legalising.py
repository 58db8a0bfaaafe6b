"""Legalisation: calls of operators become calls of tensor programs, or of library functions where there are none."""

from __future__ import annotations

from collections.abc import Callable
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


def legalise(module: GraphModule, wanted: Wanted = lambda call: True) -> GraphModule:
    """The module with the wanted calls of operators legalised; equal programs are held once."""
    programs = _Programs(dict(module.programs))
    for function in module:
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


class _Programs:
    """The programs of a module, each under one name."""

    def __init__(self, held: dict[str, Program]) -> None:
        self.held = held
        self._names = {program.hash: name for name, program in held.items()}
        self._made: dict[Any, str | None] = {}  # what was called on what, and the name of its program

    def name(self, call: OperatorCall, scope: TypeScope) -> str | None:
        """The name of the program that computes a call."""
        operands = tuple(o if isinstance(o, Scalar) else scope.annotation(o) for o in call.args)
        key = (call.operator, operands)
        if key not in self._made:
            program = operator_program(call, scope)
            self._made[key] = None if program is None else self._added(program)
        return self._made[key]

    def _added(self, program: Program) -> str:
        if program.hash not in self._names:
            name, number = program.name, 0
            while name in self.held:
                number += 1
                name = f"{program.name}_{number}"
            self.held[name] = program
            self._names[program.hash] = name
        return self._names[program.hash]


def _legalised(module: GraphModule, function: GraphFunction, wanted: Wanted, programs: _Programs) -> GraphFunction:
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


def _lowered(call: OperatorCall, annotation: Annotation, scope: TypeScope, programs: _Programs) -> GraphCall:
    outputs = annotation.parts if isinstance(annotation, TupleType) else (annotation,)
    tensors = tuple(o for o in outputs if isinstance(o, TensorType))
    name = programs.name(call, scope)
    if name is None:
        if call.operator.library is None:
            raise GraphError(f"{call.callee}: there is neither a program nor a library function for it")
        return LibraryCall(call.args, tensors, call.operator.library, call.operator.attributes())
    program = programs.held[name]
    inputs, _ = interface(program)
    operands = tuple(o for o in call.args if not isinstance(o, Scalar))
    assert len(inputs) == len(operands), f"{name} has {len(inputs)} inputs for {len(operands)} operands"
    return ProgramCall(operands, tensors, name, tuple((n, Var(n, "size")) for n in program.sizes))
