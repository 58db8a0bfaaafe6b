"""Examples of every operator: attributes, operands with sizes n and m, and the same in torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from searchlab.graph import GraphBuilder, GraphModule, TensorType, tensor
from searchlab.ir import size
from searchlab.ir.bfloat16 import stored
from searchlab.ir.evaluate import evaluate

n, m = size("n"), size("m")


@dataclass(frozen=True)
class Example:
    """One call of an operator; `like` computes it in torch; `low` and `high` limit the floats it is tried on."""

    name: str
    operands: tuple[TensorType, ...]
    like: Callable[..., Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    low: float = -2.0
    high: float = 2.0
    tolerance: float = 1e-5

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.operands))})"

    def module(self) -> GraphModule:
        """A function that calls the operator."""
        b = GraphBuilder()
        b.input("sizes_n", (n,)), b.input("sizes_m", (m,))
        args = [b.input(f"x{i}", x) for i, x in enumerate(self.operands)]
        return b.build(b.op(self.name, *args, **self.attributes))

    def inputs(self, sizes: dict[str, int], seed: int = 0) -> list[np.ndarray]:
        """Random operands; integers are indices below 3."""
        rng = np.random.default_rng(seed)
        found = [np.zeros(sizes["n"], "float32"), np.zeros(sizes["m"], "float32")]
        for x in self.operands:
            shape = [int(evaluate(e, sizes)) for e in x.shape or ()]
            if x.dtype == "bool":
                made = rng.random(shape) < 0.5
            elif x.dtype == "uint8":
                made = rng.integers(0, 256, shape)
            elif x.dtype in ("int8", "int32"):
                made = rng.integers(-100, 101, shape)
            elif x.dtype == "int64":
                made = rng.permutation(3)[np.arange(math.prod(shape)).reshape(shape) % 3]
            else:
                made = rng.uniform(self.low, self.high, shape)
            found.append(stored(made, x.dtype or ""))
        return found


def f(*shape: Any) -> TensorType:
    return tensor(shape)


def truth(*shape: Any) -> TensorType:
    return tensor(shape, "bool")


def ints(*shape: Any) -> TensorType:
    return tensor(shape, "int64")


def packed(*shape: Any) -> TensorType:
    return tensor(shape, "uint8")


def of_bytes(product: Callable[..., Any]) -> Callable[..., Any]:
    """A layer of integers, by doubles."""
    return lambda *operands: product(*(x.double() for x in operands)).int()


def decoded(torch: Any) -> Callable[..., Any]:
    """A product with weights of 4 bits, two to a byte, in groups of 4."""

    def product(x: Any, data: Any, scale: Any, offset: Any = None) -> Any:
        low, high = (data & 15).long() - 8, (data.view(torch.int8) >> 4).long()
        pairs = [part.unflatten(0, (-1, 2)) for part in (low, high)]
        q = torch.cat(pairs, dim=1).float()
        return x @ (q * scale[:, None] + (0 if offset is None else offset[:, None])).flatten(0, 1)

    return product


def halves(*shape: Any) -> TensorType:
    return tensor(shape, "float16")


def examples(torch: Any) -> list[Example]:
    """At least one example for every operator."""
    F = torch.nn.functional
    return [*_pointwise(torch, F), *_reductions(torch), *_shapes(torch, F), *_layers(torch, F), *_windows(F)]


def _pointwise(torch: Any, F: Any) -> list[Example]:
    plain = ["tanh", "sigmoid", "exp", "erf", "floor", "round", "abs", "cos", "sin", "relu", "neg", "square"]
    found = [Example(name, (f(n, 5),), getattr(torch, name)) for name in plain]
    found += [Example(name, (f(n, 5),), getattr(torch, name), low=0.1) for name in ("log", "sqrt", "rsqrt")]
    found += [Example(name, (f(3, 40),), getattr(torch, name), low=-3000.0, high=3000.0) for name in ("cos", "sin")]
    pairs = ["add", "sub", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"]
    found += [Example(name, (f(n, 1, 5), f(4, 1)), getattr(torch, name)) for name in pairs]
    found += [Example(name, (ints(n, 2), ints(n, 2)), getattr(torch, name)) for name in pairs]
    found += [
        Example(f"logical_{o}", (truth(n, 3), truth(3)), getattr(torch, f"logical_{o}")) for o in ("and", "or", "xor")
    ]
    powers = (2.0, 3.0, -1.0, 0.5, -0.5, 1.5, 0.0, 2.2, -1.7, 7.0)
    found += [Example("pow", (f(n),), lambda x, e=e: x**e, {"exponent": e}, low=0.2) for e in powers]
    found += [Example("pow", (f(n, 3),), lambda x: x**3, {"exponent": 3})]
    kinds = ("int32", "float64", "bool", "float16")
    found += [Example("cast", (f(n, 3),), lambda x, d=d: x.to(getattr(torch, d)), {"dtype": d}) for d in kinds]
    return [
        *found,
        Example("cast", (ints(n),), lambda x: x.float(), {"dtype": "float32"}),
        Example("cast", (truth(n),), lambda x: x.float(), {"dtype": "float32"}),
        Example("relu", (tensor((n, 3), "float16"),), torch.relu),
        Example("div", (f(n, 5), f(5)), torch.div, low=0.5),
        Example("silu", (f(n, 5),), F.silu),
        Example("gelu", (f(n, 5),), F.gelu),
        Example("gelu", (f(n, 5),), lambda x: F.gelu(x, approximate="tanh"), {"approximate": "tanh"}),
        Example("clamp", (f(n, 5),), lambda x: torch.clamp(x, -0.5, 1), {"low": -0.5, "high": 1}),
        Example("clamp", (f(n, 5),), lambda x: torch.clamp(x, min=0.1), {"low": 0.1}),
        Example("logical_not", (truth(n, 3),), torch.logical_not),
        Example("where", (truth(n, 1), f(n, 4), f()), torch.where),
    ]


def _reductions(torch: Any) -> list[Example]:
    found = []
    for axes, keep in (((1,), False), ((0, -1), True), ((-1, 1), False)):
        for name, like in (("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax), ("min", torch.amin)):
            attributes = {"axes": axes, "keepdims": keep}
            found.append(Example(name, (f(n, m, 4),), lambda x, t=like, a=axes, k=keep: t(x, a, k), attributes))
    return [
        *found,
        Example("sum", (f(n, 4),), torch.sum),
        Example("mean", (tensor((n, 4), "float16"),), torch.mean, tolerance=2e-3),
        Example("max", (ints(n, 4),), torch.max),
        Example("any", (truth(n, m),), lambda x: torch.any(x, 1), {"axes": (1,)}),
        Example("all", (truth(n, m),), lambda x: torch.all(x, 0, True), {"axes": (0,), "keepdims": True}),
    ]


def _shapes(torch: Any, F: Any) -> list[Example]:
    return [
        Example("reshape", (f(n, 6),), lambda x: x.reshape(-1, 2, 3), {"shape": (n, 2, 3)}),
        Example("reshape", (f(n, 2, 3, m),), lambda x: x.reshape(x.shape[0] * 2, -1), {"shape": (n * 2, -1)}),
        Example("reshape", (f(n * 4),), lambda x: x.reshape(-1, 4), {"shape": (-1, 4)}),
        Example("reshape", (f(1, 1),), lambda x: x.reshape(()), {"shape": ()}),
        Example("permute", (f(n, 3, m),), lambda x: x.permute(2, 0, 1), {"axes": (2, 0, -2)}),
        Example("permute", (f(n, m),), lambda x: x.T),
        Example("expand", (f(n, 1),), lambda x: x.expand(2, -1, 3), {"shape": (2, -1, 3)}),
        Example("squeeze", (f(n, 1, m, 1),), lambda x: x.squeeze(-1).squeeze(1), {"axes": (1, -1)}),
        Example("unsqueeze", (f(n, m),), lambda x: x[:, None, :, None], {"axes": (1, -1)}),
        Example("slice", (f(n, 9),), lambda x: x[:, 2:8:3], {"axis": 1, "start": 2, "stop": 8, "step": 3}),
        Example("slice", (f(n + 2, 3),), lambda x: x[1:-1], {"axis": 0, "start": 1, "stop": -1}),
        Example(
            "slice",
            (
                f(
                    n + m,
                ),
            ),
            lambda x: x[-1:],
            {"axis": 0, "start": -1},
        ),
        Example("select", (f(n, 4, m),), lambda x: x[:, -1], {"axis": 1, "index": -1}),
        Example("select", (f(n, m),), lambda x: x[-1], {"axis": 0, "index": n - 1}),
        Example(
            "pad",
            (f(n, m),),
            lambda x: F.pad(x, (2, 0, 0, 1), value=5.0),
            {"before": (0, 2), "after": (1, 0), "value": 5.0},
        ),
        Example("concat", (f(2, n), f(2, m), f(2, 3)), lambda *x: torch.cat(x, 1), {"axis": -1}),
        Example("stack", (f(n, 3), f(n, 3)), lambda *x: torch.stack(x, 1), {"axis": 1}),
        Example(
            "split", (f(2, n + m * 2),), lambda x: x.split([x.shape[1] - 4, 4], 1), {"axis": 1, "lengths": (n, m * 2)}
        ),
        Example("full", (), lambda: torch.full((2, 3), 1.5), {"shape": (2, 3), "value": 1.5}),
        Example("full", (), lambda: torch.full((3,), 3), {"shape": (n,), "value": n, "dtype": "int64"}),
        Example("arange", (), lambda: torch.arange(2, 2 + 3 * 3, 3), {"start": 2, "stop": n * 3 + 2, "step": 3}),
        Example("triu", (f(n, 4),), lambda x: torch.triu(x, 1), {"diagonal": 1}),
        Example("tril", (truth(2, n, n),), lambda x: torch.tril(x, -1), {"diagonal": -1}),
        Example("take", (f(3, n), ints(2, m)), lambda x, i: F.embedding(i, x)),
        Example("take", (f(n, 3), ints(m)), lambda x, i: x[:, i], {"axis": 1}),
        Example("index_put", (f(n, 4), ints(2), f(n, 2)), lambda x, i, v: x.index_copy(1, i, v), {"axis": 1}),
        Example(
            "update_slice",
            (f(2, n + m, 3), f(2, m, 3)),
            lambda x, v: torch.cat([x[:, :2], v, x[:, 4:]], 1),
            {"axis": 1, "start": n - 1},
        ),
    ]


def _layers(torch: Any, F: Any) -> list[Example]:
    def rms(x: Any, g: Any) -> Any:
        return F.rms_norm(x, g.shape, g, 1e-6)

    def attention(q: Any, k: Any, v: Any, mask: Any = None, **rest: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, mask, **rest)

    causal = {"causal": True, "scale": 0.3}
    return [
        Example("matmul", (f(n, 5), f(5, m)), torch.matmul),
        Example("matmul", (f(n, 2, 5), f(n, 5, m)), torch.matmul),
        Example("matmul", (f(2, 1, n, 5), f(3, 5, m)), torch.matmul),
        Example("matmul", (tensor((n, 4), "float16"), tensor((4, m), "float16")), torch.matmul, tolerance=2e-3),
        Example("linear", (f(n, 5), f(4, 5)), F.linear),
        Example("linear", (f(2, n, 5), f(4, 5), f(4)), F.linear),
        Example("linear", (tensor((n, 5), "int8"), tensor((4, 5), "int8"), tensor((4,), "int32")), of_bytes(F.linear)),
        Example("dense", (f(n, 5), f(5, 4), f(4)), lambda x, w, b: x @ w + b),
        Example("dense", (f(2, n, 5), f(5, 4)), lambda x, w: x @ w),
        Example("linear_q4", (f(1, 12), packed(6, n), f(3, n)), decoded(torch), {"group": 4}),
        Example("linear_q4", (f(m, n, 8), packed(4, 3), f(2, 3), f(2, 3)), decoded(torch), {"group": 4}),
        Example("softmax", (f(n, m),), lambda x: F.softmax(x, -1)),
        Example("softmax", (f(n, 3, m),), lambda x: F.softmax(x, 1), {"axis": 1}),
        Example("layer_norm", (f(2, n, 5), f(5), f(5)), lambda x, g, b: F.layer_norm(x, (5,), g, b)),
        Example("layer_norm", (f(n, 4, 3), f(4, 3)), lambda x, g: F.layer_norm(x, (4, 3), g)),
        Example("rms_norm", (f(2, n, 5), f(5)), rms),
        Example(
            "batch_norm",
            (f(n, 3, 2, 2), f(3), f(3), f(3), f(3)),
            lambda x, g, b, u, v: F.batch_norm(x, u, v, g, b),
            low=0.1,
        ),
        Example("group_norm", (f(n, 4, 2, m), f(4), f(4)), lambda x, g, b: F.group_norm(x, 2, g, b), {"groups": 2}),
        Example("attention", (f(2, n, 4), f(2, m, 4), f(2, m, 3)), attention),
        Example("attention", (f(1, 2, n, 4), f(1, 2, m, 4), f(1, 2, m, 3), f(n, m)), attention),
        Example(
            "attention",
            (f(n, 4, 2, 3), f(n, 2, m, 3), f(n, 2, m, 5)),
            lambda q, k, v: attention(q, k, v, enable_gqa=True),
            {"grouped": True},
        ),
        Example("attention", (halves(2, n, 4), halves(2, m, 4), halves(2, m, 3)), attention, tolerance=4e-3),
        Example(
            "attention",
            (f(n, n), f(n, n), f(n, n)),
            lambda q, k, v: attention(q, k, v, is_causal=True, scale=0.3),
            causal,
        ),
    ]


def _windows(F: Any) -> list[Example]:
    steps = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}
    return [
        Example("conv2d", (f(n, 3, 6, 5), f(4, 3, 3, 3)), F.conv2d),
        Example(
            "conv2d",
            (packed(n, 5, 6, 5), tensor((4, 5, 3, 3), "int8"), tensor((4,), "int32")),
            of_bytes(lambda x, w, b: F.conv2d(x, w, b, padding=1)),
            {"padding": 1},
        ),
        Example(
            "conv2d",
            (f(1, 4, 6, 5), f(4, 2, 3, 2), f(4)),
            lambda x, w, b: F.conv2d(x, w, b, **steps, groups=2),
            {**steps, "groups": 2},
        ),
        Example(
            "conv2d",
            (f(1, 3, n + 3, m + 3), f(3, 1, 3, 3)),
            lambda x, w: F.conv2d(x, w, padding=1, groups=3),
            {"padding": 1, "groups": 3},
        ),
        Example(
            "conv_transpose2d",
            (f(n, 2, 3, m), f(2, 3, 4, 4), f(3)),
            lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1),
            {"stride": 2, "padding": 1},
        ),
        Example(
            "max_pool2d", (f(n, 2, 6, 5),), lambda x: F.max_pool2d(x, 3, 2, 1), {"kernel": 3, "stride": 2, "padding": 1}
        ),
        Example("max_pool2d", (f(1, 2, n + 3, 4),), lambda x: F.max_pool2d(x, 2), {"kernel": 2}),
        Example(
            "avg_pool2d", (f(n, 2, 6, 5),), lambda x: F.avg_pool2d(x, 3, 1, 1), {"kernel": 3, "stride": 1, "padding": 1}
        ),
        Example("adaptive_avg_pool2d", (f(1, 2, n, m),), lambda x: F.adaptive_avg_pool2d(x, 1)),
        Example("adaptive_avg_pool2d", (f(n, 2, 4, 6),), lambda x: F.adaptive_avg_pool2d(x, (2, 3)), {"size": (2, 3)}),
        Example(
            "upsample_nearest2d", (f(1, 2, n, m),), lambda x: F.interpolate(x, scale_factor=(2, 3)), {"scale": (2, 3)}
        ),
        Example("upsample_nearest2d", (f(1, 2, 3, 4),), lambda x: F.interpolate(x, (5, 6)), {"size": (5, 6)}),
        *_packed_windows(F),
    ]


def _packed_windows(F: Any) -> list[Example]:
    steps = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}
    pool = {"kernel": 3, "stride": 2, "padding": 1}

    def plain(x: Any) -> Any:
        return x.permute(0, 1, 4, 2, 3).flatten(1, 2)

    def packed(x: Any, block: int) -> Any:
        return x.unflatten(1, (-1, block)).permute(0, 1, 3, 4, 2)

    def convolution(x: Any, w: Any) -> Any:
        whole = w.permute(0, 5, 1, 4, 2, 3).flatten(2, 3).flatten(0, 1)
        return packed(F.conv2d(plain(x), whole, **steps), w.shape[-1])

    def depthwise(x: Any, w: Any) -> Any:
        whole = w.permute(0, 3, 1, 2).flatten(0, 1).unsqueeze(1)
        return packed(F.conv2d(plain(x), whole, padding=1, groups=whole.shape[0]), w.shape[-1])

    return [
        Example("conv2d_packed", (f(n, 2, 6, 5, 3), f(2, 2, 3, 2, 3, 4)), convolution, steps),
        Example("depthwise_conv2d_packed", (f(1, 2, n + 3, m + 3, 4), f(2, 3, 3, 4)), depthwise, {"padding": 1}),
        Example("max_pool2d_packed", (f(n, 2, 6, 5, 4),), lambda x: packed(F.max_pool2d(plain(x), 3, 2, 1), 4), pool),
        Example("avg_pool2d_packed", (f(n, 2, 6, 5, 4),), lambda x: packed(F.avg_pool2d(plain(x), 3, 2, 1), 4), pool),
        *_winograd(F),
    ]


def _winograd(F: Any) -> list[Example]:
    """As the paper has it, with patches cut out by torch and matrices written out."""
    import torch

    G = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], dtype=torch.float64)
    B = torch.tensor([[1, 0, 0, 0], [0, 1, -1, 1], [-1, 1, 1, 0], [0, 0, 0, -1]], dtype=torch.float64)
    A = torch.tensor([[1, 0], [1, 1], [1, -1], [0, -1]], dtype=torch.float64)

    def convolution(x: Any, u: Any) -> Any:
        """Of six rows and five columns, padded by one: the last tile has a column that is left out."""
        space = F.pad(x.movedim(4, 2).double(), (1, 2, 1, 1))
        patches = space.unfold(3, 4, 2).unfold(4, 4, 2)  # n, c, k, t, u, 4, 4
        products = torch.einsum("nckuvij,ijocka->nouvaij", B.T @ patches @ B, u.double())
        tiles = A.T @ products @ A  # n, o, u, v, a, 2, 2
        whole = tiles.permute(0, 1, 2, 5, 3, 6, 4).flatten(4, 5).flatten(2, 3)
        return whole[:, :, :, :5].to(x.dtype)

    def weights(w: Any) -> Any:
        return torch.einsum("ik,ockmab,jm->ijocab", G, w.double(), G).to(w.dtype)

    return [
        Example("winograd_conv2d_packed", (f(n, 2, 6, 5, 3), f(4, 4, 2, 2, 3, 4)), convolution, {"padding": 1}),
        Example("winograd_weights_packed", (f(2, n, 3, 3, 3, 4),), weights),
    ]
