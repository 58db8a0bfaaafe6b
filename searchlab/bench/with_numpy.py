"""Every operator in numpy, written as an expert would: BLAS, no needless copies, memory reused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from searchlab.bench.operands import Array, LibraryOperands, follow
from searchlab.bench.unquantized import QUANTIZED, Unquantized
from searchlab.timing.race import Contender
from searchlab.workloads.counts import reduction_length
from searchlab.workloads.references import windows

_UNFOLDED = 1 << 21  # elements of a convolution's unfolded windows per product, so that they stay in cache
_TILE = 1 << 15  # the same for operators that make several passes over their data


def contender(job: LibraryOperands) -> Contender | None:
    """The operator on these arrays, or None if numpy has no sensible way to compute it."""
    if job.name in QUANTIZED:
        return _quantized(job)
    build = _BUILDERS.get(job.name)
    if build is None:
        return None
    if job.is_float or job.name == "reduce":
        return build(job)
    return _through_floats(job, build)


def _through_floats(job: LibraryOperands, build: Callable[[LibraryOperands], Contender]) -> Contender:
    """Integer products through floating-point BLAS: exact, because the float type chosen can hold the sums."""
    largest = math.prod(np.iinfo(job.arrays[n].dtype).max + 1 for n in job.workload.program.inputs[:2])
    fits = largest * reduction_length(job.workload.program) < 1 << 24
    dtype = np.float32 if fits else np.float64

    def run() -> Array:
        floats = {n: x.astype(dtype) for n, x in job.arrays.items()}
        found: Array = build(replace(job, arrays=floats))()
        return found.astype(job.output().dtype, copy=False)

    return run


def _quantized(job: LibraryOperands) -> Contender:
    """The operator on plain numbers, in floats that hold its sums exactly, and its result scaled back to bytes."""
    whole = Unquantized(job)
    plain = whole.in_floats()
    data, numbers = job.arrays[whole.names[0]], next(iter(plain.arrays.values()))
    multiply = _BUILDERS[plain.name](plain)

    def run() -> Array:
        np.subtract(data, whole.zero, out=numbers, dtype=numbers.dtype, casting="unsafe")
        return whole.result(multiply())

    return run


def _output(job: LibraryOperands) -> Array:
    """Memory for the result; floating-point if the operator is computed in floats."""
    y = job.output()
    first = next(iter(job.arrays.values()))
    return y if y.dtype.kind == first.dtype.kind or job.name == "reduce" else np.empty(y.shape, first.dtype)


# --- pointwise functions in place -------------------------------------------------------------------------------------


def _sigmoid(y: Array) -> None:
    np.negative(y, out=y)
    np.exp(y, out=y)
    y += 1
    np.reciprocal(y, out=y)


def _gelu(y: Array) -> None:
    from scipy.special import erf

    t = y * y.dtype.type(math.sqrt(0.5))
    erf(t, out=t)
    t += 1
    t *= 0.5
    y *= t


_UNARY: Mapping[str, Callable[[Array], Any]] = {
    "relu": lambda y: np.maximum(y, 0, out=y),
    "relu6": lambda y: np.clip(y, 0, 6, out=y),
    "sigmoid": _sigmoid,
    "tanh": lambda y: np.tanh(y, out=y),
    "gelu": _gelu,
    "exp": lambda y: np.exp(y, out=y),
    "abs": lambda y: np.abs(y, out=y),
    "neg": lambda y: np.negative(y, out=y),
    "square": lambda y: np.square(y, out=y),
}
_BINARY: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


# --- products ---------------------------------------------------------------------------------------------------------


def _matmul(job: LibraryOperands) -> Contender:
    A, B = (job.arrays[n] for n in job.workload.program.inputs)
    y = _output(job)
    return lambda: np.matmul(A, B, out=y)


def _scores(job: LibraryOperands) -> Contender:
    Q, K, y = job.arrays["Q"].transpose(0, 2, 1, 3), job.arrays["K"].transpose(0, 2, 3, 1), _output(job)
    return lambda: np.matmul(Q, K, out=y)


def _dense(job: LibraryOperands) -> Contender:
    X, W, y = job.arrays["X"], job.arrays["W"], _output(job)

    def run() -> Array:
        np.matmul(X, W, out=y)
        found: Array = follow(y, job.steps, job.arrays, _UNARY)
        return found

    return run


# --- convolutions -----------------------------------------------------------------------------------------------------


def _padded(x: Array, padding: tuple[int, ...], lead: int = 2, fill: float = 0) -> tuple[Array, Array]:
    """A padded array, filled once, and the view of it that holds `x`."""
    after = x.ndim - lead - len(padding)
    around = (0,) * lead + padding + (0,) * after
    if not any(around):
        return x, x
    outer = np.full([e + 2 * p for e, p in zip(x.shape, around)], fill, x.dtype)
    return outer, outer[tuple(slice(p, p + e) for e, p in zip(x.shape, around))]


def _convolution(job: LibraryOperands) -> Contender:
    """Unfolds windows into a matrix, chunk by chunk, and multiplies it (im2col)."""
    X, y = job.arrays["X"], _output(job)
    W, bias, rest = job.folded(0)
    groups = W.shape[0] if job.name == "depthwise_conv2d" else job.params["groups"]
    outer, inside = _padded(X, job.per_axis("padding"))
    view = windows(outer, W.shape[2:], job.per_axis("stride"), job.per_axis("dilation"))
    multiply = _depthwise(view, W, y) if W.shape[1] == 1 and groups == W.shape[0] else _unfold(view, W, y, groups)

    def run() -> Array:
        if inside is not X:
            np.copyto(inside, X)
        multiply()
        if bias is not None:
            np.add(y, bias.reshape(-1, *[1] * (y.ndim - 2)), out=y)
        found: Array = follow(y, rest, job.arrays, _UNARY)
        return found

    return run


def _unfold(view: Array, W: Array, y: Array, groups: int) -> Contender:
    kernel, out = W.shape[2:], y.shape[2:]
    dims, channels, row = len(out), view.shape[1], math.prod(out[1:])
    flat = W.reshape(groups, W.shape[0] // groups, -1)
    target = y.reshape(y.shape[0], *flat.shape[:2], -1)
    # (n, c, *out, *kernel) -> (n, c, *kernel, *out): reduction axes come first
    turned = view.transpose(0, 1, *range(2 + dims, 2 + 2 * dims), *range(2, 2 + dims))
    if turned.flags.c_contiguous:  # a 1x1 convolution already is a product
        matrix = turned.reshape(y.shape[0], groups, flat.shape[2], -1)
        return lambda: np.matmul(flat, matrix, out=target)
    depth = channels * math.prod(kernel)
    rows = min(out[0], max(1, _UNFOLDED // (depth * row)))
    memory = np.empty(depth * rows * row, view.dtype)
    work = []
    for i in range(y.shape[0]):
        for a in range(0, out[0], rows):
            b = min(a + rows, out[0])
            place: tuple[Any, ...] = (i, *[slice(None)] * (1 + dims), slice(a, b))
            source = turned[place]
            piece = memory[: source.size].reshape(source.shape)
            work.append((source, piece, piece.reshape(groups, flat.shape[2], -1), target[i, :, :, a * row : b * row]))

    def run() -> None:
        for source, piece, matrix, goal in work:
            np.copyto(piece, source)
            np.matmul(flat, matrix, out=goal)

    return run


def _depthwise(view: Array, W: Array, y: Array) -> Contender:
    """One multiplication and addition per element of the kernel, on a few channels at a time."""
    spatial = [1] * (y.ndim - 2)
    some = max(1, _TILE // math.prod(y.shape[2:]))
    memory = np.empty((some, *y.shape[2:]), y.dtype)
    work = []
    for i in range(y.shape[0]):
        for a in range(0, W.shape[0], some):
            goal = y[i, a : a + some]
            points = [
                (view[(i, slice(a, a + some), ..., *at)], W[(slice(a, a + some), 0, *at)].reshape(-1, *spatial))
                for at in np.ndindex(*W.shape[2:])
            ]
            work.append((points, goal, memory[: len(goal)]))

    def run() -> None:
        for (first, *points), goal, product in work:
            np.multiply(*first, out=goal)
            for source, weight in points:
                np.multiply(source, weight, out=product)
                np.add(goal, product, out=goal)

    return run


def _transposed(job: LibraryOperands) -> Contender:
    """Multiplies every input element by the kernel in one product, then adds up overlapping results."""
    X, y = job.arrays["X"], _output(job)
    W, bias, rest = job.folded(1)
    step, around, kernel = job.per_axis("stride"), job.per_axis("padding"), W.shape[2:]
    n, ci, *space = X.shape
    flat, data = W.reshape(ci, -1).T, X.reshape(n, ci, -1)
    spread = np.empty((n, W.shape[1], *kernel, *space), X.dtype)
    full = np.empty((n, W.shape[1], *((e - 1) * s + k for e, s, k in zip(space, step, kernel))), X.dtype)
    every = slice(None)
    goals = [
        (full[(every, every, *(slice(a, a + (e - 1) * s + 1, s) for a, e, s in zip(at, space, step)))], at)
        for at in np.ndindex(*kernel)
    ]
    crop = full[(every, every, *(slice(p, e - p) for e, p in zip(full.shape[2:], around)))]

    def run() -> Array:
        np.matmul(flat, data, out=spread.reshape(n, flat.shape[0], -1))
        full.fill(0)
        for goal, at in goals:
            goal += spread[(every, every, *at)]
        np.copyto(y, crop) if bias is None else np.add(crop, bias.reshape(-1, 1, 1), out=y)
        found: Array = follow(y, rest, job.arrays, _UNARY)
        return found

    return run


def _capsule(job: LibraryOperands) -> Contender:
    """(window, row of a capsule) x (window, column of a capsule): one product for all windows."""
    X, W, y = job.arrays["X"], job.arrays["W"], _output(job)
    outer, inside = _padded(X, job.per_axis("padding"), lead=1)
    view = windows(outer, W.shape[:2], job.per_axis("stride"), (1, 1), lead=1)  # n h w i a b kh kw
    n, h, w, ci, rows, inner = view.shape[:6]
    source = view.transpose(0, 1, 2, 4, 6, 7, 3, 5)
    unfolded = np.empty(source.shape, X.dtype)
    co, cols = W.shape[3], W.shape[5]
    flat = np.ascontiguousarray(W.transpose(0, 1, 2, 4, 3, 5)).reshape(-1, co * cols)
    product = np.empty((n, h, w, rows, co, cols), X.dtype)

    def run() -> Array:
        if inside is not X:
            np.copyto(inside, X)
        np.copyto(unfolded, source)
        np.matmul(unfolded.reshape(-1, flat.shape[0]), flat, out=product.reshape(-1, flat.shape[1]))
        np.copyto(y, product.swapaxes(3, 4))
        return y

    return run


# --- the others -------------------------------------------------------------------------------------------------------


def _softmax(job: LibraryOperands) -> Contender:
    X, y = job.arrays["X"], _output(job)
    one = np.empty((len(X), 1), X.dtype)

    def run() -> Array:
        np.max(X, axis=1, keepdims=True, out=one)
        np.subtract(X, one, out=y)
        np.exp(y, out=y)
        np.sum(y, axis=1, keepdims=True, out=one)
        np.divide(y, one, out=y)
        return y

    return run


def _layer_norm(job: LibraryOperands) -> Contender:
    X, gamma, beta, y = job.arrays["X"], job.arrays["gamma"], job.arrays["beta"], _output(job)
    one, eps = np.empty((len(X), 1), X.dtype), job.params["eps"]

    def run() -> Array:
        np.mean(X, axis=1, keepdims=True, out=one)
        np.subtract(X, one, out=y)
        np.vecdot(y, y, out=one[:, 0])
        np.divide(one, y.shape[1], out=one)
        np.add(one, eps, out=one)
        np.sqrt(one, out=one)
        np.divide(y, one, out=y)
        np.multiply(y, gamma, out=y)
        np.add(y, beta, out=y)
        return y

    return run


def _l2_norm(job: LibraryOperands) -> Contender:
    X, y = job.arrays["X"], _output(job)
    flat = X.reshape(len(X), -1)

    def run() -> Array:
        np.vecdot(flat, flat, out=y)
        return np.sqrt(y, out=y)

    return run


def _pool(job: LibraryOperands) -> Contender:
    X, y = job.arrays["X"], _output(job)
    maximum = job.name == "max_pool2d"
    outer, inside = _padded(X, job.per_axis("padding"), fill=-math.inf if maximum else 0)
    view = windows(outer, job.per_axis("k"), job.per_axis("stride"), (1, 1))
    first, *others = (view[(..., *at)] for at in np.ndindex(*job.per_axis("k")))
    combine = np.maximum if maximum else np.add

    def run() -> Array:
        if inside is not X:
            np.copyto(inside, X)
        np.copyto(y, first)
        for other in others:
            combine(y, other, out=y)
        if not maximum:
            np.divide(y, len(others) + 1, out=y)
        return y

    return run


def _global_pool(job: LibraryOperands) -> Contender:
    X, y = job.arrays["X"], _output(job)
    return lambda: np.mean(X, axis=(2, 3), out=y)


def _elementwise(job: LibraryOperands) -> Contender:
    """Applies the chain to a few rows at a time, so that later steps find them in cache."""
    X, *others = (job.arrays[n] for n in job.workload.program.inputs)
    y = _output(job)
    ops = [op.strip() for op in job.params["ops"].split(",") if op.strip()]
    some = max(1, _TILE // X.shape[1])

    def run() -> Array:
        for a in range(0, len(X), some):
            source, goal, rest = X[a : a + some], y[a : a + some], iter(others)
            for op in ops:
                if op in _BINARY:
                    _BINARY[op](source, next(rest)[a : a + some], out=goal)
                else:
                    if source is not goal:
                        np.copyto(goal, source)
                    _UNARY[op](goal)
                source = goal
        return y

    return run


def _reduce(job: LibraryOperands) -> Contender:
    X, y = job.arrays["X"], _output(job)
    axis, goal = job.params["axis"], y if X.ndim > 1 else y.reshape(())
    functions: Mapping[str, Callable[..., Any]] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}
    function = functions[job.params["op"]]

    def run() -> Array:
        function(X, axis=axis, out=goal)
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
