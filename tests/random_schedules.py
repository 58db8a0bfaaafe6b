"""Random legal schedules: every primitive with random arguments; refusals are skipped, other errors get through."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from made_up_intrinsics import fitting

from searchlab.dtype import DTYPES
from searchlab.errors import ScheduleError
from searchlab.ir.expr import Expr, Select, Var, value_of
from searchlab.ir.loopkind import LOOP_KINDS
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import read, written
from searchlab.ir.stmt import Block, Loop, Stmt
from searchlab.schedule import PRIMITIVES, loops_around
from searchlab.schedule.primitive import consumers, is_leaf, producers

# Copies of a block that unrolling and vectorising may make; above it compile time would be all that is tested.
COPIES = 120
# Elements of a buffer: layouts and sums factored out add dimensions without end, and checked runs visit every element.
ELEMENTS = 1 << 16
# Shapes with primes, odd sizes and ones, small enough that thousands of schedules compile in minutes.
WORKLOADS = """
matmul:m=7,n=13,k=5
matmul:m=16,n=17,k=12
matmul:m=1,n=37,k=8
matmul:m=5,n=19,k=11,dtype=float64
matmul:m=5,n=35,k=9,dtype=int8
matmul:m=6,n=21,k=7,dtype=uint8
batch_matmul:batch=3,m=5,n=16,k=7
batch_matmul:batch=2,m=4,n=9,k=6,dtype=int8
dense:m=5,n=18,k=7,activation=relu
dense:m=4,n=11,k=6,activation=gelu
dense:m=3,n=23,k=5,dtype=uint8
transpose_batch_matmul:batch=2,seq=7,heads=3,dim=5
transpose_batch_matmul:batch=1,seq=8,heads=2,dim=11,dtype=float64
conv1d:n=2,ci=3,co=5,w=13,k=3,stride=2,padding=1
conv1d:ci=4,co=6,w=11,k=3,dilation=2,groups=2,padding=2
conv2d:ci=3,co=5,h=7,w=9,k=3,padding=1
conv2d:ci=4,co=6,h=7,w=6,k=3,stride=2,padding=1,groups=2
conv2d:ci=3,co=4,h=5,w=7,k=3x2,padding=1x0,then=bias,relu
conv2d:ci=3,co=4,h=5,w=7,k=3,padding=1,dtype=int8
conv3d:ci=2,co=3,d=4,h=5,w=6,k=3x1x2,padding=1x0x1
depthwise_conv2d:c=5,h=7,w=9,padding=1,stride=2
depthwise_conv2d:n=2,c=3,h=6,w=7,k=3x2,then=bn,relu6
conv2d_bn_relu:ci=3,co=5,h=6,w=7,padding=1
conv2d_transpose:ci=3,co=4,h=4,w=5
capsule_conv2d:ci=2,co=3,h=4,w=5,padding=1,capsule=2
softmax:rows=5,cols=19
softmax:rows=7,cols=16,dtype=float64
layer_norm:rows=5,cols=17
l2_norm:batch=3,rows=5,cols=11
l2_norm:batch=1,rows=8,cols=16
max_pool2d:c=3,h=9,w=11,padding=1
avg_pool2d:c=3,h=9,w=11,padding=1
avg_pool2d:n=2,c=2,h=7,w=6,k=3x2,stride=1x2
global_avg_pool2d:n=2,c=5,h=5,w=7
elementwise:rows=7,cols=13,ops=add,sigmoid,mul,tanh
elementwise:rows=5,cols=16,ops=exp,sub,abs,gelu,max
reduce:shape=5x7x6,axis=1,op=mean
reduce:shape=11x13,axis=0,op=sum
reduce:shape=5x33,axis=-1,op=max,dtype=int8
reduce:shape=67,op=min
qmatmul:m=5,n=18,k=7,zero=3
qdense:m=4,n=19,k=6,out=uint8,weight_zero=2
qconv2d:ci=3,co=5,h=6,w=7,k=3,padding=1,zero=9
qdepthwise_conv2d:c=5,h=7,w=6,k=3,padding=1
reduce:shape=3x5x9,axis=2,op=sum,dtype=uint8
""".strip().splitlines()


def random_schedule(
    program: Program, rng: np.random.Generator, steps: int, figures: Counter[str] | None = None
) -> Program:
    """The program after up to `steps` primitives; `figures` counts what was accepted and what refused."""
    figures = Counter() if figures is None else figures
    names = list(PROPOSALS)
    weights = np.array([PROPOSALS[n][0] for n in names], float)
    weights *= rng.random(len(names)) ** 2  # each schedule has its own taste, so that rare combinations occur
    weights /= weights.sum()
    done = 0
    for _ in range(10 * steps):
        later = AFTER.get(program.trace[-1].name, ()) if program.trace else ()
        follow = later and rng.random() < 0.4
        name = _pick(rng, later) if follow else names[int(rng.choice(len(names), p=weights))]
        try:
            proposed = PROPOSALS[name][1](program, rng)
            if proposed is None:
                continue
            args, kwargs = proposed
            new = PRIMITIVES[name](program, *args, **kwargs)
        except ScheduleError:
            figures["refused"] += 1
            continue
        if copies(new.body) > COPIES or elements(new) > ELEMENTS:
            continue
        figures["accepted"] += 1
        program, done = new, done + 1
        if done == steps:
            break
    return program


def copies(s: Stmt, factor: int = 1) -> int:
    """How many stores the code will hold, roughly, once loops are written out."""
    if isinstance(s, Loop):
        extent = value_of(s.extent) or 1
        return copies(s.body, factor * (extent if s.kind in ("unrolled", "vectorized") else 1))
    if isinstance(s, Block) and is_leaf(s):
        note = dict(s.annotations).get("unroll_up_to", 1)
        return factor * max(1, int(note))
    return sum(copies(c, factor) for c in s.children())


def elements(program: Program) -> int:
    """Those of its largest buffer; what is known only at run time counts as one."""
    return max(math.prod(value_of(e) or 1 for e in b.shape) for b in program.buffers.values())


Proposal = tuple[tuple[Any, ...], dict[str, Any]] | None


def _pick(rng: np.random.Generator, items: Any) -> Any:
    items = list(items)
    return items[int(rng.integers(len(items)))] if items else None


def _focus(program: Program, rng: np.random.Generator) -> Block | None:
    """Often the block that one of the last steps was about: faults hide in what is done to a stage just moved."""
    named = (dict(s.arguments).get("block") for s in program.trace[-3:])
    known = [program.blocks[n] for n in named if n in program.blocks]
    return _pick(rng, known) if rng.random() < 0.4 else None


def _loop(program: Program, rng: np.random.Generator) -> str | None:
    b = _focus(program, rng)
    near = [lp.name for lp in loops_around(program, b.name)] if b else []
    return _pick(rng, near or program.loops)


def _leaf(program: Program, rng: np.random.Generator) -> Block | None:
    b = _focus(program, rng)
    return b if b and is_leaf(b) else _pick(rng, [b for b in program.blocks.values() if is_leaf(b)])


def _split(program: Program, rng: np.random.Generator) -> Proposal:
    name = _loop(program, rng)
    if name is None:
        return None
    extent = value_of(program.loops[name].extent)
    if extent is None:  # known only at run time
        return (name, [None, int(rng.integers(1, 20))]), {"tail": True}
    tail = bool(rng.random() < 0.5)
    factors: list[int | None] = []
    left = extent
    for _ in range(int(rng.integers(1, 3))):
        choices = [d for d in range(1, left + 1) if left % d == 0] if not tail else range(1, min(left + 3, 20))
        factors.append(int(_pick(rng, choices)))
        left = max(1, left // factors[-1])
    where = int(rng.integers(len(factors) + 1))
    if rng.random() < 0.8:
        factors.insert(where, None)
    else:
        factors.insert(where, -(-extent // int(np.prod(factors))) + int(tail and rng.random() < 0.3))
    return (name, factors), {"tail": tail}


def _chains(s: Stmt) -> Iterator[list[str]]:
    """All runs of directly nested loops, from each loop down."""
    if isinstance(s, Loop):
        run, x = [], s
        while isinstance(x, Loop):
            run.append(x.name)
            x = x.body
        yield run
    for c in s.children():
        yield from _chains(c)


def _fuse(program: Program, rng: np.random.Generator) -> Proposal:
    chain = _pick(rng, [c for c in _chains(program.body) if len(c) > 1])
    return (tuple(chain[: int(rng.integers(2, min(4, len(chain)) + 1))]), {}) if chain else None


def _reorder(program: Program, rng: np.random.Generator) -> Proposal:
    loop = _loop(program, rng)
    chains = [c for c in _chains(program.body) if len(c) > 1]
    chain = _pick(rng, [c for c in chains if loop in c] or chains)
    if not chain:
        return None
    chosen = rng.permutation(chain)[: int(rng.integers(2, len(chain) + 1))]
    return tuple(str(n) for n in chosen), {}


def _one_loop(program: Program, rng: np.random.Generator) -> Proposal:
    name = _loop(program, rng)
    return ((name,), {}) if name else None


def _innermost(program: Program, rng: np.random.Generator) -> Proposal:
    """A loop to vectorise: mostly the innermost of some block."""
    b = _leaf(program, rng)
    nest = loops_around(program, b.name) if b else []
    if not nest:
        return None
    return (nest[-1].name if rng.random() < 0.7 else _pick(rng, nest).name,), {}


def _cache_read(program: Program, rng: np.random.Generator) -> Proposal:
    b = _leaf(program, rng)
    return ((b.name, _pick(rng, program.buffers)), {}) if b else None


def _one_block(program: Program, rng: np.random.Generator) -> Proposal:
    b = _leaf(program, rng)
    return ((b.name,), {}) if b else None


def _moved(program: Program, rng: np.random.Generator, others: list[Block], b: Block) -> Proposal:
    """A block and a loop: mostly one around those that it has to do with."""
    near = [lp.name for x in others for lp in loops_around(program, x.name)]
    loop = _pick(rng, near if near and rng.random() < 0.8 else program.loops)
    return ((b.name, loop), {}) if loop else None


def _compute_at(program: Program, rng: np.random.Generator) -> Proposal:
    b = _leaf(program, rng)
    return _moved(program, rng, [c for n in written(b) for c in consumers(program, n)], b) if b else None


def _reverse_compute_at(program: Program, rng: np.random.Generator) -> Proposal:
    b = _leaf(program, rng)
    return _moved(program, rng, [p for n in read(b) for p in producers(program, n)], b) if b else None


def _rfactor(program: Program, rng: np.random.Generator) -> Proposal:
    loop = _loop(program, rng)
    return ((loop, int(rng.integers(3))), {}) if loop else None


def _decompose(program: Program, rng: np.random.Generator) -> Proposal:
    b = _focus(program, rng)
    b = b if b and b.init is not None else _pick(rng, [b for b in program.blocks.values() if b.init is not None])
    nest = loops_around(program, b.name) if b else []
    return ((b.name, _pick(rng, nest).name), {}) if nest else None


def _transform_layout(program: Program, rng: np.random.Generator) -> Proposal:
    name = _pick(rng, [n for n in program.buffers if n not in program.outputs])
    if name is None:
        return None
    shape = [value_of(e) for e in program.buffers[name].shape]
    if None in shape:
        return None
    tiles = [int(rng.integers(2, 9)) if rng.random() < 0.5 else 1 for _ in shape]
    twice = [int(rng.integers(2, 4)) if rng.random() < 0.2 else 1 for _ in shape]

    def parts(x: Expr, tile: int, again: int) -> list[Expr]:
        if tile == 1:
            return [x]
        if again == 1:
            return [x // tile, x % tile]
        return [x // (tile * again), (x // tile) % again, x % tile]

    olds = tuple(Var(f"x{n}") for n in range(len(shape)))
    news = [p for x, t, a in zip(olds, tiles, twice) for p in parts(x, t, a)]
    order = rng.permutation(len(news)) if rng.random() < 0.8 else range(len(news))
    return (name, (olds, tuple(news[i] for i in order))), {}


def _widen(program: Program, rng: np.random.Generator) -> Proposal:
    name = _pick(rng, program.buffers)
    own = DTYPES[program.buffers[name].dtype]
    return (name, _pick(rng, [d for d in DTYPES if DTYPES[d].holds(own)] or DTYPES)), {}


def _pad(program: Program, rng: np.random.Generator) -> Proposal:
    b = _leaf(program, rng)
    if b is None or not b.iters:
        return None
    chosen = [it.var.name for it in b.iters if rng.random() < 0.4] or [b.iters[-1].var.name]
    return (b.name, tuple((n, int(rng.integers(2, 9))) for n in chosen)), {}


def _choose_kind(program: Program, rng: np.random.Generator) -> Proposal:
    name = _loop(program, rng)
    kinds = [str(k) for k in rng.permutation(LOOP_KINDS)[: int(rng.integers(1, len(LOOP_KINDS) + 1))]]
    return ((name, kinds, int(rng.integers(len(kinds)))), {}) if name else None


def _prefetch(program: Program, rng: np.random.Generator) -> Proposal:
    b = _leaf(program, rng)
    nest = loops_around(program, b.name) if b else []
    if not b or not nest:
        return None
    return (b.name, _pick(rng, read(b) or b.name), _pick(rng, nest).name, int(rng.integers(4))), {}


def _annotate(program: Program, rng: np.random.Generator) -> Proposal:
    b = _leaf(program, rng)
    return ((b.name, "unroll_up_to", int(_pick(rng, (4, 16, 40)))), {}) if b else None


def _tensorize(program: Program, rng: np.random.Generator) -> Proposal:
    loop = _loop(program, rng)
    made = fitting(program, loop) if loop else None
    return ((loop, made.name), {}) if made else None


def _reindex(program: Program, rng: np.random.Generator) -> Proposal:
    b = _leaf(program, rng)
    return ((b.name, _pick(rng, dict.fromkeys((*read(b), *written(b))))), {}) if b else None


def _transform_block_layout(program: Program, rng: np.random.Generator) -> Proposal:
    b = _leaf(program, rng)
    if b is None or any(value_of(it.extent) is None for it in b.iters):
        return None
    olds = tuple(Var(f"x{n}") for n in range(len(b.iters)))
    news: list[Expr] = []
    fused: dict[str, tuple[Expr, int]] = {}  # what is being fused, of each kind
    for v, it in zip(olds, b.iters):
        extent = value_of(it.extent)
        way = rng.random()
        if way < 0.4:
            e, size = fused.get(it.kind, (v * 0, 1))
            fused[it.kind] = (e * extent + v, size * extent)
        elif way < 0.7:
            tile = int(_pick(rng, [d for d in range(1, extent + 1) if extent % d == 0 or rng.random() < 0.1]))
            news += [v // tile, v % tile]
        else:
            news.append(v)
    for e, size in fused.values():
        tile = int(_pick(rng, [d for d in range(1, size + 1) if size % d == 0]))
        news += [e // tile, e % tile] if rng.random() < 0.3 else [e]
    order = rng.permutation(len(news))
    return (b.name, (olds, tuple(news[n] for n in order))), {}


def _unpad(program: Program, rng: np.random.Generator) -> Proposal:
    padded = [dict(s.arguments).get("block") for s in program.trace if s.name == "pad"]
    b = _pick(rng, [n for n in padded if n in program.blocks])
    return ((b,), {}) if b else None


def _decompose_padding(program: Program, rng: np.random.Generator) -> Proposal:
    pads = [b.name for b in program.blocks.values() if is_leaf(b) and isinstance(b.store.value, Select)]
    b = _pick(rng, pads)
    nest = loops_around(program, b) if b else []
    return ((b, _pick(rng, nest).name), {}) if nest else None


PROPOSALS: dict[str, tuple[float, Callable[[Program, np.random.Generator], Proposal]]] = {
    "split": (6, _split),
    "fuse": (2, _fuse),
    "reorder": (4, _reorder),
    "vectorize": (3, _innermost),
    "unroll": (2, _one_loop),
    "parallel": (2, _one_loop),
    "cache_read": (1.5, _cache_read),
    "cache_write": (1.5, _one_block),
    "compute_at": (8, _compute_at),
    "reverse_compute_at": (8, _reverse_compute_at),
    "compute_inline": (3, _one_block),
    "reverse_compute_inline": (4, _one_block),
    "rfactor": (3, _rfactor),
    "decompose_reduction": (1.5, _decompose),
    "transform_layout": (2, _transform_layout),
    "widen": (1, _widen),
    "pad": (1.5, _pad),
    "round_up": (2, _pad),
    "unpad": (1.5, _unpad),
    "commute": (0.5, _one_block),
    "decompose_padding": (1.5, _decompose_padding),
    "reindex": (2, _reindex),
    "transform_block_layout": (2, _transform_block_layout),
    "blockize": (1, _one_loop),
    "annotate": (1, _annotate),
    "choose_kind": (1, _choose_kind),
    "prefetch": (1.5, _prefetch),
    "tensorize": (2, _tensorize),
}

# What is tried right after a primitive, so that stages are changed again where they have just been moved to.
AFTER: dict[str, tuple[str, ...]] = {
    "compute_at": ("decompose_reduction", "decompose_reduction", "reorder", "split", "rfactor", "cache_read"),
    "reverse_compute_at": ("decompose_reduction", "reorder", "rfactor", "compute_at", "vectorize"),
    "decompose_reduction": ("reorder", "vectorize", "parallel", "compute_at", "transform_layout"),
    "rfactor": ("compute_at", "reverse_compute_at", "vectorize", "parallel", "decompose_reduction"),
    "cache_write": ("compute_inline", "reverse_compute_at", "compute_at", "rfactor"),
    "cache_read": ("compute_at", "transform_layout", "compute_inline", "widen"),
    "transform_layout": ("round_up",),
    "fuse": ("split", "reorder", "reverse_compute_at", "vectorize"),
    "split": ("reorder", "compute_at", "reverse_compute_at", "blockize", "tensorize"),
    "reorder": ("vectorize", "tensorize", "compute_at", "reverse_compute_at"),
    "compute_inline": ("reorder", "compute_at"),
    "pad": ("compute_at", "reverse_compute_at", "compute_inline", "split", "unpad", "decompose_padding"),
    "unpad": ("split", "compute_at", "reorder"),
    "decompose_padding": ("split", "vectorize", "compute_at", "fuse"),
    "reindex": ("transform_block_layout", "transform_layout", "reindex", "compute_inline", "compute_at", "pad"),
    "transform_block_layout": ("transform_layout", "pad", "split", "reindex", "rfactor"),
    "blockize": ("reverse_compute_at", "compute_at", "decompose_reduction"),
    "tensorize": ("split", "reorder", "unroll", "parallel", "vectorize", "compute_at", "cache_read", "fuse"),
}
