"""Pointwise functions, each in the IR and in numpy, by the names under which operators chain them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from searchlab.errors import WorkloadError
from searchlab.ir.expr import Expr, call, maximum, minimum
from searchlab.registry import nearest
from searchlab.workloads.definition import Array


@dataclass(frozen=True)
class Pointwise:
    """One function in two forms: on expressions, and on arrays."""

    expr: Callable[..., Expr]
    array: Callable[..., Array]


def _gelu(x: Expr) -> Expr:
    return x * 0.5 * (call("erf", x * math.sqrt(0.5)) + 1.0)


def _gelu_array(x: Array) -> Array:
    from scipy.special import erf  # imported here since scipy takes longer to import than the rest of this package

    found: Array = 0.5 * x * (1 + erf(x / math.sqrt(2)))
    return found


UNARY: dict[str, Pointwise] = {
    "relu": Pointwise(lambda x: maximum(x, 0), lambda x: np.maximum(x, 0)),
    "relu6": Pointwise(lambda x: minimum(maximum(x, 0), 6), lambda x: np.clip(x, 0, 6)),
    "sigmoid": Pointwise(lambda x: call("sigmoid", x), lambda x: 1 / (1 + np.exp(-x))),
    "tanh": Pointwise(lambda x: call("tanh", x), np.tanh),
    "gelu": Pointwise(_gelu, _gelu_array),
    "exp": Pointwise(lambda x: call("exp", x), np.exp),
    "abs": Pointwise(lambda x: call("abs", x), np.abs),
    "neg": Pointwise(lambda x: -x, lambda x: -x),
    "square": Pointwise(lambda x: x * x, np.square),
}

BINARY: dict[str, Pointwise] = {
    "add": Pointwise(lambda x, y: x + y, np.add),
    "sub": Pointwise(lambda x, y: x - y, np.subtract),
    "mul": Pointwise(lambda x, y: x * y, np.multiply),
    "max": Pointwise(maximum, np.maximum),
    "min": Pointwise(minimum, np.minimum),
}


def steps(text: str, known: Collection[str]) -> tuple[str, ...]:
    """The names in a chain such as "bn,relu"; "none" and the empty text give the empty chain."""
    names = tuple(s.strip() for s in text.split(",") if s.strip() and text.strip() != "none")
    for name in names:
        if name not in known:
            raise WorkloadError(f"unknown step '{name}' in '{text}'{nearest(name, known)}")
    return names
