"""`quantise_weights`: linear layers with constant weights as products with weights of 4 bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from searchlab.dtype import DTYPES
from searchlab.errors import GraphError
from searchlab.graph.calls import OperatorCall
from searchlab.graph.deduction import deduced
from searchlab.graph.functions import Binding, Constant, GraphFunction, GraphModule
from searchlab.graph.operator import Array, operator_named
from searchlab.graph.ops.quantised_ops import quantised
from searchlab.ir.bfloat16 import numbers

BITS = (4,)


def quantise_weights(
    module: GraphModule, bits: int = 4, group: int = 32, offsets: bool = False, least: int = 1 << 16
) -> GraphModule:
    """The module with `linear` and `dense` layers whose weights are constants as `linear_q4`; a bias is added after it.

    Weights have a scale, and with `offsets` an offset, for every `group` of inputs and each output. Layers with fewer
    than `least` weights, and those whose inputs are no multiple of a group, stay as they are. Constants that nothing
    uses any more are dropped.
    """
    if bits not in BITS:
        raise GraphError(f"bits = {bits}; weights are quantised to {' or '.join(map(str, BITS))} bits")
    if group < 2 or group % 2:
        raise GraphError(f"group = {group}; a group has an even number of weights, since two share a byte")
    made = _Quantised(module, group, offsets, least)
    for function in module.functions.values():
        made.rewrite(function)
    return made.finished()


class _Quantised:
    """A module that is being rewritten: every matrix is quantised once, whatever uses it."""

    def __init__(self, module: GraphModule, group: int, offsets: bool, least: int) -> None:
        self.before, self.module = module, module
        self.group, self.offsets, self.least = group, offsets, least
        self.tables: dict[tuple[str, bool], list[str]] = {}  # weights, and whether outputs come first

    def rewrite(self, function: GraphFunction) -> None:
        """Replaces the calls of a function."""
        taken = {*function.annotations, *self.module.constants}
        bindings = [new for old in function.bindings for new in self._binding(old, taken)]
        if len(bindings) == len(function.bindings) and all(a is b for a, b in zip(bindings, function.bindings)):
            return
        changed = replace(function, bindings=tuple(bindings))
        self.module = self.module.with_function(changed)
        self.module = self.module.with_function(deduced(self.module, changed))

    def _binding(self, binding: Binding, taken: set[str]) -> list[Binding]:
        call = binding.call
        if not isinstance(call, OperatorCall) or call.callee not in ("linear", "dense"):
            return [binding]
        names, turned = call.names(), call.callee == "linear"
        if not self._suits(names[1], turned):
            return [binding]
        operator = operator_named("linear_q4", group=self.group)
        product = OperatorCall((names[0], *self._quantised(names[1], turned)), operator)
        if len(names) == 2:
            return [replace(binding, call=product)]
        inner = f"{binding.name}_product"
        while inner in taken:
            inner += "_"
        taken.add(inner)
        shape = binding.annotation
        added = OperatorCall((inner, names[2]), operator_named("add"))
        return [Binding(inner, product, shape), Binding(binding.name, added, shape)]

    def _suits(self, name: str, turned: bool) -> bool:
        held = self.before.constants.get(name)
        if held is None or DTYPES[held.dtype].sort != "float" or held.array.size < self.least:
            return False
        return bool(held.array.shape[1 if turned else 0] % self.group == 0)

    def _quantised(self, name: str, turned: bool) -> list[str]:
        """The names of packed weights, scales and offsets."""
        key = name, turned
        if key not in self.tables:
            held = self.before.constants[name]
            values: Array = numbers(held.array, held.dtype)
            arrays = quantised(np.ascontiguousarray(values.T) if turned else values, self.group, self.offsets)
            ends = ("q4", "scale", "offset")
            self.tables[key] = [self._added(f"{name}_{end}", a) for end, a in zip(ends, arrays) if a is not None]
        return self.tables[key]

    def _added(self, name: str, array: Array) -> str:
        taken = {n for f in self.module.functions.values() for n in f.annotations}
        while name in self.module.constants or name in taken:
            name += "_"
        constants = {**self.module.constants, name: Constant(array, array.dtype.name)}
        self.module = replace(self.module, constants=constants)
        return name

    def finished(self) -> GraphModule:
        """The module without the constants that have been replaced everywhere."""
        replaced = {name for name, _ in self.tables}
        used = {name for f in self.module for name in f.uses}
        kept = {n: c for n, c in self.module.constants.items() if n not in replaced or n in used}
        return replace(self.module, constants=kept)
