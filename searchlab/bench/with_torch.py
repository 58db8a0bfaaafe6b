"""Every operator in torch, written to be fast: one fused call where it exists, the rest in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from searchlab.bench.operands import LibraryOperands, follow
from searchlab.timing.race import Contender

_NHWC = ("conv2d", "conv2d_bn_relu", "depthwise_conv2d")


def contenders(job: LibraryOperands) -> dict[str, Contender]:
    """`torch`, and `torch-nhwc` for convolutions: data and weights channels-last, the layout its kernels favour."""
    if not job.is_float:
        return _integers(job)
    found: dict[str, Contender] = {}
    if job.name in _BUILDERS:
        found["torch"] = _BUILDERS[job.name](job)
    if job.name in _NHWC:
        found["torch-nhwc"] = _convolution(job, torch.channels_last)
    return found


def _integers(job: LibraryOperands) -> dict[str, Contender]:
    if job.name == "reduce":
        return {"torch": _reduce(job)}
    # torch's only integer product with an int32 result on CPUs; it is not public, so it may disappear.
    multiply = getattr(torch, "_int_mm", None)
    if job.name != "matmul" or job.params["dtype"] != "int8" or multiply is None:
        return {}
    A, B, _ = _tensors(job)
    return {"torch": lambda: multiply(A, B)}


def _tensors(job: LibraryOperands) -> list[Any]:
    """The inputs in order, then memory for the output."""
    arrays = [job.arrays[n] for n in job.workload.program.inputs]
    return [torch.from_numpy(x) for x in (*arrays, job.output())]


_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "relu": torch.relu_,
    "relu6": lambda y: F.hardtanh_(y, 0.0, 6.0),
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
    "gelu": lambda y: torch.ops.aten.gelu_(y),
    "exp": torch.exp_,
    "abs": torch.abs_,
    "neg": torch.neg_,
    "square": torch.square_,
}
_BINARY: Mapping[str, Callable[..., Any]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "max": torch.maximum, "min": torch.minimum,
}  # fmt: skip


def _matmul(job: LibraryOperands) -> Contender:
    A, B, y = _tensors(job)
    multiply = torch.mm if A.ndim == 2 else torch.bmm
    return lambda: multiply(A, B, out=y)


def _scores(job: LibraryOperands) -> Contender:
    Q, K, y = _tensors(job)
    left, right = Q.permute(0, 2, 1, 3), K.permute(0, 2, 3, 1)
    return lambda: torch.matmul(left, right, out=y)


def _dense(job: LibraryOperands) -> Contender:
    X, W, *_, y = _tensors(job)
    if job.steps[:1] != ("bias",):
        return lambda: follow(torch.mm(X, W, out=y), job.steps, {}, _UNARY)
    bias, rest = torch.from_numpy(job.arrays["bias"]), job.steps[1:]
    return lambda: follow(torch.addmm(bias, X, W, out=y), rest, {}, _UNARY)


def _convolution(job: LibraryOperands, layout: Any = torch.contiguous_format) -> Contender:
    X = torch.from_numpy(job.arrays["X"])
    kind: Callable[..., Any] = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[X.ndim]
    weights, shift, rest = job.folded(0)
    W, X = torch.from_numpy(weights).contiguous(memory_format=layout), X.contiguous(memory_format=layout)
    bias = None if shift is None else torch.from_numpy(shift)
    groups = W.shape[0] if job.name == "depthwise_conv2d" else job.params["groups"]
    stride, padding, dilation = (job.per_axis(name) for name in ("stride", "padding", "dilation"))
    given = {n: torch.from_numpy(x) for n, x in job.arrays.items()}
    if "R" in given:
        given["R"] = given["R"].contiguous(memory_format=layout)
    return lambda: follow(kind(X, W, bias, stride, padding, dilation, groups), rest, given, _UNARY)


def _transposed(job: LibraryOperands) -> Contender:
    X = torch.from_numpy(job.arrays["X"])
    weights, shift, rest = job.folded(1)
    W, bias = torch.from_numpy(weights), None if shift is None else torch.from_numpy(shift)
    stride, padding = job.per_axis("stride"), job.per_axis("padding")
    given = {n: torch.from_numpy(x) for n, x in job.arrays.items()}
    return lambda: follow(F.conv_transpose2d(X, W, bias, stride, padding), rest, given, _UNARY)


def _capsule(job: LibraryOperands) -> Contender:
    """A convolution with the capsules' rows folded into the batch and their columns into the channels."""
    X, W, y = _tensors(job)
    n, h, w, ci, rows, inner = X.shape
    co, cols = W.shape[3], W.shape[5]
    weights = W.permute(3, 5, 2, 4, 0, 1).reshape(co * cols, ci * inner, *W.shape[:2])
    weights = weights.contiguous(memory_format=torch.channels_last)
    stride, padding = job.per_axis("stride"), job.per_axis("padding")

    def run() -> Any:
        # (n, a, h, w, i, b) is (n a) images with (i b) channels last, so that only this one copy is needed
        images = X.permute(0, 4, 1, 2, 3, 5).reshape(n * rows, h, w, ci * inner).permute(0, 3, 1, 2)
        found = F.conv2d(images, weights, None, stride, padding)
        return y.copy_(found.reshape(n, rows, co, cols, *found.shape[2:]).permute(0, 4, 5, 2, 1, 3))

    return run


