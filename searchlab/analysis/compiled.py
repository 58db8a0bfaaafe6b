"""A graph's columns as one function of a population: a list of ufunc calls on memory that is laid out once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.analysis.graph import UFUNCS, Node
from searchlab.errors import IRError

Floats = npt.NDArray[Any]
CHUNK = 2048  # candidates at a time: what is computed for them stays in the second-level cache
_LEAST = 16
_PAD = 8
_GAP = 24  # columns that are rather copied along than left out


_Rows = tuple[int, int]  # the first row of memory and how many
_Operand = _Rows | float | tuple[float, ...]  # the rows of a node, a number, or a number for each of several rows


class Function:
    """Columns of a graph, side by side for a population: log2(1 + x) of each, unless `plain` names it.

    Calls may run at once in several threads; each has memory of its own.
    """

    def __init__(self, columns: Sequence[Node], plain: frozenset[int] = frozenset()) -> None:
        self.width = sum(c.rows for c in columns)
        self._plain = plain
        self._fixed: list[tuple[int, float]] = []
        self._code: list[tuple[str, tuple[_Operand, ...], _Rows]] = []
        self._inputs: dict[str, int] = {}
        self._height = self.width
        self._translate(columns)
        fixed = {at for at, _ in self._fixed}
        self._logged = _runs(at for at in range(self.width) if at not in fixed | plain)
        self._copied = _runs((at for at in range(self.width) if at not in fixed), gap=_GAP)
        self._free: dict[int, list[_Bound]] = {}

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the symbols whose values are needed."""
        return tuple(self._inputs)

    @property
    def operations(self) -> int:
        """How many numpy calls a chunk takes, logarithms apart."""
        return len(self._code)

    def __call__(self, values: Mapping[str, Any], dtype: npt.DTypeLike = np.float32) -> Floats:
        """The columns of all candidates, one row each; `values` gives the integers of every symbol."""
        if missing := [name for name in self._inputs if name not in values]:
            raise IRError(f"no values for {', '.join(missing)}; given: {', '.join(values) or 'none'}")
        given = {name: np.atleast_1d(v) for name, v in values.items()}
        count = max(map(len, given.values()), default=1)
        if wrong := [f"{name} {v.shape}" for name, v in given.items() if v.shape != (count,)]:
            raise IRError(f"expected one value per candidate for each symbol, {count} of them; got {', '.join(wrong)}")
        out = np.empty((count, self.width), dtype)
        for start in range(0, count, CHUNK):
            stop = min(start + CHUNK, count)
            size = CHUNK if stop - start > CHUNK // 2 else max(_LEAST, 1 << (stop - start - 1).bit_length())
            waiting = self._free.setdefault(size, [])
            bound = waiting.pop() if waiting else _Bound(self, size)
            bound.run({name: given[name][start:stop] for name in self._inputs}, out[start:stop])
            waiting.append(bound)
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_free": {}}

    # --- translation --------------------------------------------------------------------------------------------------

    def _translate(self, columns: Sequence[Node]) -> None:
        row: dict[int, _Rows] = {}
        repeats: list[tuple[Node, _Rows]] = []
        at = 0
        for node in columns:
            place = (at, node.rows)
            at += node.rows
            if node.numbers is not None:
                self._fixed.extend(enumerate(node.numbers, place[0]))
            elif node.number in row or node.op == "symbol":
                repeats.append((node, place))
            else:
                row[node.number] = place
        self._emit(_order(columns), row)
        for node, place in repeats:
            self._code.append(("copy", (row[node.number],), place))

    def _emit(self, order: list[Node], row: dict[int, _Rows]) -> None:
        """Gives every node rows of memory, free again after its last use unless it is a column or a symbol."""
        last = {arg.number: n for n, node in enumerate(order) for arg in node.args}
        kept = set(row)
        free: dict[int, list[_Rows]] = {}
        for n, node in enumerate(order):
            if node.op == "symbol":
                row[node.number] = self._new(1)
                self._inputs[str(node.value)] = row[node.number][0]
                continue
            args = tuple(_operand(a, row) for a in node.args)
            for number in {a.number for a in node.args if a.numbers is None and a.op != "symbol"} - kept:
                if last[number] == n:
                    free.setdefault(row[number][1], []).append(row[number])
            if node.number not in row:
                waiting = free.get(node.rows)
                row[node.number] = waiting.pop() if waiting else self._new(node.rows)
            self._code.append((node.op, args, row[node.number]))

    def _new(self, rows: int) -> _Rows:
        self._height += rows
        return self._height - rows, rows


class _Bound:
    """The code of a function with its memory for one number of candidates."""

    def __init__(self, function: Function, size: int) -> None:
        # rows that lie a power of two apart would meet in the same few cache lines
        memory = np.zeros((function._height, size + _PAD))[:, :size]
        self.result = memory[: function.width]
        self.narrow = np.empty((function.width, size + 2 * _PAD), np.float32)[:, :size]
        for at, value in function._fixed:
            self.result[at] = value if at in function._plain else np.log2(1 + value)
        self.inputs = {name: memory[at] for name, at in function._inputs.items()}
        numbers: dict[_Operand, Floats] = {}

        def operand(x: _Operand) -> Floats:
            if isinstance(x, float):
                return numbers.setdefault(x, np.asarray(x))
            if isinstance(x[0], float):
                return numbers.setdefault(x, np.asarray(x).reshape(-1, 1))
            return memory[x[0]] if x[1] == 1 else memory[x[0] : x[0] + x[1]]

        self.code = [
            (np.positive if op == "copy" else UFUNCS[op], (*(operand(a) for a in args), operand(at)))
            for op, args, at in function._code
        ]
        self.logged = [memory[a:b] for a, b in function._logged]
        ends = [0, *(at for run in function._copied for at in run), function.width]
        self.kept = [(slice(a, b), self.result[a:b, 0].copy()) for a, b in zip(ends[::2], ends[1::2], strict=True)]
        self.copied = [(slice(a, b), self.result[a:b], self.narrow[a:b]) for a, b in function._copied]

    def run(self, values: Mapping[str, Any], out: Floats) -> None:
        for name, row in self.inputs.items():
            row[: len(out)] = values[name]
            row[len(out) :] = row[0]
        for ufunc, args in self.code:
            ufunc(*args)
        for block in self.logged:
            np.add(block, 1.0, block)
            np.log2(block, block)
        for columns, numbers in self.kept:
            out[:, columns] = numbers
        for columns, wide, narrow in self.copied:
            if out.dtype == np.float32:
                np.copyto(narrow, wide, casting="same_kind")
            out[:, columns] = (narrow if out.dtype == np.float32 else wide).T[: len(out)]


def _operand(node: Node, row: Mapping[int, _Rows]) -> _Operand:
    return row[node.number] if node.numbers is None else node.value  # type: ignore[return-value]


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


def _runs(columns: Iterable[int], gap: int = 1) -> list[tuple[int, int]]:
    """Ascending numbers as intervals (first, last + 1); those that are less than `gap` apart are one."""
    runs: list[tuple[int, int]] = []
    for at in columns:
        if runs and at < runs[-1][1] + gap:
            runs[-1] = (runs[-1][0], at + 1)
        else:
            runs.append((at, at + 1))
    return runs
