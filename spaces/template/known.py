"""Points that are known to be fast: what a person would pick from the templates, as choices for `Space.chosen`.

Sizes follow from the target: how many lanes a vector has, how many vector registers there are, how large a cache is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from searchlab.ir.expr import value_of
from searchlab.search import Knob, Points, Sketch, Space, Task
from searchlab.search.knob import Floats
from searchlab.search.parts import MOST_LISTED
from searchlab.targets import Target, cpu_of
from spaces.template.generator import TemplateSpace

Wishes = Mapping[str, int]


def known_points(task: Task) -> list[dict[str, Any]]:
    """The choices, most promising first; those that the task's space does not hold are left out."""
    space = TemplateSpace().space(task)
    found: list[dict[str, Any]] = []
    for start, wishes in _wishes(task):
        for number, sketch in enumerate(space.sketches):
            if sketch.name == start or sketch.name.startswith(f"{start}/"):
                point = _nearest(space, number, sketch, wishes)
                choice = space.choice(point) if space.valid(point).all() else None
                if choice is not None and choice not in found:
                    found.append(choice)
    return found


def _nearest(space: Space, number: int, sketch: Sketch, wishes: Wishes) -> Points:
    """The point whose options come nearest to what is wished for; a knob without a wish gets the least."""
    distances = [_distances(k, wishes.get(k.name, 1)) for k in sketch.knobs]
    best = Points.of([[number, *(int(d.argmin()) for d in distances)]], space.width)
    if space.valid(best).all() or not sketch.exact or not 0 < sketch.count <= MOST_LISTED:
        return best
    rows = sketch.all()
    total = sum(d[rows[:, n]] for n, d in enumerate(distances))
    return Points.of([[number, *rows[int(np.argmin(total))].tolist()]], space.width)


def _distances(knob: Knob, wish: int) -> Floats:
    """How far options are from a value; of a split the innermost factor counts, then the outermost should be large."""
    last, first = knob.options[:, -1], knob.options[:, 0]
    found: Floats = np.abs(np.log((last + 1) / (wish + 1))) - 1e-9 * first
    return found


def _wishes(task: Task) -> Iterator[tuple[str, Wishes]]:
    """Beginnings of sketches' names, with the values that their knobs should have."""
    target, name = task.target, task.workload.name
    program = task.program
    lanes = target.lanes(program.buffers[program.outputs[0]].dtype)
    if name in ("matmul", "batch_matmul", "dense", "transpose_batch_matmul"):
        yield from _products(task, lanes, "tiles", -1)
    elif name in ("depthwise_conv2d", "max_pool2d", "avg_pool2d"):
        for rows, vectors in ((4, 2), (2, 4)):
            yield "windows", {"y1": rows, "x1": vectors * lanes, "unroll": 2}
    elif name in ("softmax", "layer_norm"):
        for partial in (8, 4):
            yield "rows", {"partial": partial * lanes, "width": 4 * lanes, "block1": 8}
    elif name in ("l2_norm", "global_avg_pool2d", "reduce"):
        yield "lanes", {"k1": 4096 // lanes, "k2": 4 * lanes, "block1": 16}
        yield "lanes", {"k1": 4 * lanes, "block1": 16}
        yield "columns", {"x1": 4 * lanes, "k1": 4}
    elif name == "elementwise":
        yield "chain", {"x1": 64, "x2": 4 * lanes, "unroll": 4}
    else:
        yield from _products(task, lanes, "pixels", -2)
        yield from _convolutions(task, lanes)


def _products(task: Task, lanes: int, template: str, depth: int) -> Iterator[tuple[str, Wishes]]:
    """Tiles that fill the registers; blocks of packed columns that fit the cache, enough of them for all threads.

    `depth` says which dimension of the second operand the sum runs along.
    """
    target = task.target
    wide = target.vector_registers >= 32
    k, columns = _operand(task, depth)
    for rows, vectors in ((6, 4), (8, 3)) if wide else ((6, 2),):
        width = vectors * lanes
        block = max(1, min(_in_cache(target, k, width), columns // (width * 2 * target.threads)))
        wishes = {"i2": rows, "j2": width, "k": 8}
        yield f"{template}/pack=panel/sums=registers", {**wishes, "i1": 1, "j1": block}
        yield f"{template}/pack=panel/sums=registers", {**wishes, "i1": 8, "j1": min(block, 4)}
        yield f"{template}/pack=ahead/sums=registers", {**wishes, "i1": 8, "j1": 2}


def _operand(task: Task, depth: int) -> tuple[int, int]:
    """The length of the sum and the number of columns of a product."""
    program = task.program
    shape = [value_of(e) or 1024 for e in program.buffers[program.outputs[0]].shape]
    block = next(b for b in program.blocks.values() if b.reduces)
    sums = [value_of(it.extent) or 1024 for it in block.iters if it.kind == "reduce"]
    return int(np.prod(sums)), int(np.prod(shape[depth:]))


def _in_cache(target: Target, rows: int, width: int) -> int:
    """How many panels of `rows` by `width` floats fill a good part of the second-level cache."""
    return max(1, int(cpu_of(target).l2 * 0.6) // (4 * rows * width))


def _convolutions(task: Task, lanes: int) -> Iterator[tuple[str, Wishes]]:
    wide = task.target.vector_registers >= 32
    every = 1 << 20  # all input channels at once
    # with two vectors per column, unrolled taps would need more registers than there are
    tiles = ((14, 1, every, 2), (14, 2, 16, 0)) if wide else ((12, 1, every, 2), (6, 2, 16, 0))
    for columns, vectors, inputs, taps in tiles:
        yield "channels", {"c1": vectors * lanes, "x1": columns, "y1": 7, "z": inputs, "z1": inputs, "unroll": taps}
    yield "columns", {"c1": 8 if wide else 6, "x1": 2 * lanes, "unroll": 2, "k": 8}
