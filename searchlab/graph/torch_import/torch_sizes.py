"""Sizes of an exported program: torch's symbols, expressions and ranges as those of the IR.

Symbols get the names of the `Dim`s they were declared by; those without a declaration are called by the first input and
axis that has them, such as `x_0`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from searchlab.errors import GraphError
from searchlab.graph.symbols import SizeRange
from searchlab.ir.expr import Expr, Var, extreme, index, size

LARGEST = 2**62  # torch writes "no limit" as infinity, or as a number close to the largest there is


def _times(args: Sequence[Expr]) -> Expr:
    return math.prod(args, start=index(1))


def _power(args: Sequence[Expr]) -> Expr:
    base, exponent = args
    return _times([base] * int(str(exponent)))


# What functions of sympy, and those that torch adds to it, are in the IR; by the names of their classes.
_FUNCTIONS: dict[str, Callable[[Sequence[Expr]], Expr]] = {
    "Add": lambda args: sum(args, start=index(0)),
    "Mul": _times,
    "Pow": _power,
    "FloorDiv": lambda args: args[0] // args[1],
    "CleanDiv": lambda args: args[0] // args[1],
    "CeilDiv": lambda args: (args[0] + args[1] - 1) // args[1],
    "Mod": lambda args: args[0] % args[1],
    "PythonMod": lambda args: args[0] % args[1],
    "Max": lambda args: reduce(lambda a, b: extreme("max", a, b), args),
    "Min": lambda args: reduce(lambda a, b: extreme("min", a, b), args),
}


class TorchSizes:
    """The symbols of one exported program."""

    def __init__(self, names: Mapping[str, str], constraints: Mapping[Any, Any]) -> None:
        self.names = names
        self._known: dict[Any, Expr] = {}
        self.ranges: dict[Var, SizeRange] = {}
        for e, limits in constraints.items():
            if e.is_Symbol and str(e) in names:  # all others are derived from these, or depend on data
                symbol = self._symbol(e)
                self.ranges[symbol] = _range(symbol, limits)

    def expression(self, given: Any) -> Expr:
        """An extent (an integer or a SymInt) as an index expression."""
        return index(given) if isinstance(given, int) else self._converted(given.node.expr)

    def shape(self, fake: Any) -> tuple[Expr, ...]:
        """The shape of a tensor of the exported program."""
        return tuple(self.expression(n) for n in fake.shape)

    def _converted(self, e: Any) -> Expr:
        found = self._known.get(e)
        if found is None:
            found = self._known[e] = self._made(e)
        return found

    def _made(self, e: Any) -> Expr:
        if e.is_Integer:
            return index(int(e))
        if e.is_Symbol:
            return self._symbol(e)
        function = _FUNCTIONS.get(type(e).__name__)
        if function is None:
            raise GraphError(f"the size {e} has no form as an index: '{type(e).__name__}' is not known")
        return function([self._converted(a) for a in e.args])

    def _symbol(self, e: Any) -> Var:
        if str(e) not in self.names:
            raise GraphError(f"the size {e} depends on data, which graphs do not support")
        return size(self.names[str(e)])


def _range(symbol: Var, limits: Any) -> SizeRange:
    low, high = (int(n) if n.is_Integer and abs(n) < LARGEST else None for n in (limits.lower, limits.upper))
    if high is not None and high < 1:
        raise GraphError(f"the size {symbol} is at most {high}; sizes of graphs are at least 1")
    return SizeRange(max(low or 1, 1), high)


def size_names(inputs: Sequence[tuple[str, Any]], declared: Sequence[Mapping[int, Any]]) -> dict[str, str]:
    """Names for the symbols of the inputs' shapes: torch's own names to ours.

    `inputs` has the name and the fake tensor of every input; `declared` has what was declared of its axes.
    """
    found: dict[str, str] = {}
    for (_, fake), axes in zip(inputs, declared, strict=True):
        for axis, dim in axes.items():
            symbols = _symbols(fake.shape[axis])
            if len(symbols) == 1 and (name := _declared_name(dim)) is not None:
                found.setdefault(symbols[0], name)
    for name, fake in inputs:
        for axis, extent in enumerate(fake.shape):
            for symbol in _symbols(extent):
                if symbol not in found:
                    found[symbol] = _free(f"{name}_{axis}", found.values())
    return found


def _free(name: str, taken: Collection[str]) -> str:
    return _free(f"{name}_", taken) if name in taken else name


def _symbols(extent: Any) -> list[str]:
    return [] if isinstance(extent, int) else sorted(map(str, extent.node.expr.free_symbols))


def _declared_name(dim: Any) -> str | None:
    """The name of a `Dim`, or of the one it is derived from; hints such as `Dim.AUTO` and integers have none."""
    root = getattr(dim, "root", dim)
    name = getattr(root, "__name__", None)
    return name if isinstance(name, str) and name.isidentifier() else None


def declared_axes(value: Any, spec: Any) -> Iterator[dict[int, Any]]:
    """For every tensor inside an argument, what `dynamic_shapes` declares of its axes; in torch's order of leaves."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from declared_axes(part, spec.get(key) if isinstance(spec, Mapping) else None)
    elif isinstance(value, (tuple, list)):
        parts = spec if isinstance(spec, (tuple, list)) else [None] * len(value)
        for part, own in zip(value, parts, strict=False):
            yield from declared_axes(part, own)
    elif hasattr(value, "shape"):
        axes = spec if isinstance(spec, Mapping) else dict(enumerate(spec)) if isinstance(spec, (tuple, list)) else {}
        yield {axis: dim for axis, dim in axes.items() if dim is not None}
