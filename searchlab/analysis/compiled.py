"""A graph's columns as one function of a population: code for the machine of columns, laid out once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.analysis import column_machine
from searchlab.analysis.column_machine import BLOCK, OPERATIONS
from searchlab.analysis.graph import Node
from searchlab.errors import IRError

Floats = npt.NDArray[Any]
_NUMBER = {name: n for n, name in enumerate(OPERATIONS)}


class ColumnFunction:
    """Columns of a graph, side by side for a population: log2(1 + x) of each, unless `plain` names it.

    Calls may run at once in several threads; each has memory of its own.
    """

    def __init__(self, columns: Sequence[Node], plain: frozenset[int] = frozenset()) -> None:
        order = _order(columns)
        rows = _Rows(order, columns)
        self.symbols = tuple(str(n.value) for n in order if n.op == "symbol")
        self._code = np.array(rows.code, np.int32).reshape(-1, 4)
        self._out = np.array([rows.row(node, n) for node in columns for n in range(node.rows)], np.int32)
        self.width = len(self._out)
        self._plain = plain
        self._logged = np.array([[at not in plain] for at in range(self.width)], np.bool_)
        self._memory = np.zeros((rows.height, BLOCK))
        for value, row in rows.constants.items():
            self._memory[row] = value
        self._free: list[Floats] = []

    @property
    def operations(self) -> int:
        """How many operations a block of candidates takes, logarithms apart."""
        return len(self._code)

    def __call__(self, values: Mapping[str, Any], dtype: npt.DTypeLike = np.float32) -> Floats:
        """The columns of all candidates, one row each; `values` gives the integers of every symbol."""
        if missing := [name for name in self.symbols if name not in values]:
            raise IRError(f"no values for {', '.join(missing)}; given: {', '.join(values) or 'none'}")
        shapes = {v.shape if isinstance(v, np.ndarray) else np.shape(v) for v in values.values()} or {(1,)}
        if len(shapes) > 1 or len(next(iter(shapes))) > 1:
            got = ", ".join(f"{name} {np.shape(v)}" for name, v in values.items())
            raise IRError(f"expected one value per candidate for each symbol, as many for all; got {got}")
        count = next(iter(shapes))[0] if shapes != {()} else 1
        out = self._columns(values, count)
        if not self._plain:
            np.log2(np.add(out, 1.0, out), out)
        else:
            np.log2(np.add(out, 1.0, out, where=self._logged), out, where=self._logged)
        return np.ascontiguousarray(out[:, :count].T, dtype)

    def _columns(self, values: Mapping[str, Any], count: int) -> Floats:
        """The columns as rows, in whole blocks."""
        whole = -(-count // BLOCK) * BLOCK
        inputs = np.empty((len(self.symbols), whole))
        inputs[:, count:] = 1  # what fills up the last block: all sizes may be 1
        for row, name in zip(inputs, self.symbols, strict=True):
            row[:count] = values[name]
        out = np.empty((self.width, whole))
        memory = self._free.pop() if self._free else self._memory.copy()
        column_machine.run(self._code, memory, inputs, self._out, out)
        self._free.append(memory)
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_free": []}


class _Rows:
    """A row of the machine's memory for every node (`place` is the first of those of a wide one), and its code.

    Symbols come first; a row is free again after its last use unless it is a column, a symbol or a number.
    """

    def __init__(self, order: Sequence[Node], columns: Sequence[Node]) -> None:
        symbols = [n for n in order if n.op == "symbol"]
        self.place = {n.number: at for at, n in enumerate(symbols)}
        self.height = len(symbols)
        self.constants: dict[float, int] = {}
        self.code: list[tuple[int, int, int, int]] = []
        self._free: dict[int, list[int]] = {}
        kept = {n.number for n in columns} | set(self.place)
        last = {arg.number: n for n, node in enumerate(order) for arg in node.args}
        for n, node in enumerate(order):
            if node.op != "symbol":
                self._write(node, {a.number: a for a in node.args if a.number not in kept and last[a.number] == n})

    def _write(self, node: Node, done: Mapping[int, Node]) -> None:
        """The code of one operation, after which some of its arguments are not needed any more."""
        args = [[self.row(a, r) for r in range(max(node.rows, a.rows))] for a in node.args]
        for a in done.values():
            # not before this operation where rows are reused one by one: a wide result may start on its argument
            if a.numbers is None and a.rows == node.rows:
                self._free.setdefault(a.rows, []).append(self.place[a.number])
        self.place[node.number] = start = self._take(node.rows)
        if node.op == "sum":
            first, *rest = args[0]
            self.code += [(_NUMBER["add"], before, r, start) for before, r in zip([first, *[start] * len(rest)], rest)]
            return
        for r in range(node.rows):
            self.code.append((_NUMBER[node.op], args[0][r], args[-1][r], start + r))

    def _take(self, rows: int) -> int:
        if waiting := self._free.get(rows):
            return waiting.pop()
        self.height += rows
        return self.height - rows

    def row(self, node: Node, r: int) -> int:
        """Where column `r` of a node is."""
        if node.numbers is not None:
            value = node.numbers[r if node.rows > 1 else 0]
            if value not in self.constants:
                self.constants[value] = self.height  # never a row that was used for something else
                self.height += 1
            return self.constants[value]
        return self.place[node.number] + (r if node.rows > 1 else 0)


def _order(columns: Sequence[Node]) -> list[Node]:
    """All nodes that the columns need, arguments first, each as late as the first column that needs it."""
    done: dict[int, Node] = {}
    for column in columns:
        stack = [column]
        while stack:
            top = stack[-1]
            waiting = [a for a in top.args if a.number not in done and a.numbers is None]
            if waiting and top.number not in done:
                stack.extend(waiting)
                continue
            stack.pop()
            if top.numbers is None:
                done.setdefault(top.number, top)
    return list(done.values())
