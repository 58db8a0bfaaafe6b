"""Operations in a statement, counted by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from searchlab.dtype import BOOL, FLOATS, INDEX
from searchlab.ir.expr import And, Binary, Call, Cast, Compare, Expr, Load, Select

KINDS = ("mad", "addsub", "mul", "div", "compare", "math", "other")
COUNTS = (*(f"{t}_{k}" for t in ("float", "int") for k in KINDS), "bool", "select")
_PLAIN_CALLS = ("abs", "floor", "round", "differing")
_BINARY = {"add": "addsub", "sub": "addsub", "mul": "mul", "div": "div", "min": "compare", "max": "compare"}


def count(value: Expr) -> Counter[str]:
    """How often each of COUNTS occurs in a tensor value; index arithmetic is left out, since code generation moves it.

    `mad` is an addition or subtraction of a product, counted as one.
    """
    found: Counter[str] = Counter()
    _visit(value, found)
    return found


def flops(counts: Mapping[str, int]) -> int:
    """Arithmetic operations; a multiply-add is two."""
    return sum((2 if kind.endswith("_mad") else 1) * n for kind, n in counts.items() if kind not in ("bool", "select"))


def _visit(e: Expr, found: Counter[str]) -> None:
    if isinstance(e, Load) or e.dtype == INDEX:
        return
    parts = e.children()
    if isinstance(e, Binary) and e.op in ("add", "sub"):
        product = next((p for p in parts if isinstance(p, Binary) and p.op == "mul"), None)
        found[f"{_sort(e)}_{'mad' if product is not None else 'addsub'}"] += 1
        if product is not None:
            parts = (*(p for p in parts if p is not product), *product.children())
    elif type(e) in _COUNTED:
        kind, times = _COUNTED[type(e)](e)
        found[kind] += times
    for p in parts:
        _visit(p, found)


def _sort(e: Expr) -> str:
    return "float" if e.dtype in FLOATS else "int"


def _comparison(e: Compare) -> tuple[str, int]:
    return ("bool" if e.a.dtype in (INDEX, BOOL) else f"{_sort(e.a)}_compare"), 1


_COUNTED: dict[type[Expr], Callable[[Any], tuple[str, int]]] = {
    Binary: lambda e: (f"{_sort(e)}_{_BINARY[e.op]}", 1),
    Call: lambda e: (f"{_sort(e)}_{'other' if e.function in _PLAIN_CALLS else 'math'}", 1),
    Cast: lambda e: (f"{_sort(e)}_other", 1),
    Select: lambda e: ("select", 1),
    And: lambda e: ("bool", len(e.args) - 1),
    Compare: _comparison,
}