def _softmax(job: LibraryOperands) -> Contender:
    X, y = _tensors(job)
    return lambda: torch.softmax(X, 1, out=y)


def _layer_norm(job: LibraryOperands) -> Contender:
    X, gamma, beta, _ = _tensors(job)
    shape, eps = (X.shape[1],), job.params["eps"]
    return lambda: F.layer_norm(X, shape, gamma, beta, eps)


def _l2_norm(job: LibraryOperands) -> Contender:
    X, y = _tensors(job)
    return lambda: torch.linalg.vector_norm(X, dim=(1, 2), out=y)


def _pool(job: LibraryOperands) -> Contender:
    X = torch.from_numpy(job.arrays["X"])
    pool: Callable[..., Any] = F.max_pool2d if job.name == "max_pool2d" else F.avg_pool2d
    k, stride, padding = job.per_axis("k"), job.per_axis("stride"), job.per_axis("padding")
    return lambda: pool(X, k, stride, padding)


def _global_pool(job: LibraryOperands) -> Contender:
    X, y = _tensors(job)
    return lambda: torch.mean(X, dim=(2, 3), out=y)


def _elementwise(job: LibraryOperands) -> Contender:
    X, *others, y = _tensors(job)
    ops = [op.strip() for op in job.params["ops"].split(",") if op.strip()]
    out_of_place = {
        "relu6": torch.ops.aten.hardtanh.out,
        "gelu": torch.ops.aten.gelu.out,
        "relu": torch.ops.aten.relu.out,
    }

    def run() -> Any:
        source, rest = X, iter(others)
        for op in ops:
            if op in _BINARY:
                source = _BINARY[op](source, next(rest), out=y)
            elif source is y:
                _UNARY[op](y)
            elif op in out_of_place:
                source = out_of_place[op](source, *((0.0, 6.0) if op == "relu6" else ()), out=y)
            else:
                source = getattr(torch, op)(source, out=y)
        return y

    return run


def _reduce(job: LibraryOperands) -> Contender:
    X, y = _tensors(job)
    axis, goal, op = job.params["axis"], y if X.ndim > 1 else y.reshape(()), job.params["op"]
    functions: Mapping[str, Callable[..., Any]] = {
        "sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin,
    }  # fmt: skip
    function = functions[op]
    more = {"dtype": y.dtype} if op == "sum" else {}

    def run() -> Any:
        function(X, axis, out=goal, **more)
        return y

    return run


_BUILDERS: Mapping[str, Callable[[LibraryOperands], Contender]] = {
    "matmul": _matmul,
    "batch_matmul": _matmul,
    "transpose_batch_matmul": _scores,
    "dense": _dense,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "depthwise_conv2d", "conv2d_bn_relu"), _convolution),
    "conv2d_transpose": _transposed,
    "capsule_conv2d": _capsule,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "l2_norm": _l2_norm,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "global_avg_pool2d": _global_pool,
    "elementwise": _elementwise,
    "reduce": _reduce,
}
