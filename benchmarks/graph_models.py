"""What benchmarks of graphs work on: a small transformer whose length is known at run time, and products in parts."""

from __future__ import annotations

import numpy as np

from searchlab.graph import GraphBuilder, GraphModule, GraphValue, TensorType
from searchlab.ir import Program, size
from searchlab.schedule import Schedule

N = size("n")  # the length
LONGEST = 1024


class TransformerWriter:
    """Writes layers of a transformer on one sequence; `whole` keeps attention as one operator."""

    def __init__(self, width: int, heads: int, longest: int | None, whole: bool, seed: int = 0) -> None:
        self.width, self.heads, self.whole = width, heads, whole
        self.b = GraphBuilder("main", ranges={N: (1, longest)} if longest else {})
        self._rng = np.random.default_rng(seed)

    def weights(self, name: str, *shape: int) -> GraphValue:
        """Constants of a normal distribution, scaled by the number of inputs."""
        return self.b.constant(name, (self._rng.standard_normal(shape) / np.sqrt(shape[-1])).astype("float32"))

    def norm(self, x: GraphValue, name: str) -> GraphValue:
        """Layer normalisation."""
        return self.b.layer_norm(
            x, self.weights(f"{name}_scale", self.width), self.weights(f"{name}_shift", self.width)
        )

    def projected(self, x: GraphValue, name: str) -> GraphValue:
        """A linear layer whose outputs are divided among the heads: (heads, n, width per head)."""
        y = self.b.linear(x, self.weights(name, self.width, self.width))
        split = self.b.reshape(y, shape=(-1, self.heads, self.width // self.heads))
        return self.b.permute(split, axes=(1, 0, 2))

    def attention(self, x: GraphValue, layer: int) -> GraphValue:
        """Attention with a projection at its end."""
        b, scale = self.b, (self.width // self.heads) ** -0.5
        q, k, v = (self.projected(x, f"{name}{layer}") for name in ("queries", "keys", "values"))
        if self.whole:
            y = b.attention(q, k, v)
        else:
            y = b.matmul(b.softmax(b.matmul(q, b.permute(k, axes=(0, 2, 1))) * scale), v)
        joined = b.reshape(b.permute(y, axes=(1, 0, 2)), shape=(-1, self.width))
        return b.linear(joined, self.weights(f"out{layer}", self.width, self.width))

    def layer(self, x: GraphValue, layer: int) -> GraphValue:
        """Attention and two linear layers, each beside a connection that skips it."""
        x = x + self.attention(self.norm(x, f"before{layer}"), layer)
        h = self.b.linear(self.norm(x, f"after{layer}"), self.weights(f"up{layer}", 4 * self.width, self.width))
        return x + self.b.linear(self.b.gelu(h), self.weights(f"down{layer}", self.width, 4 * self.width))


def transformer_layers(
    width: int = 128,
    layers: int = 4,
    heads: int = 4,
    longest: int | None = LONGEST,
    whole: bool = False,
    known: bool = True,
    length: int | None = None,
) -> GraphModule:
    """A transformer of some layers on a sequence of n vectors, or of `length`; unless `known`, only its rank is."""
    writer = TransformerWriter(width, heads, longest if known and length is None else None, whole)
    x = writer.b.input("x", (N if length is None else length, width) if known else TensorType(dtype="float32", rank=2))
    for layer in range(layers):
        x = writer.layer(x, layer)
    return writer.b.build(x)


def product_with_tail() -> GraphModule:
    """A product with an elementwise tail."""
    b = GraphBuilder("main", ranges={N: (1, LONGEST)})
    x, y = b.input("x", (N, 256)), b.input("y", (N, 256))
    h = b.linear(x, b.constant("w", np.ones((256, 256), "float32")), b.constant("c", np.ones(256, "float32")))
    h = b.relu(h) * 0.5 + y
    return b.build(b.linear(b.tanh(h), b.constant("v", np.ones((256, 256), "float32"))))


def decoded() -> GraphModule:
    """A layer whose weights are integers with a scale for each output."""
    b = GraphBuilder("main", ranges={N: (1, LONGEST)})
    x = b.input("x", (N, 256))
    scale = b.input("scale", (256, 1))
    w = b.cast(b.input("w", (256, 256), "int8"), dtype="float32") * scale
    return b.build(b.relu(b.linear(x, w)))


def split_k(program: Program, parts: int, parallel: bool = False) -> Program:
    """A product of two matrices whose sum is computed in parts, all of them before they are added up."""
    s = Schedule(program)
    outer, _ = s.split(s.loops("C")[-1], [parts, None])
    partial = s.rfactor(outer)
    rows, columns, part, inner = s.loops(partial)
    s.reorder(part, rows, columns, inner)
    if parallel:
        s.parallel(part)
    return s.program
