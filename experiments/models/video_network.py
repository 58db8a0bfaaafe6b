"""A small residual network for frames of 96 x 96 pixels, with random weights: a graph, which needs no other library."""

from __future__ import annotations

import numpy as np

from searchlab.graph import GraphBuilder, GraphModule, GraphValue


def make(size: int = 96, width: int = 32, seed: int = 0) -> GraphModule:
    """Three stages of two units each, the features of the last of which are the output."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder("main")

    def convolution(x: GraphValue, inputs: int, outputs: int, stride: int = 1, kernel: int = 3) -> GraphValue:
        weight = rng.normal(0, (2 / (kernel**2 * inputs)) ** 0.5, (outputs, inputs, kernel, kernel))
        made = b.constant(f"w{next(numbers)}", weight.astype("float32"))
        return b.conv2d(x, made, stride=(stride, stride), padding=(kernel // 2, kernel // 2))

    numbers = iter(range(100))
    h = b.relu(convolution(b.input("x", (1, 3, size, size)), 3, width, stride=2))
    inputs = width
    for stage in range(3):
        outputs = width * 2**stage
        for unit in range(2):
            stride = 2 if stage and not unit else 1
            y = convolution(b.relu(convolution(h, inputs, outputs, stride)), outputs, outputs) * 0.5
            shortcut = h if inputs == outputs else convolution(h, inputs, outputs, stride, 1)
            h = b.relu(y + shortcut)
            inputs = outputs
    return b.build(h)
