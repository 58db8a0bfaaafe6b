"""Attention that is written out becomes the operator, whose schedules never hold the scores.

    matmul(softmax(matmul(q, permute(k)) * scale + mask), v)   =>   attention(q, k, v, mask, scale=scale)

The factor may be a quotient, and both it and the mask may be absent.  Everything between must have no other use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from searchlab.errors import GraphError
from searchlab.graph.annotations import TensorType
from searchlab.graph.calls import OperatorCall, Scalar
from searchlab.graph.deduction import TypeScope, scope_of
from searchlab.graph.functions import Binding, GraphFunction, GraphModule
from searchlab.graph.operator import operator_named
from searchlab.graph.passes.cleaning import remove_dead

_DTYPE = "float32"  # where nothing is rounded between the operators


def find_attention(module: GraphModule) -> GraphModule:
    """The module with attention as an operator wherever its parts are found, and without what nothing uses then."""
    for function in module:
        module = module.with_function(_AttentionFinder(module, function).function())
    return remove_dead(module)


@dataclass(frozen=True)
class _Scores:
    """The operands of scores: queries, keys as the product has them, a factor, and a mask."""

    queries: str
    keys: str
    scale: float = 1.0
    mask: str | None = None


class _AttentionFinder:
    """The bindings of a function with attention as an operator."""

    def __init__(self, module: GraphModule, function: GraphFunction) -> None:
        self.module, self.before = module, function

    def function(self) -> GraphFunction:
        scope = scope_of(self.module, self.before)
        bindings = [new for b in self.before.bindings for new in self._found(b, scope)]
        found = replace(self.before, bindings=tuple(bindings))
        return self.before if found == self.before else found

    def _found(self, b: Binding, scope: TypeScope) -> Iterator[Binding]:
        for made in self._attention(b):
            try:
                new = [scope.bind(name, call) for name, call in made]
            except GraphError:  # such as operands of different ranks, which products broadcast
                continue
            if new[-1].annotation == b.annotation:
                yield from new
                return
        yield scope.bind(b.name, b.call)

    def _attention(self, b: Binding) -> Iterator[list[tuple[str, OperatorCall]]]:
        """The calls that a product of probabilities and values becomes, if it is one."""
        if not isinstance(b.annotation, TensorType) or b.annotation.dtype != _DTYPE:
            return
        if not (isinstance(b.call, OperatorCall) and b.call.callee == "matmul"):
            return
        probabilities, values = b.call.args
        softmax = self._only(probabilities, "softmax")
        rank = b.annotation.rank or 0
        if softmax is None or dict(softmax.operator.attributes())["axis"] not in (-1, rank - 1):
            return
        found = self._scores(softmax.args[0])
        if found is None or not isinstance(values, str):
            return
        calls, keys = self._keys(f"{b.name}_keys", found.keys, rank)
        masks = () if found.mask is None else (found.mask,)
        whole = OperatorCall((found.queries, keys, values, *masks), operator_named("attention", scale=found.scale))
        yield [*calls, (b.name, whole)]

    def _scores(self, operand: object) -> _Scores | None:
        """What scores are made of: a product, a factor of it, and what is added."""
        if (added := self._only(operand, "add")) is not None:
            for score, mask in (added.args, added.args[::-1]):
                found = self._scaled(score)
                if found is not None and isinstance(mask, str):
                    return replace(found, mask=mask)
            return None
        return self._scaled(operand)

    def _scaled(self, operand: object) -> _Scores | None:
        for name in ("mul", "div"):
            call = self._only(operand, name)
            if call is None:
                continue
            pairs = (call.args, call.args[::-1]) if name == "mul" else (call.args,)
            for score, factor in pairs:
                found, scale = self._product(score), self._number(factor)
                if found is not None and scale:
                    return replace(found, scale=scale if name == "mul" else 1 / scale)
            return None
        return self._product(operand)

    def _number(self, operand: object) -> float | None:
        """A number, or a constant that holds one."""
        value: object = operand.value if isinstance(operand, Scalar) else None
        held = self.module.constants.get(operand) if isinstance(operand, str) else None
        if held is not None and held.array.size == 1:
            value = held.array.item()
        return float(value) if isinstance(value, int | float) else None

    def _product(self, operand: object) -> _Scores | None:
        call = self._only(operand, "matmul")
        if call is None or not all(isinstance(a, str) for a in call.args):
            return None
        queries, keys = map(str, call.args)
        return _Scores(queries, keys)

    def _keys(self, name: str, keys: str, rank: int) -> tuple[list[tuple[str, OperatorCall]], str]:
        """Keys in rows: what was permuted for the product is permuted for rows, or not at all."""
        order = [*range(rank - 2), rank - 1, rank - 2]
        call = self.before.calls.get(keys)
        if isinstance(call, OperatorCall) and call.callee == "permute" and isinstance(call.args[0], str):
            axes = dict(call.operator.attributes())["axes"]
            given = [a % rank for a in axes] if axes is not None else list(reversed(range(rank)))
            order, keys = [given[a] for a in order], call.args[0]
        if order == sorted(order):
            return [], keys
        while name in self.before.annotations or name in self.module.constants:
            name += "_"
        return [(name, OperatorCall((keys,), operator_named("permute", axes=tuple(order))))], name

    def _only(self, operand: object, operator: str) -> OperatorCall | None:
        """The call of an operator whose result is used here alone."""
        call = self.before.calls.get(operand) if isinstance(operand, str) else None
        alone = isinstance(operand, str) and self.before.uses[operand] == 1
        return call if isinstance(call, OperatorCall) and alone and call.callee == operator else None
