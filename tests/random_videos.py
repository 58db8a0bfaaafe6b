"""Small random networks of layers for images, whose residual form is compared with themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from searchlab.graph import GraphBuilder, GraphModule, GraphValue
from searchlab.ir.expr import value_of

Draw = Callable[[int, int], int]  # an integer between two, both included
Step = Callable[["RandomNetwork", GraphValue], GraphValue]


class RandomNetwork:
    """Writes a network for frames (1, 3, 8, 8); `draw` makes every choice."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.count = draw, 0
        self.rng = np.random.default_rng(draw(0, 99))
        self.b = GraphBuilder("main")
        self.values = [self.b.input("x", (1, 3, 8, 8))]

    def weight(self, *shape: int) -> GraphValue:
        self.count += 1
        scale = np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.3
        return self.b.constant(f"c{self.count}", (scale * self.rng.standard_normal(shape)).astype("float32"))

    def bias(self, channels: int) -> list[GraphValue]:
        return [self.weight(channels)] if self.draw(0, 1) else []

    def module(self, steps: int, among: Sequence[Step] | None = None) -> GraphModule:
        """A network with so many steps, then a convolution and a fully connected layer."""
        known = among or STEPS
        for _ in range(steps):
            x = self.values[-self.draw(1, min(2, len(self.values)))]
            step = known[self.draw(0, len(known) - 1)]
            self.values.append(step(self, x))
        last = convolution(self, self.values[-1])
        flat = self.b.reshape(last, shape=(1, -1))
        inputs = value_of(flat.shape[1])
        assert inputs is not None
        return self.b.build(self.b.linear(flat, self.weight(5, inputs), *self.bias(5)))


def sizes(x: GraphValue) -> tuple[int, int, int]:
    found = [value_of(e) for e in x.shape[1:]]
    return tuple(e or 0 for e in found)  # type: ignore[return-value]


def convolution(g: RandomNetwork, x: GraphValue) -> GraphValue:
    channels, height, width = sizes(x)
    groups = channels if g.draw(0, 3) == 0 else 1
    outputs = channels if groups > 1 else g.draw(1, 6)
    kernel, padding = (3, 1) if min(height, width) < 5 or g.draw(0, 1) else (g.draw(1, 3), 0)
    stride = (g.draw(1, 2), g.draw(1, 2)) if min(height, width) > 4 else (1, 1)
    weight = g.weight(outputs, channels // groups, kernel, kernel)
    attributes = {"stride": stride, "padding": (padding, padding), "groups": groups}
    return g.b.conv2d(x, weight, *g.bias(outputs), **attributes)


def normalised(g: RandomNetwork, x: GraphValue) -> GraphValue:
    made = convolution(g, x)
    channels = sizes(made)[0]
    gamma, beta, mean = (g.weight(channels) for _ in range(3))
    variance = g.b.constant(f"v{g.count}", g.rng.uniform(0.5, 1, channels).astype("float32"))
    return g.b.relu(g.b.batch_norm(made, gamma, beta, mean, variance))


def transposed(g: RandomNetwork, x: GraphValue) -> GraphValue:
    channels, height, _ = sizes(x)
    if height > 5:
        return convolution(g, x)
    return g.b.conv_transpose2d(x, g.weight(channels, 3, 2, 2), *g.bias(3), stride=(2, 2))


def activation(g: RandomNetwork, x: GraphValue) -> GraphValue:
    return g.b.op(["relu", "tanh", "silu"][g.draw(0, 2)], x)


def pooled(g: RandomNetwork, x: GraphValue) -> GraphValue:
    if min(sizes(x)[1:]) < 4:
        return g.b.relu(x)
    return g.b.op(["max_pool2d", "avg_pool2d"][g.draw(0, 1)], x, kernel=(2, 2), stride=(2, 2))


def added(g: RandomNetwork, x: GraphValue) -> GraphValue:
    channels = sizes(x)[0]
    return g.b.relu(x + g.b.conv2d(x, g.weight(channels, channels, 3, 3), *g.bias(channels), padding=(1, 1)))


def joined(g: RandomNetwork, x: GraphValue) -> GraphValue:
    return g.b.concat(x, g.b.relu(x), axis=1) if sizes(x)[0] < 8 else g.b.relu(x)


STEPS = [convolution, normalised, transposed, activation, pooled, added, joined]
