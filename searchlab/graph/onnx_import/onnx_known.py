"""What is known of a model's values before the graph runs: weights, numbers, and sizes that are index expressions.

ONNX computes shapes with the operators that it computes everything else with. What depends on weights and shapes only
is computed while a model is imported; what is left are attributes of calls, and constants where a tensor is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from searchlab.dtype import BFLOAT16, DTYPES, FLOATS
from searchlab.errors import GraphError
from searchlab.graph.building import GraphBuilder, GraphValue
from searchlab.graph.functions import Constant
from searchlab.graph.operator import Array
from searchlab.graph.torch_import.importing import constant_name
from searchlab.ir.bfloat16 import stored
from searchlab.ir.expr import Expr, index, value_of


@dataclass(frozen=True, eq=False)
class KnownTensor:
    """A tensor whose elements are known: numbers, or, in an array of objects, index expressions."""

    array: Array
    dtype: str
    name: str = "constant"  # what the constant is called if it becomes one

    @property
    def symbolic(self) -> bool:
        """Whether elements are index expressions."""
        return self.array.dtype == object

    @property
    def exprs(self) -> Array:
        """The elements as an array of index expressions; whole numbers may be held as floats."""
        if self.symbolic:
            return self.array
        made = np.empty(self.array.shape, object)
        for at, value in np.ndenumerate(self.array):
            if int(value) != value:
                raise GraphError(f"{value} is not a whole number, so it is no size")
            made[at] = index(int(value))
        return made


OnnxValue = KnownTensor | GraphValue


def known_sizes(exprs: Any, dtype: str = "int64", name: str = "sizes") -> KnownTensor:
    """Sizes as a value; numbers if all of them are."""
    made = np.asarray(exprs, object)
    values = [value_of(index(e)) for e in made.flat]
    if None in values:
        return KnownTensor(made, dtype, name)
    return KnownTensor(np.array(values, "float64" if dtype in FLOATS else dtype).reshape(made.shape), dtype, name)


def known_array(array: Array, name: str) -> KnownTensor:
    """An array of numpy, or of the types that onnx adds to it, as a value."""
    dtype = array.dtype.name
    if dtype not in DTYPES:
        raise GraphError(f"'{name}' has dtype {dtype}; graphs have {', '.join(DTYPES)}")
    return KnownTensor(array, dtype, name)


class Constants:
    """Makes known values constants of the module, each when it is first used as a tensor."""

    def __init__(self, b: GraphBuilder, shared: Sequence[str]) -> None:
        self._b = b
        self._shared = frozenset(shared)  # names that the module has from other functions
        self._made: dict[int, tuple[KnownTensor, GraphValue]] = {}

    def tensor(self, known: KnownTensor) -> GraphValue:
        """The value as a tensor of the graph."""
        if id(known) not in self._made:
            made = self._sizes(known) if known.symbolic else self._constant(known)
            self._made[id(known)] = known, made  # the first is kept so that its id stays its own
        return self._made[id(known)][1]

    def _constant(self, known: KnownTensor) -> GraphValue:
        if known.array.size == 0:
            raise GraphError(f"'{known.name}' has no elements, which tensors of graphs have")
        name = constant_name(known.name, set())
        while self._b.is_taken(name) and name not in self._shared:
            name += "_"
        if known.dtype == BFLOAT16:
            return self._b.constant(name, Constant(stored(known.array.astype("float32"), BFLOAT16), BFLOAT16))
        return self._b.constant(name, Constant(np.array(known.array, known.dtype), known.dtype))

    def _sizes(self, known: KnownTensor) -> GraphValue:
        """Elements that are index expressions, each of them a tensor of its own before they are joined."""
        one = () if known.array.ndim == 0 else (1,)
        parts = [self._b.full(shape=one, value=e, dtype=known.dtype) for e in map(_expr, known.array.flat)]
        flat = parts[0] if len(parts) == 1 else self._b.op("concat", *parts, axis=0)
        return flat if known.array.ndim < 2 else self._b.reshape(flat, shape=known.array.shape)


def _expr(e: Any) -> Expr:
    return index(e)
