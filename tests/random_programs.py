"""Random small programs, written to be awkward to schedule.

Stages read others at shifted, reversed, modular, divided and windowed indices, at neighbouring places and under guards;
most have several readers, and most hold sums.  All values are small integers, so that every order of summation gives
the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from searchlab.ir import Builder, largest, maximum, select, smallest, total
from searchlab.ir.bounds import Facts
from searchlab.ir.compute import Reduction, Tensor
from searchlab.ir.expr import Expr, Var, index, value_of
from searchlab.ir.program import Program
from searchlab.ir.walk import loads

LONGEST = 9  # elements along one dimension
Extents = dict[Var, int]
Rng = np.random.Generator


def random_program(rng: Rng, first: Tensor | None = None) -> Program:
    """One or two inputs and two to five stages, each an output or read by a later one.

    With `first`, the first input has that tensor's shape, and all have its dtype.
    """
    dtype = str(rng.choice(["float32", "float32", "int32", "float64"]))
    dtype = dtype if first is None else first.dtype
    b = Builder("p")
    shapes = [_shape(rng) for _ in range(int(rng.integers(1, 3)))]
    shapes = shapes if first is None else [[_number(e) for e in first.shape], *shapes[1:]]
    inputs = [b.input(f"I{n}", shape, dtype) for n, shape in enumerate(shapes)]
    stages: list[Tensor] = []
    read: set[str] = set()
    for n in range(int(rng.integers(2, 6))):
        stages.append(_stage(b, f"S{n}", inputs, stages, read, rng))
    return b.program(*(t for t in stages if t.name not in read or rng.random() < 0.08))


def random_inputs(program: Program, rng: Rng) -> dict[str, np.ndarray]:
    """Small integers for every input."""
    buffers = [program.buffers[name] for name in program.inputs]
    return {b.name: rng.integers(-3, 4, [_number(e) for e in b.shape]).astype(b.dtype) for b in buffers}


def _number(e: Expr) -> int:
    found = value_of(e)
    assert found is not None
    return found


def _pick(items: Any, rng: Rng) -> Any:
    items = list(items)
    return items[int(rng.integers(len(items)))]


def _shape(rng: Rng) -> list[int]:
    return [int(rng.integers(1, LONGEST + 1)) for _ in range(int(rng.integers(1, 3)))]


def _stage(b: Builder, name: str, inputs: list[Tensor], stages: list[Tensor], read: set[str], rng: Rng) -> Tensor:
    axes: Extents = {}
    shape = [_number(e) for e in stages[-1].shape] if stages and rng.random() < 0.4 else _shape(rng)
    if rng.random() < 0.6:
        for n in range(_pick((1, 1, 2), rng)):
            extent = int(rng.integers(1, 5))
            axes[b.axis(f"r{name[1:]}{n}", extent)] = extent

    def value(*space: Var) -> Expr | Reduction:
        extents = {**dict(zip(space, shape, strict=True)), **axes}
        e = _value(extents, inputs, stages, rng)
        read.update(ld.buffer for ld in loads(e))
        return _pick((total, total, total, total, largest, smallest), rng)(e, *axes) if axes else e

    return b.compute(name, shape, _named(value, rng.permutation(list("ijklmn"))[: len(shape)]))


def _named(value: Callable[..., Any], names: Any) -> Callable[..., Any]:
    """The function with arguments of these names, which become those of the loops."""
    arguments = ", ".join(names)
    return eval(f"lambda {arguments}: value({arguments})", {"value": value})  # type: ignore[no-any-return]


def _value(extents: Extents, inputs: list[Tensor], stages: list[Tensor], rng: Rng) -> Expr:
    e = _term(_source(inputs, stages, rng), extents, rng)
    for _ in range(_pick((0, 1, 1, 2), rng)):
        other = _term(_source(inputs, stages, rng), extents, rng)
        how = rng.random()
        e = e + other if how < 0.7 else maximum(e, other) if how < 0.8 else e - other
    return e * _term(_pick(inputs, rng), extents, rng) if rng.random() < 0.4 else e


def _source(inputs: list[Tensor], stages: list[Tensor], rng: Rng) -> Tensor:
    """Mostly one of the latest stages."""
    if not stages or rng.random() < 0.25:
        return _pick(inputs, rng)  # type: ignore[no-any-return]
    return stages[-min(int(rng.geometric(0.55)), len(stages))]


def _term(source: Tensor, extents: Extents, rng: Rng) -> Expr:
    """One element of a tensor, or two that are near each other."""
    indices = [_index(_number(e), extents, rng) for e in source.shape]
    if len(indices) <= len(extents) and rng.random() < 0.3:
        indices = list(extents)[: len(indices)]
    found = _load(source, indices, extents, rng)
    if rng.random() < 0.7:
        return found
    d, far = int(rng.integers(len(indices))), int(rng.integers(-3, 4))
    return found + _load(source, [e + far if n == d else e for n, e in enumerate(indices)], extents, rng)


def _index(length: int, extents: Extents, rng: Rng) -> Expr:
    """Somewhere in a dimension of that length, or outside it."""
    v, w = _pick(extents, rng), _pick(extents, rng)
    shift = int(rng.integers(1, 4))
    forms: list[Callable[[], Expr]] = [
        lambda: v,
        lambda: v + shift,
        lambda: v - shift,
        lambda: length - 1 - v,
        lambda: extents[v] - 1 - v,
        lambda: (v + shift) % int(rng.integers(1, length + 1)),
        lambda: v // int(rng.integers(2, 4)),
        lambda: v + w,
        lambda: 2 * v + w,
        lambda: index(int(rng.integers(length))),
    ]
    chances = np.array([6, 2, 2, 2, 1, 2, 1, 3, 1, 1], float)
    return forms[int(rng.choice(len(forms), p=chances / chances.sum()))]()


def _load(source: Tensor, indices: list[Expr], extents: Extents, rng: Rng) -> Expr:
    """The element, at indices that are wrapped around or under guards where they may leave the tensor."""
    facts = Facts({v: index(n) for v, n in extents.items()})
    inside, guards = [], []
    for e, length in zip(indices, source.shape, strict=True):
        fits = all(facts.proves(c) for c in (e >= 0, e < length))
        if not fits and rng.random() < 0.4:
            e = e % length
        elif not fits or rng.random() < 0.05:
            guards += [e >= 0, e < length]
        inside.append(e)
    found = source[tuple(inside)]
    for g in guards:
        found = select(g, found, 0)
    return found
