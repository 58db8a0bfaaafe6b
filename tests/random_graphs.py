"""Random graphs of operators for property tests: shapes of up to three axes in sizes n and m, or in numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from searchlab.graph import GraphBuilder, GraphModule, GraphValue
from searchlab.ir import size
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import ONE, Expr, value_of

n, m = size("n"), size("m")
UNARY = ["relu", "neg", "tanh", "sigmoid", "silu", "gelu", "square", "abs", "exp", "sin", "cos"]
BINARY = ["add", "sub", "mul", "maximum", "minimum"]
Draw = Callable[[int, int], int]  # an integer between two, both included


class RandomGraph:
    """Writes a function of random calls; `draw` makes every choice."""

    weights = False  # whether there are constants

    def __init__(self, draw: Draw, symbolic: bool) -> None:
        self.draw, self.constants = draw, 0
        self.b = GraphBuilder("main", ranges={n: (1, 8), m: (2, None)} if symbolic else {})
        rows, columns = (n, m) if symbolic else (3, 4)
        self.extents: list[Any] = [rows, columns, 2, 6]
        self.b.input("rows", (rows,)), self.b.input("columns", (columns,))
        shapes = [(rows, columns), (rows, 6), (2, rows, columns)]
        self.values = [self.b.input(f"x{i}", shape) for i, shape in enumerate(shapes)]

    def pick(self, choices: Any) -> Any:
        """One of several."""
        return choices[self.draw(0, len(choices) - 1)]

    def module(self, calls: int) -> GraphModule:
        """A module whose function has at least so many calls; the last value is the result."""
        for _ in range(calls):
            step = self.pick([*STEPS, *WEIGHTED] if self.weights else STEPS)
            made = step(self, self.pick(self.values))
            # numbers stay small, so that results at two precisions can be compared
            self.values.append(self.b.tanh(made) if self.draw(0, 1) else self.b.clamp(made, low=-4, high=4))
        return self.b.build(*self.values[-2:])

    def axis(self, x: GraphValue) -> int:
        """An axis of a value."""
        return self.draw(0, len(x.shape) - 1)

    def like(self, x: GraphValue) -> GraphValue:
        """A value that broadcasts with another one."""
        return self.pick([y for y in self.values if y.shape == x.shape] or [x])


def unary(g: RandomGraph, x: GraphValue) -> GraphValue:
    return g.b.op(g.pick(UNARY), x)


def binary(g: RandomGraph, x: GraphValue) -> GraphValue:
    return g.b.op(g.pick(BINARY), x, g.pick([g.like(x), 0.5, -2.0]))


def chosen(g: RandomGraph, x: GraphValue) -> GraphValue:
    return g.b.where(g.b.op(g.pick(["lt", "ge"]), x, g.like(x)), x, 0.25)


def reduction(g: RandomGraph, x: GraphValue) -> GraphValue:
    keep = len(x.shape) == 1 or g.draw(0, 1) == 1
    return g.b.op(g.pick(["sum", "mean", "max", "min"]), x, axes=(g.axis(x),), keepdims=keep)


def normalised(g: RandomGraph, x: GraphValue) -> GraphValue:
    return g.b.softmax(x, axis=g.axis(x))


def centred(g: RandomGraph, x: GraphValue) -> GraphValue:
    axis = g.axis(x)
    return x - g.b.expand(g.b.mean(x, axes=(axis,), keepdims=True), shape=x.shape)


def permuted(g: RandomGraph, x: GraphValue) -> GraphValue:
    axes = list(range(len(x.shape)))
    axes.append(axes.pop(g.axis(x)))
    return g.b.permute(x, axes=axes)


def flat(g: RandomGraph, x: GraphValue) -> GraphValue:
    if len(x.shape) == 1:
        return g.b.unsqueeze(x, axes=(g.draw(0, 1),))
    axis = g.draw(0, len(x.shape) - 2)
    merged = x.shape[axis] * x.shape[axis + 1]
    return g.b.reshape(x, shape=(*x.shape[:axis], merged, *x.shape[axis + 2 :]))


def divided(g: RandomGraph, x: GraphValue) -> GraphValue:
    """An axis of even length becomes two, where that is known."""
    even = [a for a, e in enumerate(x.shape) if value_of(e % 2) == 0 and len(x.shape) < 4]
    if not even:
        return g.b.squeeze(g.b.unsqueeze(x, axes=(0,)), axes=(0,))
    axis = g.pick(even)
    return g.b.reshape(x, shape=(*x.shape[:axis], 2, -1, *x.shape[axis + 1 :]))


def joined(g: RandomGraph, x: GraphValue) -> GraphValue:
    return g.b.concat(x, g.like(x), axis=g.axis(x)) if _small(x) else x + 1.0


def stacked(g: RandomGraph, x: GraphValue) -> GraphValue:
    return g.b.stack(x, g.like(x), axis=0) if len(x.shape) < 3 and _small(x) else x * 0.5


def padded(g: RandomGraph, x: GraphValue) -> GraphValue:
    return g.b.pad(x, before=(0,) * len(x.shape), after=(1,) * len(x.shape), value=0.5) if _small(x) else -x


def cut(g: RandomGraph, x: GraphValue) -> GraphValue:
    axis = g.axis(x)
    long = value_of(x.shape[axis])
    if long is not None and long > 1:
        return g.b.slice(x, axis=axis, start=g.draw(0, long - 1), step=g.draw(1, 2))
    return g.b.slice(x, axis=axis, stop=x.shape[axis])


def halves(g: RandomGraph, x: GraphValue) -> GraphValue:
    """Twice the value, taken apart again: sums such as n + n must be recognised."""
    axis = g.axis(x)
    both = g.b.concat(x, g.like(x), axis=axis)
    parts = g.b.split(both, axis=axis, lengths=(x.shape[axis], both.shape[axis] - x.shape[axis]))
    return parts[0] + parts[1]


def paired(g: RandomGraph, x: GraphValue) -> GraphValue:
    """Two values as one, taken apart again."""
    both = g.b.tuple(g.b.op(g.pick(UNARY), x), g.like(x))
    return g.b.op(g.pick(BINARY), both[0], both[1])


def product(g: RandomGraph, x: GraphValue) -> GraphValue:
    if len(x.shape) < 2:
        return x * x
    axes = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
    return g.b.matmul(x, g.b.permute(g.like(x), axes=axes))


def chosen_row(g: RandomGraph, x: GraphValue) -> GraphValue:
    return g.b.select(x, axis=g.axis(x), index=-1) if len(x.shape) > 1 else g.b.round(x)


def triangle(g: RandomGraph, x: GraphValue) -> GraphValue:
    return g.b.op(g.pick(["triu", "tril"]), x, diagonal=g.draw(-1, 1)) if len(x.shape) > 1 else g.b.floor(x)


def asserted(g: RandomGraph, x: GraphValue) -> GraphValue:
    return g.b.match_cast(x, x.shape)


def constant(g: RandomGraph, *shape: int) -> GraphValue:
    g.constants += 1
    made = np.random.default_rng(g.draw(0, 9)).uniform(0.2, 1, shape).astype("float32")
    return g.b.constant(f"c{g.constants}", made)


def shifted(g: RandomGraph, x: GraphValue) -> GraphValue:
    """Something computed from constants is added."""
    return x + g.b.sqrt(constant(g, 1) * 2.0) * g.b.slice(constant(g, 3), axis=0, stop=1)


def layer(g: RandomGraph, x: GraphValue) -> GraphValue:
    inner = value_of(x.shape[-1])
    if inner is None:
        return shifted(g, x)
    return g.b.linear(x, constant(g, 4, inner), *([constant(g, 4)] if g.draw(0, 1) else []))


def statistics(g: RandomGraph, x: GraphValue) -> GraphValue:
    """A batch norm, after a layer or alone."""
    channels = value_of(x.shape[1]) if len(x.shape) > 1 else None
    if channels is None:
        return shifted(g, x)
    if len(x.shape) == 2 and g.draw(0, 1):
        x, channels = layer(g, x), 4
    return g.b.batch_norm(x, *(constant(g, channels) for _ in range(4)))


WEIGHTED = [shifted, layer, statistics]
STEPS = [
    unary, binary, binary, chosen, reduction, normalised, centred, permuted, flat, divided, joined, stacked, padded,
    cut, halves, paired, product, chosen_row, triangle, asserted,
]  # fmt: skip


def _small(x: GraphValue) -> bool:
    """Whether a value has few enough elements to become larger, at the sizes that tests use."""
    count = 1
    for e in x.shape:
        count *= _guess(e)
    return count <= 200


def _guess(e: Expr) -> int:
    return 1 if e == ONE else int(evaluate(e, {"n": 3, "m": 4}))


def random_arrays(module: GraphModule, seed: int, **sizes: int) -> list[np.ndarray]:
    """Arguments for a random graph at given sizes."""
    rng = np.random.default_rng(seed)
    shapes = [[int(evaluate(e, sizes)) for e in p.annotation.dims()] for p in module["main"].parameters]
    return [rng.uniform(-1, 1, shape).astype("float32") for shape in shapes]
