"""Layers of ATen: products, normalisation, softmax, attention and embedding; `aten_windows` has those with windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from searchlab.dtype import FLOATS
from searchlab.graph.annotations import Shape
from searchlab.graph.building import GraphValue
from searchlab.graph.torch_import.conversion import AtenStep, Tensors, converts, need
from searchlab.ir.expr import value_of

# --- products ---------------------------------------------------------------------------------------------------------


@converts("aten.linear.default")
def linear(step: AtenStep, x: GraphValue, weight: GraphValue, bias: GraphValue | None = None) -> GraphValue:
    """A fully connected layer."""
    return step.b.linear(x, weight, *([] if bias is None else [bias]))


@converts("aten.mm.default", "aten.bmm.default")
def mm(step: AtenStep, x: GraphValue, y: GraphValue) -> GraphValue:
    """A product of matrices, or of batches of them."""
    return step.b.matmul(x, y)


@converts("aten.matmul.default")
def matmul(step: AtenStep, x: GraphValue, y: GraphValue) -> GraphValue:
    """A product with broadcast batches; a vector is a row on the left and a column on the right."""
    left = step.b.unsqueeze(x, axes=(0,)) if len(x.shape) == 1 else x
    right = step.b.unsqueeze(y, axes=(1,)) if len(y.shape) == 1 else y
    made = step.b.matmul(left, right)
    gone = [-2] * (left is not x) + [-1] * (right is not y)
    return step.b.squeeze(made, axes=gone) if gone else made


@converts("aten.addmm.default", "aten.baddbmm.default")
def addmm(step: AtenStep, c: GraphValue, x: GraphValue, y: GraphValue, beta: float = 1, alpha: float = 1) -> GraphValue:
    """beta * c + alpha * (x @ y)."""
    if beta == alpha == 1 and len(x.shape) == 2 and len(c.shape) == 1:
        return step.b.dense(x, y, c)
    product = step.b.matmul(x, y)
    return (c if beta == 1 else c * beta) + (product if alpha == 1 else product * alpha)


# --- normalisation ----------------------------------------------------------------------------------------------------


def _filled(step: AtenStep, weight: GraphValue | None, shape: Shape, value: float) -> GraphValue:
    """A weight, or what a missing one stands for."""
    return step.b.full(shape=shape, value=value, dtype=step.dtype) if weight is None else weight


@converts("aten.batch_norm.default")
def batch_norm(
    step: AtenStep,
    x: GraphValue,
    weight: GraphValue | None,
    bias: GraphValue | None,
    mean: GraphValue | None,
    variance: GraphValue | None,
    training: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> GraphValue:
    """Normalisation of channels by the statistics that the module holds."""
    need(not training, "batch normalisation while training is not covered; call module.eval() first")
    need(mean is not None and variance is not None, "batch normalisation without statistics is not covered")
    channels = x.shape[1:2]
    return step.b.batch_norm(
        x, _filled(step, weight, channels, 1.0), _filled(step, bias, channels, 0.0), mean, variance, eps=eps
    )


@converts("aten._native_batch_norm_legit_no_training.default")
def native_batch_norm(
    step: AtenStep, x: GraphValue, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Tensors:
    """The same; torch returns what training would have kept as well."""
    return batch_norm(step, x, weight, bias, mean, variance, False, momentum, eps), None, None


@converts("aten.layer_norm.default")
def layer_norm(
    step: AtenStep, x: GraphValue, shape: list[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> GraphValue:
    """Normalisation over the last axes."""
    gamma = _filled(step, weight, x.shape[-len(shape) :], 1.0)
    return step.b.layer_norm(x, gamma, *([] if bias is None else [bias]), eps=eps)


@converts("aten.native_layer_norm.default")
def native_layer_norm(step: AtenStep, x: GraphValue, shape: list[int], weight: Any, bias: Any, eps: float) -> Tensors:
    """The same; torch returns means and deviations as well."""
    return layer_norm(step, x, shape, weight, bias, eps), None, None


@converts("aten.rms_norm.default")
def rms_norm(
    step: AtenStep, x: GraphValue, shape: list[int], weight: GraphValue | None = None, eps: float | None = None
) -> GraphValue:
    """Division by the root of the mean square over the last axis."""
    need(len(shape) == 1, f"over {len(shape)} axes; it is covered for the last one")
    least = float(np.finfo(np.float32 if step.dtype not in ("float64", "float16") else step.dtype).eps)
    return step.b.rms_norm(x, _filled(step, weight, x.shape[-1:], 1.0), eps=least if eps is None else eps)


@converts("aten.group_norm.default")
def group_norm(
    step: AtenStep, x: GraphValue, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> GraphValue:
    """Normalisation of groups of channels."""
    channels = x.shape[1:2]
    gamma, beta = _filled(step, weight, channels, 1.0), _filled(step, bias, channels, 0.0)
    return step.b.group_norm(x, gamma, beta, groups=groups, eps=eps)


@converts("aten.instance_norm.default")
def instance_norm(
    step: AtenStep,
    x: GraphValue,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    own: bool,
    _: float,
    eps: float,
    *__: Any,
) -> GraphValue:
    """Normalisation of every channel of every instance, which is a group of its own."""
    need(own, "instance normalisation by statistics that the module holds is not covered")
    channels = value_of(x.shape[1])
    need(channels is not None, f"{x.shape[1]} channels; their number must be known")
    assert channels is not None
    return group_norm(step, x, channels, weight, bias, eps)


@converts("aten.softmax.int", "aten._softmax.default")
def softmax(step: AtenStep, x: GraphValue, axis: int, _: Any = None) -> GraphValue:
    """Softmax, in the dtype of the result."""
    return step.b.softmax(step.cast(x), axis=axis)


@converts("aten.log_softmax.int", "aten._log_softmax.default")
def log_softmax(step: AtenStep, x: GraphValue, axis: int, _: Any = None) -> GraphValue:
    """Its logarithm, without computing what would be too small."""
    x = step.cast(x)
    shifted = x - step.b.max(x, axes=(axis,), keepdims=True)
    return shifted - step.b.log(step.b.sum(step.b.exp(shifted), axes=(axis,), keepdims=True))


# --- attention and embedding ------------------------------------------------------------------------------------------


@converts("aten.scaled_dot_product_attention.default")
def attention(
    step: AtenStep,
    q: GraphValue,
    k: GraphValue,
    v: GraphValue,
    mask: GraphValue | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> GraphValue:
    """Attention as a whole; with `enable_gqa`, several heads of queries share one of keys and values."""
    need(dropout == 0.0, f"dropout of {dropout} is not covered; call module.eval() first")
    k, v = (_batched(step, part, q, 3 if enable_gqa else 2) for part in (k, v))
    masks = [] if mask is None else [mask]
    return step.b.attention(q, k, v, *masks, scale=scale, causal=is_causal, grouped=enable_gqa)


def _batched(step: AtenStep, part: GraphValue, q: GraphValue, own: int) -> GraphValue:
    """Keys or values, broadcast to the queries except for their last axes, `own` in number."""
    wanted = (*q.shape[:-own], *part.shape[-own:])
    return part if part.shape == wanted else step.b.expand(part, shape=wanted)


@converts("aten.embedding.default")
def embedding(step: AtenStep, table: GraphValue, places: GraphValue, *_: Any) -> GraphValue:
    """Rows of a table."""
    need(table.dtype in FLOATS, f"a table of {table.dtype}")
    return step.b.take(table, places, axis=0)
