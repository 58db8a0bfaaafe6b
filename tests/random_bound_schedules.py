"""Random schedules for GPUs: workloads of odd sizes, whose loops are split, bound, staged and exchanged at random."""

from collections.abc import Callable

import numpy as np

from searchlab.errors import ScheduleError
from searchlab.ir.program import Program
from searchlab.schedule import Schedule
from searchlab.tactics import ThreadTiles, bind_elements, sum_with_threads, tile_for_threads
from searchlab.workloads import Workload, parse

Rng = np.random.Generator
SIZES = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33)
THREADS = (1, 2, 3, 5, 8, 16, 24, 32, 48, 64)


def random_bound_schedule(seed: int) -> tuple[Workload, Program]:
    """A workload, and a schedule of it that binds loops to blocks and threads."""
    rng = np.random.default_rng(seed)
    makers: tuple[Callable[[Rng], tuple[Workload, Program]], ...] = (_tiles, _tiles, _sums, _elements, _loops, _loops)
    return makers[int(rng.integers(len(makers)))](rng)


def _size(rng: Rng) -> int:
    return int(rng.choice(SIZES))


def _workload(rng: Rng) -> Workload:
    a, b, c = (_size(rng) for _ in range(3))
    specs = (
        f"matmul:m={a},n={b},k={c}",
        f"softmax:rows={a},cols={b}",
        f"layer_norm:rows={a},cols={b + 1}",
        f"elementwise:rows={a},cols={b},ops=gelu",
        f"conv2d:ci={min(a, 5)},co={min(b, 5)},h={c + 2},w={min(a, 9) + 2},k=3,padding=1",
        f"depthwise_conv2d:c={min(a, 7)},h={c + 3},w={min(b, 9) + 3},k=3,stride=2",
        f"reduce:shape={a}x{b}x{c},axis=-1,op=max",
    )
    return parse(str(rng.choice(specs)))


def _tiles(rng: Rng) -> tuple[Workload, Program]:
    """A product by way of shared memory, with a double buffer or without."""
    m, n, k = (_size(rng) + int(rng.integers(32)) for _ in range(3))
    w = parse(f"matmul:m={m},n={n},k={k}")
    s = Schedule(w.program)
    threads = int(rng.choice((1, 2, 4, 8))), int(rng.choice((2, 4, 8, 16)))
    each = int(rng.choice((1, 2, 3, 4))), int(rng.choice((1, 2, 4)))
    tile_for_threads(s, "C", ThreadTiles(threads, each, int(rng.choice((1, 2, 3, 4, 8)))))
    if rng.random() < 0.6:
        (block,) = (x for x, b in s.program.blocks.items() if b.reduces)
        s.annotate(next(lp for lp in s.loops(block) if lp.startswith("k")), "double_buffer", True)
    return w, s.program


def _sums(rng: Rng) -> tuple[Workload, Program]:
    """A sum whose parts threads exchange."""
    w = parse(f"reduce:shape={_size(rng)}x{_size(rng)}x{_size(rng) * 7},axis=-1,op={rng.choice(('sum', 'max'))}")
    s = Schedule(w.program)
    sum_with_threads(s, "Y", int(rng.choice(THREADS[1:])))
    return w, s.program


def _elements(rng: Rng) -> tuple[Workload, Program]:
    """An element for every thread, in all stages."""
    w = _workload(rng)
    s = Schedule(w.program)
    for name in list(s.program.blocks):
        bind_elements(s, name, int(rng.choice(THREADS)))
    return w, s.program


def _loops(rng: Rng) -> tuple[Workload, Program]:
    """Loops of all stages split and bound at random: outer ones to blocks, others to threads, some left as they are."""
    w = _workload(rng)
    s = Schedule(w.program)
    for name in list(s.program.blocks):
        b = s.program.blocks[name]
        space = s.loops(name)[: sum(it.kind == "space" for it in b.iters)]
        axes = [list(rng.permutation([f"{kind}.{axis}" for axis in "xyz"])) for kind in ("blockIdx", "threadIdx")]
        outer: list[tuple[str, str]] = []
        inner: list[tuple[str, str]] = []
        for loop in space:
            first, second = s.split(loop, [None, int(rng.choice((1, 2, 3, 4, 8)))], tail=True)
            outer.append((first, axes[0].pop() if rng.random() < 0.8 and axes[0] else ""))
            inner.append((second, axes[1].pop() if rng.random() < 0.8 and axes[1] else ""))
        blocks = [lp for lp, axis in outer if axis]
        others = [lp for lp, axis in (*outer, *inner) if lp not in blocks]
        s.reorder(*blocks, *rng.permutation(others))
        for loop, axis in (*outer, *inner):
            if axis:
                s.bind(loop, axis)
        if rng.random() < 0.3:
            _exchanged(s, name)
    return w, s.program


def _exchanged(s: Schedule, name: str) -> None:
    """Gives the innermost sum to threads along x, if no loop around it has them."""
    loops = s.loops(name)
    free = all(s.program.loops[lp].kind != "threadIdx.x" for lp in loops)
    if free and s.program.blocks[name].reduces:
        try:
            s.bind(loops[-1], "threadIdx.x")
        except ScheduleError:
            return
