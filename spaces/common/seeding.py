"""Seeds of derived structures: the points that come nearest to tiles and vectors that are known to be fast.

The structures of the sketch and the probabilistic space are called after the same steps (`pack`, `layout`, `tile`,
`plain`) and places of stages, so one list of names serves both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice, product, zip_longest

from searchlab.ir.stmt import Block
from searchlab.search import Points, Sketch, Space, Task
from searchlab.search.wishes import Wish, nearest
from searchlab.tactics import space_axes, work
from spaces.common.predicates import points
from spaces.common.tilings import Kind, Values, extent, tilings, values

MOST_SEEDS = 8
_JOBS = 16  # parts of a factored sum for each thread

# Names of structures by what is in their vectors; of every group the first that exists is taken.
_TILED: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "panels": (
        ("layout-fuse2", "layout", "layout-fuse2/*", "layout/*"),
        ("pack-fuse2/*_local@*", "pack/*_local@*"),
        ("tile-fuse2", "tile", "tile-fuse2/*", "tile/*"),
    ),
    "channels": (("layout-fuse1",), ("layout-fuse1/*@*",), ("pack-fuse1",)),
    "columns": (("tile-fuse1", "tile"), ("tile-fuse1/*@*", "tile/*@*")),
    "pixels": (("collapse-in-place",), ("collapse/*_local@*",)),
    "window": (("tile-fuse1/*@*", "tile/*@*"), ("tile-fuse1", "tile")),
}
_PLAIN = (("plain/*",), ("plain",))
_FACTORED = (("rfactor_outer*",), ("rfactor_inner*",))
_CALLS = re.compile(r"calls\([^)]*\)-")
_TRIED = (4, 2, 1, 1)  # points of the most and the least promising of these


def seeds_of(task: Task, space: Space) -> Points:
    """The points that come nearest to what is known to be fast, taking turns between structures, best first."""
    lists = [list(wishes) for wishes in _by_structure(task, space)]
    turns = (w for turn in zip_longest(*lists) for w in turn if w is not None)
    return nearest(space, turns, MOST_SEEDS)


def _by_structure(task: Task, space: Space) -> Iterator[Iterator[Wish]]:
    tiled = {sketch.name: found for sketch in space.sketches if (found := tilings(task, sketch))}
    callers = dict.fromkeys(["", *(m.group() for name in tiled if (m := _CALLS.match(name)))])
    for prefix, (kind, groups) in product(callers, _TILED.items()):
        mine = [s for s in space.sketches if s.name in tiled and bool(_CALLS.match(s.name)) == bool(prefix)]
        own = [s for s in mine if s.name.startswith(prefix) and tiled[s.name][-1].kind == kind]
        for names in groups:
            if (sketch := _first(own, [prefix + name for name in names])) is not None:
                yield _tiled(task, sketch)
    rest = [s for s in space.sketches if s.name not in tiled]
    groups = (*_FACTORED, *_PLAIN) if _few_outputs(task) else (*_PLAIN, *_FACTORED)
    for names, most in zip(groups, _TRIED, strict=True):
        if (sketch := _first(rest, names)) is not None:
            yield islice(_untiled(task, sketch), most)


def _first(sketches: Iterable[Sketch], patterns: Iterable[str]) -> Sketch | None:
    """The first sketch that matches, preferably one with every stage inside a loop if `*` allows it, none inlined."""
    for pattern in patterns:
        found = [s for s in sketches if fnmatchcase(s.name, pattern)]
        if found:
            most = pattern == "plain/*"
            count = -1 if most else 1
            return min(found, key=lambda s: ("@inline" in s.name, s.name.count("@") * count, "/ahead" not in s.name))
    return None


def _tiled(task: Task, sketch: Sketch) -> Iterator[Wish]:
    here = "_local@" in sketch.name
    stages = [list(values(task.target, t, here)) for t in tilings(task, sketch)]
    for number in range(max(map(len, stages))):
        wished = _vectors(task, sketch, 4)
        for choices in stages:
            wished |= choices[number % len(choices)]
        yield Wish(sketch.name, _by_levels(wished, sketch))


def _by_levels(wished: Values, sketch: Sketch) -> Values:
    """The wishes without the innermost factors of knobs that have fewer: of calls that are a tile by themselves."""
    parts = {k.name: len(k.symbols) for k in sketch.knobs if k.kind == "split"}
    return {n: v[: parts[n]] if isinstance(v, tuple) and n in parts else v for n, v in wished.items()}


def _untiled(task: Task, sketch: Sketch) -> Iterator[Wish]:
    window = any(b.reduces and len(b.iters) - len(space_axes(b)) > 1 for b in task.program.blocks.values())
    for vectors, unroll in ((4, 64 if window else 16), (4, 1), (2, 16), (8, 64)):
        yield Wish(sketch.name, _vectors(task, sketch, vectors) | {"unroll": unroll})


def _vectors(task: Task, sketch: Sketch, count: int) -> Values:
    """Vectors of the stages that are not tiled, and parts of factored sums for all threads."""
    program = task.program
    width = count * task.target.lanes(program.buffers[program.outputs[0]].dtype)
    wished: Values = {k.name: width for k in sketch.knobs if k.name.endswith("_v")}
    for k in sketch.knobs:
        if k.name.endswith("_r"):
            parts = min(_JOBS * task.target.threads, max(1, extent(k) // width))
            wished[k.name] = (parts, None, width) if len(k.symbols) == 3 else (None, width)
    return wished


def _few_outputs(task: Task) -> bool:
    """Whether the stage with the most work has fewer outputs than the threads could share."""
    heaviest: Block = max(task.program.blocks.values(), key=work)
    return heaviest.reduces and points(space_axes(heaviest)) < 4 * task.target.threads
