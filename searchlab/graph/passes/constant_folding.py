"""Folding of constants: calls whose operands are all constants are evaluated once, when a graph is compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from searchlab.dtype import DTYPES
from searchlab.graph.annotations import Annotation, TensorType, TupleType
from searchlab.graph.calls import ItemCall, Operand, OperatorCall, Scalar
from searchlab.graph.evaluation import HeldTensor, evaluate_operator
from searchlab.graph.functions import Binding, Constant, GraphFunction, GraphModule
from searchlab.graph.passes.cleaning import remove_dead
from searchlab.ir.bfloat16 import stored
from searchlab.ir.expr import Expr, value_of
from searchlab.ir.walk import variables

LIMIT = 1 << 20  # bytes of a result that may be much larger than its operands
GROWTH = 2  # times the size of its operands that a larger result may have


def fold_constants(module: GraphModule, limit: int = LIMIT) -> GraphModule:
    """The module with the results of calls on constants as constants, and without what nothing uses then.

    A result that is larger than `limit` bytes and more than twice its operands together stays a call: weights that are
    broadcast or padded would only take memory.
    """
    constants = NewConstants(module)
    functions = {f.name: _Folding(constants, limit).function(f) for f in module}
    return remove_dead(replace(module, functions=functions, constants=constants.held))


class NewConstants:
    """The constants of a module, to which new ones are added under names that no value has."""

    def __init__(self, module: GraphModule) -> None:
        self.held = dict(module.constants)
        self._taken = {name for f in module for name in f.annotations}

    def add(self, name: str, array: Any, dtype: str) -> str:
        """Adds an array; returns its name."""
        free, number = name, 0
        while free in self.held or free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self.held[free] = Constant(array, dtype)
        return free


class _Folding:
    """The values of one function that are known: by name, a tensor or a tuple of tensors."""

    def __init__(self, constants: NewConstants, limit: int) -> None:
        self.constants, self.limit = constants, limit
        self.known: dict[str, Any] = {}
        self.names: dict[str, Operand] = {}  # of the constants that results became

    def function(self, function: GraphFunction) -> GraphFunction:
        kept = []
        for b in function.bindings:
            value = self._value(b)
            if value is not None:
                self.known[b.name] = value
                if isinstance(value, HeldTensor) and b.call.operands():  # what is made of nothing costs no memory
                    self.names[b.name] = self.constants.add(f"folded_{b.name}", value.array, value.dtype)
            kept.append(Binding(b.name, b.call.renamed(self.names), b.annotation))
        kept = [b for b in kept if b.name not in self.names]
        result = self.names.get(function.result, function.result)
        return replace(function, bindings=tuple(kept), result=str(result))

    def _value(self, b: Binding) -> Any:
        """The value of a call, or None if it is not known, or too large."""
        call = b.call
        if isinstance(call, ItemCall):
            whole = self.known.get(str(call.value))
            return None if whole is None else whole[call.index]
        if not isinstance(call, OperatorCall) or any(variables(e) for e in call.dims()):
            return None
        args = [self._operand(o) for o in call.args]
        if any(a is None for a in args) or not self._is_small(b, args):
            return None
        return evaluate_operator(call.operator, args)

    def _operand(self, operand: Operand) -> Any:
        if isinstance(operand, Scalar):
            value = value_of(operand.value) if isinstance(operand.value, Expr) else operand.value
            return HeldTensor(stored(np.asarray(value), operand.dtype), operand.dtype)
        if operand in self.known:
            return self.known[str(operand)]
        constant = self.constants.held.get(str(operand))
        return None if constant is None else HeldTensor(constant.array, constant.dtype)

    def _is_small(self, b: Binding, args: Sequence[HeldTensor]) -> bool:
        given = sum(a.array.nbytes for a in args)
        return _bytes(b) <= max(self.limit, GROWTH * given)


def _bytes(b: Binding) -> int:
    """The size of a result; that of a call on constants has a shape that is known."""
    parts = b.annotation.parts if isinstance(b.annotation, TupleType) else (b.annotation,)
    return sum(math.prod(value_of(e) or 0 for e in p.dims()) * DTYPES[p.dtype or ""].bytes for p in map(_tensor, parts))


def _tensor(annotation: Annotation) -> TensorType:
    assert isinstance(annotation, TensorType)
    return annotation
