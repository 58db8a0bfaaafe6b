"""Every operator in onnxruntime: a small ONNX model, made in memory, whose weights the session packs ahead of time.

Its products of bytes add pairs of them up in 16 bits on CPUs without VNNI, where they saturate: its results may be
wrong there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from searchlab.bench.operands import Array, LibraryOperands
from searchlab.bench.unquantized import QUANTIZED, Unquantized
from searchlab.timing.race import Contender

_OPSET, _FORMAT = 21, 10  # versions of the operators and of the file format, read by every onnxruntime since 1.18
_LARGEST = 2**31 - 2**20  # bytes of weights: a model is one protobuf message, which must be smaller than 2 GiB
# Its threads spin as long as they are kept busy, but no longer into the turn of the next contender: without this they
# go on for 40 ms, more than a race pauses between turns.
_SPIN_US = "10000"

_log = logging.getLogger(__name__)


def contender(job: LibraryOperands, threads: int) -> Contender | None:
    """The operator on these arrays, or None if ONNX cannot express it or the runtime lacks it for these types."""
    write = _writer(job)
    if write is None:
        return None
    graph = _Graph(job)
    graph.name_output(write(graph))
    if sum(x.nbytes for x in graph.constants.values()) > _LARGEST:
        return None
    try:
        run = _bound(graph, threads)
        run()
    except Exception as e:  # its classes of errors are not public; a race goes on without a library that refuses
        _log.warning("onnxruntime does not run %s: %s", job.workload.spec, e)
        return None
    return run


def _writer(job: LibraryOperands) -> Callable[[_Graph], str] | None:
    if job.multiplies_bytes:
        return _BYTE_WRITERS.get(job.name)
    fits = all(x.dtype == np.float32 for x in job.arrays.values()) or job.name == "reduce" and not job.is_float
    return _WRITERS.get(job.name) if fits else None


def _bound(graph: _Graph, threads: int) -> Contender:
    """A session with a pool of its own; inputs and output are bound to arrays, so that a call copies nothing."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_session_config_entry("session.intra_op.spin_duration_us", _SPIN_US)
    options.log_severity_level = 3  # errors; what it warns about (nodes that it folded) is no concern of a race
    model = graph.model().SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding, inputs, y = session.io_binding(), graph.inputs, graph.output
    for name, x in inputs.items():
        binding.bind_input(name, "cpu", 0, x.dtype.type, x.shape, x.ctypes.data)
    binding.bind_output(_OUTPUT, "cpu", 0, y.dtype.type, y.shape, y.ctypes.data)

    def run(inputs: Mapping[str, Array] = inputs) -> Array:  # the bound arrays live as long as this function
        session.run_with_iobinding(binding)
        return y

    return run


_OUTPUT = "result"
_OWN = "com.microsoft"  # operators that onnxruntime adds to those of ONNX


class _Graph:
    """An ONNX graph being written: what is not a weight of the workload is an input; values are known by name."""

    def __init__(self, job: LibraryOperands) -> None:
        self.job = job
        self.inputs = {n: x for n, x in job.arrays.items() if n not in job.workload.weights}
        self.constants: dict[str, Array] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.output = job.output()

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Appends an operator; returns the name of its result."""
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [result], **attributes))
        return result

    def constant(self, array: Array) -> str:
        """The name of a new constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def operand(self, name: str) -> str:
        """The name of an input of the workload, which is a constant here if it is a weight there."""
        return name if name in self.inputs else self.constant(self.job.arrays[name])

    def axes(self, *axes: int) -> str:
        """Axes or a shape, as the later versions of operators take them."""
        return self.constant(np.array(axes, np.int64))

    def follow(self, y: str, steps: Sequence[str]) -> str:
        """The steps of an epilogue, with channels on axis 1."""
        column = [-1, *[1] * (self.output.ndim - 2)]
        for step in steps:
            if step == "add":
                y = self.node("Add", y, "R")
            elif step in ("bias", "bn"):
                scale, shift = ("scale", "shift") if step == "bn" else ("", "bias")
                if scale:
                    y = self.node("Mul", y, self.constant(self.job.arrays[scale].reshape(column)))
                y = self.node("Add", y, self.constant(self.job.arrays[shift].reshape(column)))
            else:
                y = self.unary(step, y)
        return y

    def unary(self, step: str, y: str) -> str:
        """A pointwise function."""
        if step == "relu6":
            return self.node("Clip", y, *(self.constant(np.array(limit, np.float32)) for limit in (0, 6)))
        return self.node("Mul", y, y) if step == "square" else self.node(step.capitalize(), y)

    def name_output(self, result: str) -> None:
        """Gives the last node's result, which must be `result`, the name of the output."""
        (name,) = self.nodes[-1].output
        assert name == result, "the result of a graph comes last"
        self.nodes[-1].output[0] = _OUTPUT

    def model(self) -> onnx.ModelProto:
        """The finished graph as a model."""
        constants = [numpy_helper.from_array(np.ascontiguousarray(x), n) for n, x in self.constants.items()]
        inputs = [_described(n, x) for n, x in self.inputs.items()]
        graph = helper.make_graph(self.nodes, "operator", inputs, [_described(_OUTPUT, self.output)], constants)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_OWN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_FORMAT)


