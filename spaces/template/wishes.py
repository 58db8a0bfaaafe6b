"""What a person would pick from the templates, sized by the target: lanes, vector registers, caches.

Templates are known by their names, so whatever operator a template is written for profits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from searchlab.ir.expr import value_of
from searchlab.search import Task
from searchlab.search.wishes import Wish
from searchlab.targets import Target, cpu_of

_EVERY = 1 << 20  # all input channels at once
_UNKNOWN = 1024  # assumed for an extent that is known only at run time


def wishes(task: Task) -> Iterator[Wish]:
    """Points to start with, most promising first; those of templates that a task does not have are left out."""
    program = task.program
    lanes = task.target.lanes(program.buffers[program.outputs[0]].dtype)
    yield from _calls(task.target)
    yield from _products(task, lanes, "tiles", -1)
    yield from _products(task, lanes, "pixels", -2)
    yield from _convolutions(task, lanes)
    yield Wish("dots*", {"i1": 4, "j1": 4, "k1": lanes})
    yield Wish("dots*", {"i1": 4, "j1": 2, "k1": 2 * lanes})
    for rows, vectors in ((4, 2), (2, 4)):
        for pad in ("windows/pad=channel", "windows/pad=band", "windows*"):
            yield Wish(pad, {"y1": rows, "x1": vectors * lanes, "unroll": 2})
    for structure in ("rows-ahead", "rows-ahead/exponentials=kept", "rows", "rows/exponentials=kept"):
        for partial, block in ((4, 8), (8, 8), (4, 1)):
            yield Wish(structure, {"partial": partial * lanes, "width": 4 * lanes, "block1": block})
    yield Wish("lanes/share=sums", {"k1": 4096 // lanes, "k2": 4 * lanes, "block1": 16})
    yield Wish("lanes/share=sums", {"k1": 1024 // lanes, "k2": 8 * lanes, "block1": 16})
    for vectors, block in ((4, 16), (8, 4)):
        yield Wish("lanes/share=outputs", {"k1": vectors * lanes, "block1": block})
    for vectors, sums in ((4, 4), (8, 1)):
        yield Wish("columns", {"x1": vectors * lanes, "k1": sums})
    for shape in ("chain/shape=line", "chain/shape=rows"):
        for block, vectors, unroll in ((64, 4, 4), (16, 4, 1)):
            yield Wish(shape, {"x1": block, "x2": vectors * lanes, "unroll": unroll})


def _calls(target: Target) -> Iterator[Wish]:
    """Tiles of calls as in the default schedule, and micro-kernels that fill the registers, each on all of its rows."""
    packs = ("/pack=ahead", "/pack=whole", "")
    wide = target.vector_registers >= 32
    for rows, vectors in ((10, 2), (14, 1), (4, 4)) if wide else ((6, 2), (12, 1), (4, 3)):
        tile = {"rows": rows, "vectors": vectors, "j1": 1}
        for pack in packs:
            yield Wish(f"calls{pack}/first=columns", {**tile, "i1": 64})
        for pack in packs[:2]:
            yield Wish(f"calls{pack}", {**tile, "y1": 7, "z": 16})
    for kernel in ("14x32", "6x64") if wide else ("6x16", "4x24"):
        for pack in packs:
            yield Wish(f"kernels/intrinsic=*_{kernel}{pack}/first=columns", {"i1": 64, "j1": 1})
            yield Wish(f"kernels/intrinsic=*_{kernel}{pack}", {"y1": 7, "z": 16})
    yield Wish("kernels*", {"i1": 64, "j1": 1, "y1": 7, "z": 16})


def _products(task: Task, lanes: int, template: str, depth: int) -> Iterator[Wish]:
    """Tiles that fill the registers; blocks of packed columns that fit the cache, enough of them for all threads.

    `depth` says which dimension of the second operand the sum runs along.
    """
    target = task.target
    wide = target.vector_registers >= 32
    k, columns = _operand(task, depth)
    tiles = ((6, 4), (8, 3)) if wide else ((6, 2), (4, 3))
    for rows, vectors in tiles if template == "tiles" else tiles[:1]:
        width = vectors * lanes
        block = max(1, min(_in_cache(target, k, width), columns // (width * 2 * target.threads)))
        tile = {"i2": rows, "j2": width, "k": 8}
        yield Wish(f"{template}/pack=ahead/sums=registers", {**tile, "i1": 8, "j1": 2})
        yield Wish(f"{template}/pack=panel/sums=registers", {**tile, "i1": 1, "j1": block})
        yield Wish(f"{template}/pack=panel/sums=registers", {**tile, "i1": 8, "j1": min(block, 4)})
        yield Wish(f"{template}/pack=none/sums=registers", {**tile, "i1": 8, "j1": 1})


def _operand(task: Task, depth: int) -> tuple[int, int]:
    """The length of the sum and the number of columns of a product."""
    program = task.program
    shape = [value_of(e) or _UNKNOWN for e in program.buffers[program.outputs[0]].shape]
    block = next((b for b in program.blocks.values() if b.reduces), None)
    axes = block.iters if block is not None else ()
    sums = [value_of(it.extent) or _UNKNOWN for it in axes if it.kind == "reduce"]
    return int(np.prod(sums)), int(np.prod(shape[depth:]))


def _in_cache(target: Target, rows: int, width: int) -> int:
    """How many panels of `rows` by `width` floats fill a good part of the second-level cache."""
    return max(1, int(cpu_of(target).l2 * 0.6) // (4 * rows * width))


def _convolutions(task: Task, lanes: int) -> Iterator[Wish]:
    wide = task.target.vector_registers >= 32
    # with two vectors per column, unrolled taps would need more registers than there are
    tiles = ((14, 1, _EVERY, 2), (14, 2, 16, 0)) if wide else ((12, 1, _EVERY, 2), (6, 2, 16, 0))
    pads = (("", "/pad=whole"), ("/pad=band",))
    for pack, pad in (("ahead", pads[0]), ("ahead", pads[1]), ("whole", pads[0])):
        for columns, vectors, inputs, taps in tiles:
            wished = {"c1": vectors * lanes, "x1": columns, "y1": 7, "z": inputs, "z1": inputs, "unroll": taps}
            yield from (Wish(f"channels/pack={pack}{p}", wished) for p in pad)
        if pack == "ahead":
            for rows, vectors in ((8, 2), (6, 4)) if wide else ((6, 2), (4, 3)):
                wished = {"c1": rows, "x1": vectors * lanes, "unroll": 2, "k": 8}
                yield from (Wish(f"columns{p}", wished) for p in pad)
