"""Seeds of tiles for GPUs: blocks of whole warps whose threads have some dozens of results each."""

from __future__ import annotations

from collections.abc import Iterator

from searchlab.search import Knob, Points, Sketch, Space
from searchlab.search.wishes import Wish, Wished, nearest

MOST_SEEDS = 8
# threads and own results of a thread along the last two axes, and the depth of a step of the sum
_TILES = (
    ((16, 16), (4, 4), 8),
    ((8, 16), (8, 4), 8),
    ((8, 8), (4, 4), 16),
    ((16, 16), (8, 8), 8),
    ((4, 32), (4, 1), 8),
)
_BLOCKS = (128, 256, 64)
# warps and calls of each along rows and columns, and calls in a step of the sum
_CALLS = (((2, 2), (4, 4), 2), ((2, 2), (2, 4), 2), ((2, 4), (2, 4), 1), ((1, 2), (2, 2), 2), ((1, 1), (1, 2), 1))


def gpu_seeds(space: Space) -> Points:
    """The points nearest to tiles that suit most GPUs, structures in turn; single kernels and shared memory first."""
    lists = [list(_wishes(s)) for s in sorted(space.sketches, key=_promise)]
    turns = [
        w for n in range(max(map(len, lists), default=0)) for found in lists if n < len(found) for w in found[n : n + 1]
    ]
    return nearest(space, turns, MOST_SEEDS)


def _promise(sketch: Sketch) -> tuple[bool, ...]:
    rows, shared, threads = (word not in sketch.name for word in ("rows", "shared", "threads("))
    return rows, not sketch.tensorized, shared, threads


def _wishes(sketch: Sketch) -> Iterator[Wish]:
    split = [k for k in sketch.knobs if k.kind == "split"]
    if sketch.tensorized:
        yield from _wishes_of_calls(sketch, split)
        return
    space = [k for k in split if _parts(k) > 3]
    sums = [k for k in split if k not in space]
    others: dict[str, Wished] = {k.name: 4 for k in sketch.knobs if k.name.endswith("lanes")}
    for n, (threads, each, depth) in enumerate(_TILES):
        wished = dict(others) | {k.name: _BLOCKS[n % len(_BLOCKS)] for k in sketch.knobs if k.name.endswith("_threads")}
        for at, k in enumerate(reversed(space)):
            wished[k.name] = _levels(k, threads[1 - at], each[1 - at]) if at < 2 else _levels(k, 1, 1)
        for at, k in enumerate(sums):
            wished[k.name] = (*[1] * (_parts(k) - 2), depth if at == 0 else 1)
        yield Wish(sketch.name, wished)


def _wishes_of_calls(sketch: Sketch, split: list[Knob]) -> Iterator[Wish]:
    """Warps and calls of each along rows and columns, and calls of a step; what one call fills has no knob."""
    others: dict[str, Wished] = {k.name: 8 for k in sketch.knobs if k.name.endswith("lanes")}
    for warps, tiles, calls in _CALLS:
        wished = dict(others) | {k.name: 128 for k in sketch.knobs if k.name.endswith("_threads")}
        space = [k for k in split if _parts(k) == 3]
        for at, k in enumerate(space):
            wished[k.name] = (None, warps[at % 2], tiles[at % 2])
        for k in split:
            if _parts(k) == 2:
                wished[k.name] = (None, calls)
        yield Wish(sketch.name, wished)


def _parts(knob: Knob) -> int:
    return len(knob.symbols)


def _levels(knob: Knob, threads: int, each: int) -> tuple[int | None, ...]:
    """Virtual threads, threads and what follows, from the inside: all results of a thread are neighbours."""
    inner = (*[1] * (_parts(knob) - 4), each) if _parts(knob) >= 4 else ()
    return (1, threads, *inner)
