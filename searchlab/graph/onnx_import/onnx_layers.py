"""Layers of ONNX: products, normalisation, softmax, attention, reductions; `onnx_windows` has those with windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from searchlab.graph.building import GraphValue
from searchlab.graph.onnx_import.onnx_conversion import OnnxStep, from_node, need
from searchlab.graph.onnx_import.onnx_known import KnownTensor, OnnxValue
from searchlab.graph.ops.shape_ops import elements

# --- products ---------------------------------------------------------------------------------------------------------


@from_node("MatMul")
def matmul(step: OnnxStep, x: OnnxValue, y: OnnxValue) -> GraphValue:
    """A product with broadcast batches; a matrix of the model is the weight of a layer."""
    left, right = step.tensor(x), step.tensor(y)
    if isinstance(y, KnownTensor) and len(right.shape) == 2:
        return step.b.dense(left, right)
    row, column = len(left.shape) == 1, len(right.shape) == 1
    left = step.b.unsqueeze(left, axes=(0,)) if row else left
    right = step.b.unsqueeze(right, axes=(1,)) if column else right
    gone = [-2] * row + [-1] * column
    made = step.b.matmul(left, right)
    return step.b.squeeze(made, axes=gone) if gone else made


@from_node("Gemm")
def gemm(
    step: OnnxStep,
    x: OnnxValue,
    y: OnnxValue,
    c: OnnxValue | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> GraphValue:
    """alpha * x @ y + beta * c; a layer with its bias if there are no factors."""
    left, right = step.tensor(x), step.tensor(y)
    left = step.b.permute(left) if transA else left
    layer = step.b.linear if transB else step.b.dense
    if c is not None and alpha == beta == 1 and step.shape(c) == step.shape(y)[0 if transB else 1 :][:1]:
        return layer(left, right, step.tensor(c))
    product = layer(left, right)
    product = product if alpha == 1 else product * alpha
    if c is None:
        return product
    added = step.operand(c, 2) if beta == 1 else step.tensor(c) * beta
    return product + added


# --- normalisation ----------------------------------------------------------------------------------------------------


@from_node("BatchNormalization")
def batch_norm(
    step: OnnxStep,
    x: OnnxValue,
    scale: OnnxValue,
    shift: OnnxValue,
    mean: OnnxValue,
    variance: OnnxValue,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> GraphValue:
    """Normalisation of channels by the statistics that the model holds."""
    need(not training_mode and spatial == 1, "batch normalisation while training, or not by channels, is not covered")
    return step.b.batch_norm(*(step.tensor(v) for v in (x, scale, shift, mean, variance)), eps=epsilon)


@from_node("LayerNormalization")
def layer_norm(
    step: OnnxStep,
    x: OnnxValue,
    scale: OnnxValue,
    shift: OnnxValue | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> GraphValue:
    """Normalisation over the last axes, from `axis` on."""
    tensor, gamma = step.tensor(x), step.tensor(scale)
    count = len(tensor.shape) - axis if axis >= 0 else -axis
    need(len(gamma.shape) == count, f"a scale of rank {len(gamma.shape)} for {count} axes")
    return step.b.layer_norm(tensor, gamma, *([] if shift is None else [step.tensor(shift)]), eps=epsilon)


@from_node("RMSNormalization")
def rms_norm(
    step: OnnxStep, x: OnnxValue, scale: OnnxValue, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> GraphValue:
    """Division by the root of the mean square over the last axis."""
    tensor = step.tensor(x)
    need(axis in (-1, len(tensor.shape) - 1), f"over the axes from {axis} on; it is covered for the last one")
    return step.b.rms_norm(tensor, step.tensor(scale), eps=epsilon)


@from_node("GroupNormalization")
def group_norm(
    step: OnnxStep,
    x: OnnxValue,
    scale: OnnxValue,
    shift: OnnxValue,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> GraphValue:
    """Normalisation of groups of channels, with weights for channels."""
    need(step.opset >= 21, "weights for groups (before operator set 21) are not covered")
    return step.b.group_norm(*(step.tensor(v) for v in (x, scale, shift)), groups=num_groups, eps=epsilon)


@from_node("InstanceNormalization")
def instance_norm(
    step: OnnxStep, x: OnnxValue, scale: OnnxValue, shift: OnnxValue, *, epsilon: float = 1e-5
) -> GraphValue:
    """Normalisation of every channel of every instance, which is a group of its own."""
    (channels,) = step.known_extents(step.shape(x)[1:2], "the number of channels")
    return step.b.group_norm(*(step.tensor(v) for v in (x, scale, shift)), groups=channels, eps=epsilon)


@from_node("Softmax")
def softmax(step: OnnxStep, x: OnnxValue, *, axis: int | None = None) -> GraphValue:
    """Softmax along an axis; before operator set 13, over all axes from it on."""
    tensor = step.tensor(x)
    return _by_rows(step, tensor, axis, lambda rows, along: step.b.softmax(rows, axis=along))


@from_node("LogSoftmax")
def log_softmax(step: OnnxStep, x: OnnxValue, *, axis: int | None = None) -> GraphValue:
    """Its logarithm, without computing what would be too small."""

    def function(rows: GraphValue, along: int) -> GraphValue:
        shifted = rows - step.b.max(rows, axes=(along,), keepdims=True)
        return shifted - step.b.log(step.b.sum(step.b.exp(shifted), axes=(along,), keepdims=True))

    return _by_rows(step, step.tensor(x), axis, function)


def _by_rows(step: OnnxStep, tensor: GraphValue, axis: int | None, function: Any) -> GraphValue:
    rank = len(tensor.shape)
    along = (-1 if step.opset >= 13 else 1) if axis is None else axis
    along %= rank
    if step.opset >= 13 or along == rank - 1:
        made: GraphValue = function(tensor, along)
        return made
    rows = step.b.reshape(tensor, shape=(elements(tensor.shape[:along]), elements(tensor.shape[along:])))
    return step.b.reshape(function(rows, 1), shape=tensor.shape)


# --- attention --------------------------------------------------------------------------------------------------------


@from_node("Attention")
def attention(
    step: OnnxStep,
    q: OnnxValue,
    k: OnnxValue,
    v: OnnxValue,
    mask: OnnxValue | None = None,
    *,
    is_causal: int = 0,
    scale: float | None = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 1,
    qk_matmul_output_mode: int = 0,
) -> GraphValue:
    """Attention as a whole; operands of rank 3 have their heads side by side in the last axis."""
    need(softcap == 0.0, f"softcap = {softcap} is not covered")
    parts = [step.tensor(x) for x in (q, k, v)]
    together = len(parts[0].shape) == 3
    if together:
        heads = (q_num_heads, kv_num_heads, kv_num_heads)
        parts = [_heads(step, x, count) for x, count in zip(parts, heads, strict=True)]
    grouped = parts[0].shape[1] != parts[1].shape[1]
    masks = [] if mask is None else [step.tensor(mask)]
    made = step.b.attention(*parts, *masks, scale=scale, causal=bool(is_causal), grouped=grouped)
    if not together:
        return made
    n, h, rows, width = made.shape
    return step.b.reshape(step.b.permute(made, axes=(0, 2, 1, 3)), shape=(n, rows, h * width))


def _heads(step: OnnxStep, x: GraphValue, count: int | None) -> GraphValue:
    need(count is not None, "the number of heads is not given")
    assert count is not None
    n, rows, width = x.shape
    return step.b.permute(step.b.reshape(x, shape=(n, rows, count, width // count)), axes=(0, 2, 1, 3))


# --- reductions -------------------------------------------------------------------------------------------------------


def _reduced(
    step: OnnxStep, name: str, x: GraphValue, given: OnnxValue | None, axes: Sequence[int] | None, keep: bool
) -> GraphValue:
    over = axes if given is None else step.ints(given, "the axes")
    return step.b.op(name, x, axes=over or None, keepdims=keep)


def _reduction(name: str) -> Any:
    def convert(
        step: OnnxStep,
        x: OnnxValue,
        given: OnnxValue | None = None,
        *,
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> GraphValue:
        tensor = step.tensor(x)
        empty = axes is None and (given is None or step.ints(given, "the axes") == ())
        if empty and noop_with_empty_axes:
            return tensor
        return _finished(step, _reduced(step, name, _prepared(step, tensor), given, axes, bool(keepdims)))

    return convert


def _prepared(step: OnnxStep, x: GraphValue) -> GraphValue:
    return step.b.square(x) if step.operator in ("ReduceL2", "ReduceSumSquare") else x


def _finished(step: OnnxStep, x: GraphValue) -> GraphValue:
    return step.b.sqrt(x) if step.operator == "ReduceL2" else x


_REDUCTIONS = {
    "ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min", "ReduceL2": "sum",
    "ReduceSumSquare": "sum",
}  # fmt: skip
for _onnx, _own in _REDUCTIONS.items():
    from_node(_onnx)(_reduction(_own))


@from_node("GlobalAveragePool")
def global_average(step: OnnxStep, x: OnnxValue) -> GraphValue:
    """The mean of every channel."""
    return _over_space(step, "mean", x)


@from_node("GlobalMaxPool")
def global_max(step: OnnxStep, x: OnnxValue) -> GraphValue:
    """The largest element of every channel."""
    return _over_space(step, "max", x)


def _over_space(step: OnnxStep, name: str, x: OnnxValue) -> GraphValue:
    tensor = step.tensor(x)
    return step.b.op(name, tensor, axes=tuple(range(2, len(tensor.shape))), keepdims=True)
