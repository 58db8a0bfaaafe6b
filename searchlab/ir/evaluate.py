"""Evaluation of index expressions on integers or numpy arrays of integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from searchlab.errors import IRError
from searchlab.ir.expr import And, Binary, Compare, Const, Expr, Poly, Var

_OPS: dict[str, Any] = {
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": np.minimum, "max": np.maximum,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
}  # fmt: skip


def evaluate(e: Expr, env: Mapping[str, Any]) -> Any:
    """The value of an index expression or condition; `env` gives integers or arrays by variable name."""
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Var):
        if e.name not in env:
            raise IRError(f"'{e.name}' has no value; known: {', '.join(env) or 'none'}")
        return env[e.name]
    if isinstance(e, Poly):
        total: Any = 0
        for monomial, coefficient in e.terms:
            product: Any = coefficient
            for atom in monomial:
                product = product * evaluate(atom, env)
            total = total + product
        return total
    if isinstance(e, (Binary, Compare)):
        return _OPS[e.op](evaluate(e.a, env), evaluate(e.b, env))
    if isinstance(e, And):
        result: Any = True
        for c in e.args:
            result = result & evaluate(c, env)
        return result
    raise IRError(f"'{e}' is not an index expression")
