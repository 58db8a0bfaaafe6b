"""A small network for tests of searches on streams."""

import numpy as np

from searchlab.graph import GraphBuilder, GraphModule


def make(side: int = 24, channels: int = 8) -> GraphModule:
    """Two convolutions and a classifier."""
    rng = np.random.default_rng(5)
    b = GraphBuilder("main")
    h = b.input("x", (1, 3, side, side))
    for number, inputs in enumerate((3, channels)):
        weight = rng.normal(0, (2 / (9 * inputs)) ** 0.5, (channels, inputs, 3, 3)).astype("float32")
        h = b.relu(b.conv2d(h, b.constant(f"w{number}", weight), padding=(1, 1)))
    weight = rng.normal(0, 1, (4, channels * side * side)).astype("float32")
    return b.build(b.linear(b.reshape(h, shape=(1, channels * side * side)), b.constant("v", weight)))
