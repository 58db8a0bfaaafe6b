"""A graph of operations on columns: equal subexpressions are one node, and numbers fold on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

# All columns are float64: whole numbers are exact to 2**53, and a quotient of such is rounded down correctly.
_FOLD: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "min": min, "max": max, "le": lambda a, b: float(a <= b), "eq": lambda a, b: float(a == b),
    "floor": math.floor, "log2": math.log2,
}  # fmt: skip
_COMMUTES = frozenset({"add", "mul", "min", "max", "eq"})


Value = float | str | tuple[float, ...] | None


class Node:
    """A column: a number, the values of a symbol, or an operation on other columns.

    A `wide` node stands for several columns at once, `rows` of them; so one operation does the work of many.
    """

    __slots__ = ("args", "graph", "number", "op", "rows", "value")

    def __init__(self, graph: Graph, number: int, op: str, args: tuple[Node, ...], value: Value) -> None:
        self.graph, self.number, self.op, self.args, self.value = graph, number, op, args, value
        self.rows: int = len(value) if isinstance(value, tuple) else max((a.rows for a in args), default=1)
        if op == "sum":
            self.rows = 1

    @property
    def numbers(self) -> tuple[float, ...] | None:
        """The numbers of the columns, if they hold the same everywhere."""
        if self.op == "const":
            return (self.value,)  # type: ignore[return-value]
        return self.value if self.op == "wide" else None  # type: ignore[return-value]

    @property
    def constant(self) -> float | None:
        """The number that the column holds everywhere, if it is one."""
        return self.value if self.op == "const" else None  # type: ignore[return-value]

    def __add__(self, other: Node | float) -> Node:
        return self.graph.binary("add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Node | float) -> Node:
        return self.graph.binary("sub", self, other)

    def __rsub__(self, other: float) -> Node:
        return self.graph.binary("sub", self.graph.const(other), self)

    def __mul__(self, other: Node | float) -> Node:
        return self.graph.binary("mul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Node | float) -> Node:
        return self.graph.binary("div", self, other)

    def __floordiv__(self, other: Node | float) -> Node:
        return self.graph.unary("floor", self / other)

    def __mod__(self, other: Node | float) -> Node:
        return self - (self // other) * other

    def at_most(self, other: Node | float) -> Node:
        """1 where this is not above the other, else 0."""
        return self.graph.binary("le", self, other)

    def equals(self, other: Node | float) -> Node:
        """1 where both are the same, else 0."""
        return self.graph.binary("eq", self, other)

    def least(self, other: Node | float) -> Node:
        """The smaller of the two."""
        return self.graph.binary("min", self, other)

    def most(self, other: Node | float) -> Node:
        """The larger of the two."""
        return self.graph.binary("max", self, other)

    def log2(self) -> Node:
        """The logarithm to base 2."""
        return self.graph.unary("log2", self)

    def sum(self) -> Node:
        """The sum of the columns of a wide node."""
        return self.graph.summed(self)


class Graph:
    """Makes nodes; the same operation on the same nodes is the same node."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Node] = {}
        self._count = 0
        self.zero, self.one = self.const(0.0), self.const(1.0)

    def _node(self, key: tuple[object, ...], op: str, args: tuple[Node, ...], value: Value) -> Node:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Node(self, self._count, op, args, value)
            self._count += 1
        return found

    def const(self, value: float) -> Node:
        """A column of one number."""
        return self._node(("const", float(value)), "const", (), float(value))

    def wide(self, values: Iterable[float]) -> Node:
        """A different number for each of several columns."""
        numbers = tuple(map(float, values))
        return self._node(("wide", numbers), "wide", (), numbers)

    def symbol(self, name: str) -> Node:
        """The values of a symbol."""
        return self._node(("symbol", name), "symbol", (), name)

    def unary(self, op: str, a: Node) -> Node:
        """An operation on one column; numbers are folded."""
        if a.numbers is not None:
            return self._numbers([_FOLD[op](x) for x in a.numbers])
        return self._node((op, a.number), op, (a,), None)

    def summed(self, a: Node) -> Node:
        """One column for several: their sum."""
        if a.numbers is not None:
            return self.const(sum(a.numbers))
        return a if a.rows == 1 else self._node(("sum", a.number), "sum", (a,), None)

    def _numbers(self, values: Sequence[float]) -> Node:
        return self.const(values[0]) if len(values) == 1 else self.wide(values)

    def binary(self, op: str, a: Node | float, b: Node | float) -> Node:
        """An operation on two columns; what needs none is simplified."""
        x = a if isinstance(a, Node) else self.const(a)
        y = b if isinstance(b, Node) else self.const(b)
        if y.number < x.number and op in _COMMUTES:
            x, y = y, x
        key = (op, x.number, y.number)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._binary(op, x, y, key)
        return found

    def _binary(self, op: str, x: Node, y: Node, key: tuple[object, ...]) -> Node:
        if x.numbers is not None and y.numbers is not None:
            rows = max(x.rows, y.rows)
            pairs = zip(x.numbers * (rows // x.rows), y.numbers * (rows // y.rows), strict=True)
            return self._numbers([_FOLD[op](p, q) for p, q in pairs])
        return self._simpler(op, x, y) or self._node(key, op, (x, y), None)

    def _simpler(self, op: str, x: Node, y: Node) -> Node | None:
        """What needs no operation: x + 0, x * 1, x / 1, the smaller of x and x."""
        if x is y and x.rows == 1:
            return {"sub": self.zero, "min": x, "max": x, "le": self.one, "eq": self.one, "div": self.one}.get(op)
        for one, other in ((x, y), (y, x)) if op in ("add", "mul") else ((y, x),):
            if one is self.zero and op != "mul":
                return other if op in ("add", "sub") else None
            if one is self.zero:
                return self.zero if other.rows == 1 else self.wide((0,) * other.rows)
            if one is self.one and op in ("mul", "div"):
                return other
        return self.zero if op == "div" and x is self.zero else None

    # --- several at once ----------------------------------------------------------------------------------------------

    def product(self, nodes: Iterable[Node]) -> Node:
        """The product of columns; 1 if there are none."""
        result = self.one
        for n in nodes:
            result = result * n
        return result

    def total(self, nodes: Iterable[Node]) -> Node:
        """The sum of columns; 0 if there are none."""
        result = self.zero
        for n in nodes:
            result = result + n
        return result

    def largest(self, nodes: Iterable[Node]) -> Node:
        """The largest of columns that are never negative; 0 if there are none."""
        result = self.zero
        for n in nodes:
            result = n if result.numbers is not None and not any(result.numbers) else result.most(n)
        return result

    def choose(self, mask: Node, a: Node | float, b: Node | float) -> Node:
        """`a` where the mask is 1, `b` where it is 0; both must be finite."""
        # as a sum of products, of which one is zero, so that neither is rounded
        x = a if isinstance(a, Node) else self.const(a)
        y = b if isinstance(b, Node) else self.const(b)
        return x if x is y else mask * x + (1 - mask) * y