def _described(name: str, x: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)


# --- products ---------------------------------------------------------------------------------------------------------


def _matmul(g: _Graph) -> str:
    return g.node("MatMul", g.operand("A"), g.operand("B"))


def _scores(g: _Graph) -> str:
    left, right = g.node("Transpose", "Q", perm=(0, 2, 1, 3)), g.node("Transpose", "K", perm=(0, 2, 3, 1))
    return g.node("MatMul", left, right)


def _dense(g: _Graph) -> str:
    X, W = g.operand("X"), g.operand("W")
    if g.job.steps[:1] != ("bias",):
        return g.follow(g.node("MatMul", X, W), g.job.steps)
    return g.follow(g.node("Gemm", X, W, g.operand("bias")), g.job.steps[1:])


def _convolution(g: _Graph) -> str:
    W, bias, rest = g.job.folded(0)
    groups = len(W) if g.job.name == "depthwise_conv2d" else g.job.params["groups"]
    return g.follow(_product(g, "Conv", W, bias, dilations=g.job.per_axis("dilation"), group=groups), rest)


def _transposed(g: _Graph) -> str:
    W, bias, rest = g.job.folded(1)
    return g.follow(_product(g, "ConvTranspose", W, bias), rest)


def _product(g: _Graph, op: str, W: Array, bias: Array | None, x: str = "X", **more: Any) -> str:
    weights = [g.constant(a) for a in (W, bias) if a is not None]
    return g.node(op, x, *weights, strides=g.job.per_axis("stride"), pads=g.job.per_axis("padding") * 2, **more)


def _capsule(g: _Graph) -> str:
    """A convolution with the capsules' rows folded into the batch and their columns into the channels."""
    X, W = g.job.arrays["X"], g.job.arrays["W"]
    n, h, w, ci, rows, inner = X.shape
    _, oh, ow, co, _, cols = g.output.shape
    weights = W.transpose(3, 5, 2, 4, 0, 1).reshape(co * cols, ci * inner, *W.shape[:2])
    images = g.node("Reshape", g.node("Transpose", "X", perm=(0, 4, 3, 5, 1, 2)), g.axes(n * rows, ci * inner, h, w))
    found = g.node("Reshape", _product(g, "Conv", weights, None, images), g.axes(n, rows, co, cols, oh, ow))
    return g.node("Transpose", found, perm=(0, 4, 5, 2, 1, 3))


# --- products of bytes ------------------------------------------------------------------------------------------------


def _byte_matrices(g: _Graph) -> str:
    data, weights, *_ = g.job.workload.program.inputs
    y = g.node("MatMulInteger", g.operand(data), g.operand(weights))
    return g.node("Add", y, g.operand("bias")) if "bias" in g.job.arrays else y


def _byte_convolution(g: _Graph) -> str:
    return g.follow(_convolve(g, "ConvInteger", "X", g.operand("W")), g.job.steps)


