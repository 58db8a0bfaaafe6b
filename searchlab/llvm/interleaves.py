"""Vectors interleaved by shuffles: what loads of lanes become that belong to a few rows in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Let = Callable[[str], str]


def rows_in_turns(offsets: Sequence[int]) -> int:
    """The number of rows to which lanes belong in turns, each a run of elements; 0 if they do not."""
    rows = 2
    while rows < len(offsets):
        if all(x == offsets[lane % rows] + lane // rows for lane, x in enumerate(offsets)):
            return rows
        rows *= 2
    return 0


def interleaved(rows: Sequence[str], size: int, element: str, let: Let) -> str:
    """The first elements of all rows, then the second ones and so on; rows are vectors of `size` of an LLVM type."""
    if len(rows) == 1:
        return rows[0]
    half = len(rows) // 2
    type_ = f"<{size} x {element}>"
    mask = ", ".join(f"i32 {n}, i32 {size + n}" for n in range(size))
    pairs = [
        let(f"shufflevector {type_} {a}, {type_} {b}, <{2 * size} x i32> <{mask}>")
        for a, b in zip(rows[:half], rows[half:], strict=True)
    ]
    return interleaved(pairs, 2 * size, element, let)
