"""Small networks and frames for tests of streams."""

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


def frames_of(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Frames of which a few pixels change, by amounts around a threshold."""
    found = [rng.random(shape, np.float32)]
    for _ in range(count - 1):
        change = rng.normal(0, 0.05, shape) * (rng.random(shape[2:]) < 0.2)
        found.append((found[-1] + change).astype(np.float32))
    return found


def two_branches(side: int = 12) -> GraphModule:
    """All that a front may have: strides, pools, a sum of branches, channels of their own; then a classifier."""
    rng = np.random.default_rng(1)
    b = GraphBuilder("main")

    def conv(x, outputs, inputs, kernel, **attributes):
        name = f"w{outputs}_{inputs}_{kernel}_{rng.integers(1 << 30)}"
        weight = rng.normal(0, (2 / (inputs * kernel**2)) ** 0.5, (outputs, inputs, kernel, kernel))
        return b.conv2d(x, b.constant(name, weight.astype("float32")), **attributes)

    x = b.input("x", (1, 3, side, side))
    scale = b.constant("scale", np.array([0.5, 1.0, 2.0], "float32").reshape(1, 3, 1, 1))
    h = b.relu(conv(b.mul(x, scale), 8, 3, 5, padding=(2, 2)))
    h = b.max_pool2d(h, kernel=(3, 3), stride=(2, 2), padding=(1, 1))
    left = b.relu(conv(h, 12, 8, 3, stride=(2, 2), padding=(1, 1)))
    left = conv(left, 12, 1, 3, padding=(1, 1), groups=12)
    h = b.relu(b.add(left, conv(h, 12, 8, 1, stride=(2, 2))))
    h = b.avg_pool2d(h, kernel=(2, 2), stride=(1, 1))
    flat = b.reshape(h, shape=(1, -1))
    return b.build(b.linear(flat, b.constant("last", rng.normal(0, 0.1, (5, 48)).astype("float32"))))