def _convolve(g: _Graph, op: str, *inputs: str) -> str:
    groups = len(g.job.arrays["W"]) if "depthwise" in g.job.name else g.job.params.get("groups", 1)
    where = {"strides": g.job.per_axis("stride"), "pads": g.job.per_axis("padding") * 2}
    return g.node(op, *inputs, dilations=g.job.per_axis("dilation"), group=groups, **where)


def _quantized(g: _Graph) -> str:
    """The operator of ONNX, or of onnxruntime, that scales its sums back to bytes; for sums the one that does not."""
    whole, out = Unquantized(g.job), g.output.dtype
    data, weights = whole.names
    bias = () if whole.bias is None else (whole.bias,)
    zero = g.constant(np.array(whole.zero, g.job.arrays[data].dtype))
    if out == np.int32:
        plain = (g.operand(data), g.operand(weights), zero, g.constant(np.array(whole.weight_zero, np.int8)))
        y = _convolve(g, "ConvInteger", *plain) if whole.is_image else g.node("MatMulInteger", *plain)
        return g.node("Add", y, g.constant(bias[0].reshape(whole.column))) if bias else y
    scale, one = g.job.arrays["scale"], g.constant(np.array(1, np.float32))
    many = g.constant(np.full(len(scale), whole.weight_zero, np.int8))
    end = (one, g.constant(np.array(whole.params["out_zero"], out)))
    begin = (g.operand(data), one, zero, g.operand(weights), g.constant(scale), many)
    if whole.is_image:
        return _convolve(g, "QLinearConv", *begin, *end, *map(g.constant, bias))
    if not bias or not whole.params.get("bias"):
        return g.node("QLinearMatMul", *begin, *end)
    return g.node("QGemm", *begin, g.constant(bias[0]), *end, domain=_OWN)


_BYTE_WRITERS: Mapping[str, Callable[[_Graph], str]] = {
    **dict.fromkeys(("matmul", "batch_matmul", "dense"), _byte_matrices),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "depthwise_conv2d"), _byte_convolution),
    **dict.fromkeys(QUANTIZED, _quantized),
}


# --- the others -------------------------------------------------------------------------------------------------------


def _softmax(g: _Graph) -> str:
    return g.node("Softmax", "X", axis=1)


def _layer_norm(g: _Graph) -> str:
    return g.node("LayerNormalization", "X", g.operand("gamma"), g.operand("beta"), axis=1, epsilon=g.job.params["eps"])


def _l2_norm(g: _Graph) -> str:
    # ReduceL2 and ReduceSumSquare run in one thread and take four times as long
    return g.node("Sqrt", g.node("ReduceSum", g.node("Mul", "X", "X"), g.axes(1, 2), keepdims=0))


def _pool(g: _Graph) -> str:
    where = {"strides": g.job.per_axis("stride"), "pads": g.job.per_axis("padding") * 2}
    if g.job.name == "max_pool2d":
        return g.node("MaxPool", "X", kernel_shape=g.job.per_axis("k"), **where)
    return g.node("AveragePool", "X", kernel_shape=g.job.per_axis("k"), count_include_pad=1, **where)


def _global_pool(g: _Graph) -> str:
    return g.node("ReduceMean", "X", g.axes(2, 3), keepdims=0)


_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "max": "Max", "min": "Min"}


def _elementwise(g: _Graph) -> str:
    y, *others = g.job.workload.program.inputs
    rest = iter(others)
    for op in (op.strip() for op in g.job.params["ops"].split(",") if op.strip()):
        y = g.node(_BINARY[op], y, next(rest)) if op in _BINARY else g.unary(op, y)
    return y


def _reduce(g: _Graph) -> str:
    X, wanted = g.job.arrays["X"], g.output.dtype
    x = "X" if X.dtype == wanted else g.node("Cast", "X", to=helper.np_dtype_to_tensor_dtype(wanted))
    op = f"Reduce{g.job.params['op'].capitalize()}"
    return g.node(op, x, g.axes(g.job.params["axis"]), keepdims=int(X.ndim == 1))


_WRITERS: Mapping[str, Callable[[_Graph], str]] = {
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
