"""Every converter, compared with torch at sizes it was not exported with; operators are called by their overloads."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from searchlab.graph import GraphModule, evaluate_graph, from_torch, verify_graph
from searchlab.graph.torch_import import CONVERTERS
from searchlab.graph.torch_import.conversion import Converter

Case = Callable[[SimpleNamespace], Any]
RTOL, ATOL = 1e-5, 1e-6  # one operator in float32; the interpreter computes in float64 and rounds its result


def inputs(n: int) -> dict[str, Tensor]:
    """Tensors with one free size: real and positive numbers, whole numbers, truth values, matrices, images."""
    g = torch.Generator().manual_seed(n)
    return {
        "x": torch.randn(n, 4, 6, generator=g),
        "y": torch.randn(n, 4, 6, generator=g),
        "p": torch.rand(n, 4, 6, generator=g) + 0.5,
        "i": torch.randint(-3, 4, (n, 4, 6), generator=g),
        "k": torch.randint(0, 4, (n, 3), generator=g),
        "c": torch.rand(n, 4, 6, generator=g) < 0.5,
        "d": torch.rand(n, 4, 6, generator=g) < 0.5,
        "m": torch.randn(6, 5, generator=g),
        "v": torch.randn(5, generator=g),
        "image": torch.randn(n, 4, 9, 7, generator=g),
        "w": torch.randn(6, 2, 3, 3, generator=g),
        "u": torch.randn(4, 3, 3, 2, generator=g),
        "bias": torch.randn(6, generator=g),
        "stats": torch.rand(4, generator=g) + 0.5,
    }


def unary(*names: str) -> dict[str, Case]:
    return {f"aten.{name}.default": lambda t, name=name: getattr(torch.ops.aten, name).default(t.p) for name in names}


def tensor_and_scalar(*names: str) -> dict[str, Case]:
    made: dict[str, Case] = {}
    for name in names:
        made[f"aten.{name}.Tensor"] = lambda t, name=name: (
            getattr(torch.ops.aten, name).Tensor(t.x, t.y),
            getattr(torch.ops.aten, name).Tensor(t.i, t.x[0, 0]),
        )
        made[f"aten.{name}.Scalar"] = lambda t, name=name: (
            getattr(torch.ops.aten, name).Scalar(t.x, 2),
            getattr(torch.ops.aten, name).Scalar(t.i, 2.5),
            getattr(torch.ops.aten, name).Scalar(t.i, 2),
        )
    return made


A = torch.ops.aten
POINTWISE: dict[str, Case] = {
    **unary("cos", "erf", "exp", "floor", "log", "neg", "relu", "round", "rsqrt", "sigmoid", "silu", "sin"),
    **unary("sqrt", "square", "tanh", "reciprocal"),
    **tensor_and_scalar("mul", "div", "add", "sub", "rsub", "eq", "ne", "lt", "le", "gt", "ge"),
    "aten.abs.default": lambda t: (A.abs.default(t.x), A.abs.default(t.i)),
    "aten.elu.default": lambda t: (A.elu.default(t.x), A.elu.default(t.x, 0.5, 2.0, 3.0)),
    "aten.maximum.default": lambda t: A.maximum.default(t.x, t.y),
    "aten.minimum.default": lambda t: (A.minimum.default(t.x, t.i), A.minimum.default(t.i, t.i - 1)),
    "aten.logical_and.default": lambda t: (A.logical_and.default(t.c, t.d), A.logical_and.default(t.i, t.x)),
    "aten.logical_or.default": lambda t: A.logical_or.default(t.c, t.d),
    "aten.logical_xor.default": lambda t: A.logical_xor.default(t.c, t.d),
    "aten.logical_not.default": lambda t: (A.logical_not.default(t.c), A.logical_not.default(t.i)),
    "aten.bitwise_and.Tensor": lambda t: A.bitwise_and.Tensor(t.c, t.d),
    "aten.bitwise_or.Tensor": lambda t: A.bitwise_or.Tensor(t.c, t.d),
    "aten.bitwise_xor.Tensor": lambda t: A.bitwise_xor.Tensor(t.c, t.d),
    "aten.__and__.Tensor": lambda t: A.__and__.Tensor(t.c, t.d),
    "aten.__or__.Tensor": lambda t: A.__or__.Tensor(t.c, t.d),
    "aten.__xor__.Tensor": lambda t: A.__xor__.Tensor(t.c, t.d),
    "aten.bitwise_not.default": lambda t: A.bitwise_not.default(t.c),
    "aten.pow.Tensor_Scalar": lambda t: [A.pow.Tensor_Scalar(t.p, e) for e in (2, 3, 0.5, -1, -0.5, 1.7)],
    "aten.gelu.default": lambda t: (A.gelu.default(t.x), A.gelu.default(t.x, approximate="tanh")),
    "aten.hardtanh.default": lambda t: (A.hardtanh.default(t.x), A.hardtanh.default(t.x, 0.0, 0.5)),
    "aten.relu6.default": lambda t: A.relu6.default(t.x * 5),
    "aten.clamp.default": lambda t: (
        A.clamp.default(t.x, -0.5),
        A.clamp.default(t.i, None, 1),
        A.clamp.default(t.x, 0, 1),
    ),
    "aten.clamp_min.default": lambda t: (A.clamp_min.default(t.x, 0), A.clamp_min.default(t.i, 0)),
    "aten.clamp_max.default": lambda t: A.clamp_max.default(t.x, 0.25),
    "aten.leaky_relu.default": lambda t: (A.leaky_relu.default(t.x), A.leaky_relu.default(t.x, 0.2)),
    "aten.where.self": lambda t: (A.where.self(t.c, t.x, t.y), A.where.self(t.c, t.x, t.i)),
    "aten.where.ScalarOther": lambda t: A.where.ScalarOther(t.c, t.x, float("-inf")),
    "aten.where.ScalarSelf": lambda t: A.where.ScalarSelf(t.c, 1.5, t.x),
    "aten.masked_fill.Scalar": lambda t: (A.masked_fill.Scalar(t.x, t.c, -1e4), A.masked_fill.Scalar(t.i, t.c, 7)),
    "aten.masked_fill.Tensor": lambda t: A.masked_fill.Tensor(t.x, t.c, t.y[0, 0, 0]),
    "aten._to_copy.default": lambda t: (
        A._to_copy.default(t.i, dtype=torch.float32),
        A._to_copy.default(t.c, dtype=torch.int32),
    ),
    "aten.to.dtype": lambda t: (
        A.to.dtype(t.x, torch.int64),
        A.to.dtype(t.x, torch.float64),
        A.to.dtype(t.i, torch.bool),
    ),
    "aten.to.dtype_layout": lambda t: A.to.dtype_layout(t.i, dtype=torch.float32),
    "aten.to.device": lambda t: A.to.device(t.i, "cpu", torch.float64),
    "aten.type_as.default": lambda t: A.type_as.default(t.i, t.x),
    "aten.alias.default": lambda t: A.alias.default(t.x) + 1,
    "aten.clone.default": lambda t: A.clone.default(t.x) + 1,
    "aten.contiguous.default": lambda t: A.contiguous.default(t.x) + 1,
    "aten.detach.default": lambda t: A.detach.default(t.x) + 1,
    "aten.detach_.default": lambda t: A.detach_.default(t.x + 1) + 1,
    "aten.lift_fresh_copy.default": lambda t: A.lift_fresh_copy.default(t.x) + 1,
    "aten.positive.default": lambda t: A.positive.default(t.x) + 1,
    "aten.dropout.default": lambda t: A.dropout.default(t.x, 0.5, False) + 1,
}
SHAPES: dict[str, Case] = {
    "aten.view.default": lambda t: (A.view.default(t.x, [-1, 6]), A.view.default(t.x, [t.x.shape[0] * 2, 2, 6])),
    "aten.reshape.default": lambda t: A.reshape.default(A.permute.default(t.x, [1, 0, 2]), [4, -1]),
    "aten._unsafe_view.default": lambda t: A._unsafe_view.default(t.x, [t.x.shape[0], 24]),
    "aten.flatten.using_ints": lambda t: (A.flatten.using_ints(t.x), A.flatten.using_ints(t.x, 1)),
    "aten.unflatten.int": lambda t: A.unflatten.int(t.x, -1, [2, -1]),
    "aten.view_as.default": lambda t: A.view_as.default(A.flatten.using_ints(t.x), t.y),
    "aten.permute.default": lambda t: A.permute.default(t.x, [2, 0, -2]),
    "aten.transpose.int": lambda t: (A.transpose.int(t.x, 0, -1), A.transpose.int(t.x, 1, 2)),
    "aten.t.default": lambda t: (A.t.default(t.m), A.t.default(t.v) + 1),
    "aten.expand.default": lambda t: (
        A.expand.default(t.x[:, :1], [-1, 4, -1]),
        A.expand.default(t.m, [t.x.shape[0], 6, 5]),
    ),
    "aten.expand_as.default": lambda t: A.expand_as.default(t.x[:1], t.y),
    "aten.broadcast_to.default": lambda t: A.broadcast_to.default(t.v, [t.x.shape[0], 5]),
    "aten.unsqueeze.default": lambda t: (A.unsqueeze.default(t.x, 1), A.unsqueeze.default(t.x, -1)),
    "aten.squeeze.dim": lambda t: (A.squeeze.dim(t.x[:, :1], 1), A.squeeze.dim(t.x[:, :, :2], 2)),
    "aten.squeeze.dims": lambda t: A.squeeze.dims(t.x[:, :1, :1], [1, -1]),
    "aten.squeeze.default": lambda t: A.squeeze.default(t.x[:, :1]),
    "aten.slice.Tensor": lambda t: (
        A.slice.Tensor(t.x, 1, 1, 3),
        A.slice.Tensor(t.x, 2, -2),
        A.slice.Tensor(t.x, 2, 1, 100, 2),
        A.slice.Tensor(t.x, 0, 1),
        A.slice.Tensor(t.x, 0, None, -1),
        A.slice.Tensor(t.x, -1, None, None, 4),
    ),
    "aten.select.int": lambda t: (A.select.int(t.x, 1, 2), A.select.int(t.x, 0, -1), A.select.int(t.x, -1, 0)),
    "aten.cat.default": lambda t: (A.cat.default([t.x, t.y, t.i], 1), A.cat.default([t.x, t.y]), A.cat.default([t.x])),
    "aten.concat.default": lambda t: A.concat.default([t.x, t.y], -1),
    "aten.stack.default": lambda t: (A.stack.default([t.x, t.y]), A.stack.default([t.x, t.y, t.i], -1)),
    "aten.split.Tensor": lambda t: A.split.Tensor(t.x, 4, 2),
    "aten.split_with_sizes.default": lambda t: A.split_with_sizes.default(t.x, [1, 3], 1),
    "aten.chunk.default": lambda t: A.chunk.default(t.x, 2, -1),
    "aten.unbind.int": lambda t: A.unbind.int(t.x, 1),
    "aten.constant_pad_nd.default": lambda t: (
        A.constant_pad_nd.default(t.x, [1, 2]),
        A.constant_pad_nd.default(t.x, [0, 1, 2, 0], -1.5),
        A.constant_pad_nd.default(t.i, [0, 0, 0, 0, 1, 2], 3),
    ),
}
REDUCTIONS: dict[str, Case] = {
    "aten.sum.dim_IntList": lambda t: (
        A.sum.dim_IntList(t.x, [1]),
        A.sum.dim_IntList(t.i, [0, -1], True),
        A.sum.dim_IntList(t.x, []),
    ),
    "aten.sum.default": lambda t: (A.sum.default(t.x), A.sum.default(t.c), A.sum.default(t.i, dtype=torch.float32)),
    "aten.mean.dim": lambda t: (A.mean.dim(t.x, [0, 2]), A.mean.dim(t.x, [-1], True)),
    "aten.mean.default": lambda t: A.mean.default(t.x),
    "aten.amax.default": lambda t: (A.amax.default(t.x, [0]), A.amax.default(t.i)),
    "aten.amin.default": lambda t: A.amin.default(t.x, [1, 2], True),
    "aten.max.dim": lambda t: A.max.dim(t.x, 1)[0],
    "aten.min.dim": lambda t: A.min.dim(t.x, -1, True)[0],
    "aten.any.dim": lambda t: (A.any.dim(t.c, 1), A.any.dim(t.i, -1, True)),
    "aten.any.dims": lambda t: A.any.dims(t.c, [0, 1]),
    "aten.any.default": lambda t: A.any.default(t.c),
    "aten.all.dim": lambda t: A.all.dim(t.c, 1),
    "aten.all.dims": lambda t: A.all.dims(t.c, [1, 2]),
    "aten.all.default": lambda t: A.all.default(t.c | t.d),
}
LAYERS: dict[str, Case] = {
    "aten.linear.default": lambda t: (A.linear.default(t.x, t.m.t(), t.v), A.linear.default(t.x[0, 0], t.m.t())),
    "aten.mm.default": lambda t: A.mm.default(t.x[:, 0], t.m),
    "aten.bmm.default": lambda t: A.bmm.default(t.x, t.y.transpose(1, 2)),
    "aten.matmul.default": lambda t: (
        A.matmul.default(t.x, t.m),
        A.matmul.default(t.x, t.m[:, 0]),
        A.matmul.default(t.y[0, 0], t.x.transpose(1, 2)),
        A.matmul.default(t.x[0, 0], t.y[0, 0]),
    ),
    "aten.addmm.default": lambda t: (
        A.addmm.default(t.v, t.x[:, 0], t.m),
        A.addmm.default(t.x[:, 1, :5], t.x[:, 0], t.m, beta=0.5, alpha=2),
    ),
    "aten.baddbmm.default": lambda t: A.baddbmm.default(t.x[:, :, :4], t.x, t.y.transpose(1, 2)),
    "aten.batch_norm.default": lambda t: (
        A.batch_norm.default(t.image, t.stats, t.stats - 1, t.stats, t.stats, False, 0.1, 1e-3, False),
        A.batch_norm.default(t.x, None, None, t.stats, t.stats, False, 0.1, 1e-5, False),
    ),
    "aten._native_batch_norm_legit_no_training.default": lambda t: A._native_batch_norm_legit_no_training.default(
        t.image, t.stats, t.stats - 1, t.stats, t.stats, 0.1, 1e-3
    )[0],
    "aten.layer_norm.default": lambda t: (
        A.layer_norm.default(t.x, [6], t.bias, t.bias - 1, 1e-3),
        A.layer_norm.default(t.x, [6], t.bias),
        A.layer_norm.default(t.x, [4, 6]),
    ),
    "aten.native_layer_norm.default": lambda t: A.native_layer_norm.default(t.x, [6], t.bias, t.bias, 1e-5)[0],
    "aten.rms_norm.default": lambda t: (A.rms_norm.default(t.x, [6], t.bias, 1e-3), A.rms_norm.default(t.x, [6])),
    "aten.group_norm.default": lambda t: (
        A.group_norm.default(t.image, 2, t.stats, t.stats - 1),
        A.group_norm.default(t.x, 4),
    ),
    "aten.instance_norm.default": lambda t: (
        A.instance_norm.default(t.image, t.stats, t.stats - 1, None, None, True, 0.1, 1e-3, False),
        A.instance_norm.default(t.x, None, None, None, None, True, 0.1, 1e-5, False),
    ),
    "aten.softmax.int": lambda t: (A.softmax.int(t.x, -1), A.softmax.int(t.i, 1, torch.float32)),
    "aten._softmax.default": lambda t: A._softmax.default(t.x, 1, False),
    "aten.log_softmax.int": lambda t: A.log_softmax.int(t.x * 50, -1),
    "aten._log_softmax.default": lambda t: A._log_softmax.default(t.x, 1, False),
    "aten.scaled_dot_product_attention.default": lambda t: (
        A.scaled_dot_product_attention.default(t.x, t.y, t.p),
        A.scaled_dot_product_attention.default(t.image, t.image * 2, t.image + 1, is_causal=True, scale=0.3),
        A.scaled_dot_product_attention.default(t.x, t.y, t.p, t.x[:, :, :4]),
        A.scaled_dot_product_attention.default(t.x, t.y, t.p, t.x[0, :, :4] < 0.9),
        A.scaled_dot_product_attention.default(t.image, t.image[:, :2], t.image[:, 2:], enable_gqa=True),
        A.scaled_dot_product_attention.default(t.image, t.image[:, :1], t.image[:1]),
    ),
    "aten.embedding.default": lambda t: A.embedding.default(t.m, t.k),
}
WINDOWS: dict[str, Case] = {
    "aten.convolution.default": lambda t: (
        A.convolution.default(t.image, t.w, t.bias, [2, 1], [1, 0], [1, 2], False, [0, 0], 2),
        A.convolution.default(t.image, t.u, None, [2, 3], [1, 0], [1, 1], True, [0, 0], 1),
        A.convolution.default(t.x, t.w[:, :, 0], t.bias, [2], [1], [1], False, [0], 2),
    ),
    "aten.conv2d.default": lambda t: (
        A.conv2d.default(t.image, t.w, t.bias, [1, 1], [1, 1], [1, 1], 2),
        A.conv2d.default(t.image[:, :2], t.w),
    ),
    "aten.conv1d.default": lambda t: A.conv1d.default(t.x, t.w[:, :, 0], t.bias, [1], [2], [2], 2),
    "aten.conv_transpose2d.input": lambda t: (
        A.conv_transpose2d.input(t.image, t.u, t.v[:3], [2, 2]),
        A.conv_transpose2d.input(t.image, t.u),
        A.conv_transpose2d.input(t.image, t.u, None, [2, 2], [1, 1], [1, 1]),
    ),
    "aten.max_pool2d.default": lambda t: (
        A.max_pool2d.default(t.image, [3, 2], [2, 2], [1, 0]),
        A.max_pool2d.default(t.image, [2]),
        A.max_pool2d.default(t.image, [3, 3], [2, 2], [1, 1], [1, 1], True),
        A.max_pool2d.default(t.image, [2, 3], [3, 4], [1, 0], [1, 1], True),
    ),
    "aten.max_pool2d_with_indices.default": lambda t: A.max_pool2d_with_indices.default(t.image, [2, 2], [1, 2])[0],
    "aten.avg_pool2d.default": lambda t: (
        A.avg_pool2d.default(t.image, [3, 3], [2, 2], [1, 1]),
        A.avg_pool2d.default(t.image, [2]),
        A.avg_pool2d.default(t.image, [3, 3], [2, 2], [1, 1], False, False),
        A.avg_pool2d.default(t.image, [3, 3], [2, 2], [1, 1], True, False),
    ),
    "aten.adaptive_avg_pool2d.default": lambda t: (
        A.adaptive_avg_pool2d.default(t.image, [1, 1]),
        A.adaptive_avg_pool2d.default(t.image, [3, 7]),
    ),
    "aten._adaptive_avg_pool2d.default": lambda t: A._adaptive_avg_pool2d.default(t.image, [1, 1]),
    "aten.upsample_nearest2d.vec": lambda t: (
        A.upsample_nearest2d.vec(t.image, None, [2.0, 3.0]),
        A.upsample_nearest2d.vec(t.image, [13, 11], None),
    ),
    "aten.upsample_nearest2d.default": lambda t: A.upsample_nearest2d.default(t.image, [18, 14]),
}
INDEXING: dict[str, Case] = {
    "aten.full.default": lambda t: (A.full.default([t.x.shape[0], 2], 1.5), A.full.default([2], True)),
    "aten.full_like.default": lambda t: (A.full_like.default(t.x, -2), A.full_like.default(t.c, 1)),
    "aten.fill.Scalar": lambda t: A.fill.Scalar(t.x, 3),
    "aten.zeros.default": lambda t: A.zeros.default([3, t.x.shape[0]], dtype=torch.int32),
    "aten.zeros_like.default": lambda t: A.zeros_like.default(t.i),
    "aten.new_zeros.default": lambda t: A.new_zeros.default(t.i, [2, 3]),
    "aten.ones.default": lambda t: A.ones.default([t.x.shape[0]]),
    "aten.ones_like.default": lambda t: A.ones_like.default(t.x),
    "aten.new_ones.default": lambda t: A.new_ones.default(t.i, [4]),
    "aten.scalar_tensor.default": lambda t: A.scalar_tensor.default(2.5) + t.x,
    "aten.arange.default": lambda t: (A.arange.default(t.x.shape[0] + 1), A.arange.default(5, dtype=torch.float32)),
    "aten.arange.start": lambda t: A.arange.start(t.x.shape[0], 2 * t.x.shape[0]),
    "aten.arange.start_step": lambda t: A.arange.start_step(1, 12, 3),
    "aten.triu.default": lambda t: (A.triu.default(t.x), A.triu.default(t.x, 2), A.triu.default(t.i, -1)),
    "aten.tril.default": lambda t: (A.tril.default(t.x), A.tril.default(t.x, 1)),
    "aten.index_select.default": lambda t: A.index_select.default(t.x, 1, t.k[:, 0]),
    "aten.index.Tensor": lambda t: (A.index.Tensor(t.x, [None, t.k]), A.index.Tensor(t.m, [t.k])),
    "aten.index_put.default": lambda t: (
        A.index_put.default(t.x, [None, None, torch.arange(2, 5)], t.y[:, :, :3]),
        A.index_put.default(t.m, [torch.arange(2)], t.v),
    ),
    "aten.copy.default": lambda t: (A.copy.default(t.x, t.i), A.copy.default(t.m, t.v)),
    "aten.slice_scatter.default": lambda t: (
        A.slice_scatter.default(t.x, t.y[:, :, :2], 2, 3, 5),
        A.slice_scatter.default(t.x, t.y[:, 1:3], 1, -2),
        A.slice_scatter.default(t.x, t.y),
    ),
    "aten.select_scatter.default": lambda t: (
        A.select_scatter.default(t.x, t.y[:, 0], 1, 2),
        A.select_scatter.default(t.x, t.y[..., 0], -1, 5),
    ),
    "aten.repeat.default": lambda t: (A.repeat.default(t.x, [1, 2, 1]), A.repeat.default(t.m, [t.x.shape[0], 1, 3])),
}
GROUPS = {
    "pointwise": POINTWISE,
    "shapes": SHAPES,
    "reductions": REDUCTIONS,
    "layers": LAYERS,
    "windows": WINDOWS,
    "indexing": INDEXING,
}


class Calls(nn.Module):
    """The results of all cases of a group."""

    def __init__(self, cases: dict[str, Case]) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, given: dict[str, Tensor]) -> dict[str, Any]:
        return {name: case(SimpleNamespace(**given)) for name, case in self.cases.items()}


def imported(module: nn.Module, n: int) -> GraphModule:
    given = inputs(n)
    size = Dim("n", min=3, max=40)
    free = {name: ({0: size} if value.shape[0] == n else None) for name, value in given.items()}
    return from_torch(module, (given,), (free,))


@dataclass(frozen=True)
class Group:
    """Cases, their graph, and the operators that were converted for it."""

    cases: dict[str, Case]
    module: GraphModule
    converted: frozenset[str]


@pytest.fixture(scope="module", params=GROUPS)
def group(request: pytest.FixtureRequest) -> Group:
    seen: list[str] = []

    def noted(name: str, convert: Converter) -> Converter:
        return lambda step, *args, **kwargs: seen.append(name) or convert(step, *args, **kwargs)  # type: ignore[func-returns-value]

    cases = GROUPS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        for name, convert in list(CONVERTERS.items()):
            patch.setitem(CONVERTERS, name, noted(name, convert))
        module = imported(Calls(cases), 11)
    return Group(cases, module, frozenset(seen))


@torch.no_grad()
@pytest.mark.parametrize("n", [3, 4, 7])
def test_results_are_those_of_torch(group: Group, n: int) -> None:
    given = inputs(n)
    found = evaluate_graph(group.module, *(value.numpy() for value in given.values()))
    results = iter(found if isinstance(found, tuple) else (found,))
    for name, case in group.cases.items():
        wanted = case(SimpleNamespace(**given))
        for number, want in enumerate([wanted] if isinstance(wanted, Tensor) else wanted):
            got = next(results)
            assert got.dtype == want.numpy().dtype, f"{name}, result {number}"
            np.testing.assert_allclose(got, want.numpy(), RTOL, ATOL, err_msg=f"{name}, result {number}")
    assert next(results, None) is None


def test_graphs_are_well_formed(group: Group) -> None:
    verify_graph(group.module)


def test_every_case_is_about_its_operator(group: Group) -> None:
    assert group.cases.keys() <= group.converted


def test_every_converter_has_a_case() -> None:
    cases = [name for group in GROUPS.values() for name in group]
    assert sorted(cases) == sorted(CONVERTERS)
