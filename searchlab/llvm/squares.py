"""A column of a square of numbers, made of its rows by shuffles: what loads with a large stride become.

The square is transposed in blocks of four by four: first the blocks change places, in halves, quarters and so on, which
moves whole 128 bits; then each block is transposed by itself.  A column alone takes nearly as many shuffles as it has
elements; the others of its square have most of them in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

BLOCK = 4
Let = Callable[[str], str]


def column(rows: Callable[[int], str], number: int, size: int, element: str, let: Let) -> str:
    """The vector of the elements `number` of `size` rows, each a vector of so many elements of an LLVM type.

    `let` names the result of an instruction, the same one for the same instruction.
    """
    vector = f"<{size} x {element}>"

    def picked(a: str, b: str, picks: Sequence[int]) -> str:
        mask = ", ".join(f"i32 {p}" for p in picks)
        return let(f"shufflevector {vector} {a}, {vector} {b}, <{size} x i32> <{mask}>")

    def moved(row: int, step: int) -> str:
        """A row after blocks at this distance, and at all larger ones, have changed places."""
        if step == size:
            return rows(row)
        a, b = moved(row & ~step, 2 * step), moved(row | step, 2 * step)
        first = [lane for lane in range(size) if not lane & step]
        odd = step if row & step else 0
        ours, theirs = [lane + odd for lane in first], [size + lane + odd for lane in first]
        pairs = zip(_blocks(ours, step), _blocks(theirs, step), strict=True)
        return picked(a, b, [p for x, y in pairs for p in (*x, *y)])

    group, at = number - number % BLOCK, number % BLOCK
    four = [moved(group + n, BLOCK) for n in range(BLOCK)]
    # in every block: pairs of neighbours of two rows, then two such pairs
    half = [2 * (at // 2), 2 * (at // 2) + 1]
    pairs = [p for b in range(0, size, BLOCK) for x in half for p in (b + x, size + b + x)]
    upper, lower = picked(four[0], four[1], pairs), picked(four[2], four[3], pairs)
    two = [2 * (at % 2), 2 * (at % 2) + 1]
    return picked(upper, lower, [s + b + x for b in range(0, size, BLOCK) for s in (0, size) for x in two])


def _blocks(lanes: list[int], size: int) -> list[list[int]]:
    return [lanes[n : n + size] for n in range(0, len(lanes), size)]
