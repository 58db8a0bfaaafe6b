"""Examples of every ONNX operator that is converted: models of one node, with dimensions n and m."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(0)
LATEST = 23


def w(*shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    """Weights."""
    return RNG.uniform(low, high, shape).astype("float32")


def i(*values: int) -> np.ndarray:
    """Integers, such as axes and shapes."""
    return np.array(values, "int64")


@dataclass(frozen=True)
class OnnxExample:
    """One node: inputs are lists of extents (tensors at run time), arrays (weights) or None (left out)."""

    operator: str
    inputs: Sequence[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = LATEST
    dtype: str = "float32"
    low: float = -2.0
    high: float = 2.0
    lacking: bool = False  # whether onnx's evaluator lacks it, or has it wrong, so that onnxruntime must do

    def __str__(self) -> str:
        given = ",".join(str(x) if isinstance(x, list) else "w" if x is not None else "-" for x in self.inputs)
        return f"{self.operator}{self.opset}({given}){self.attributes or ''}".replace(" ", "")

    def model(self) -> Any:
        """The model."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        names = [f"x{number}" if x is not None else "" for number, x in enumerate(self.inputs)]
        infos = [
            helper.make_tensor_value_info(name, kind, [e if e != "" else None for e in x])
            for name, x in zip(names, self.inputs, strict=True)
            if isinstance(x, list)
        ]
        held = [numpy_helper.from_array(np.asarray(x), n) for n, x in zip(names, self.inputs) if _is_array(x)]
        results = [f"y{number}" for number in range(self.outputs)]
        node = helper.make_node(self.operator, names, results, name="the_node", **self.attributes)
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ()) for name in results]
        graph = helper.make_graph([node], "one", infos, outputs, held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)

    def arguments(self, sizes: dict[str, int], seed: int = 0) -> list[np.ndarray]:
        """Random inputs of some size."""
        rng = np.random.default_rng(seed)
        shapes = [[sizes.get(e, e) for e in x] for x in self.inputs if isinstance(x, list)]
        if self.dtype == "bool":
            return [rng.random(shape) < 0.5 for shape in shapes]
        return [rng.uniform(self.low, self.high, shape).astype(self.dtype) for shape in shapes]


def _is_array(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic))


E = OnnxExample
X, IMAGE = ["n", "m"], ["n", 3, "m", 8]
SAME = dict(auto_pad="SAME_UPPER", strides=[2, 2])
HALF = dict(low=0.1)


def pointwise() -> list[OnnxExample]:
    """Functions, arithmetic, logic, conversions."""
    plain = "Abs Ceil Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity LeakyRelu Neg Relu Round Sigmoid Sin"
    plain += " Softplus Tanh Dropout"
    pairs = "Add Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mul Sub"
    return [
        *(E(name, [X]) for name in plain.split()),
        *(E(name, [X], low=0.1) for name in ("Log", "Reciprocal", "Sqrt")),
        *(E(name, [X, X]) for name in pairs.split()),
        *(E(name, [X, np.float32(0.5)]) for name in pairs.split()),
        *(E(name, [["n", 4], w(4)]) for name in ("Add", "Mul")),
        *(E(name, [X, ["n", 1]], dtype="bool") for name in ("And", "Or", "Xor")),
        E("Add", [["n"], w(1, 1, 1)]), E("Sub", [np.float32(1), X]), E("Add", [X, X], dtype="int64"),
        E("Abs", [X], dtype="int64"), E("Not", [X], dtype="bool"), E("Max", [X]), E("Min", [X, X, X]),
        E("Sum", [X, X, X]), E("Mean", [X, X, ["n", 1]]),
        E("Pow", [X, np.float32(2)]), E("Pow", [X, np.float32(0.5)], **HALF), E("Pow", [X, np.array([3.0], "float32")]),
        E("Clip", [X, np.float32(-1), np.float32(1)]), E("Clip", [X, None, np.float32(1)]), E("Clip", [X]),
        E("Clip", [X], dict(min=-0.5, max=0.5), opset=6),
        E("Gelu", [X], dict(approximate="tanh")), E("Swish", [X], opset=24), E("Swish", [X], dict(alpha=1.5), opset=24),
        E("LeakyRelu", [X], dict(alpha=0.3)), E("Elu", [X], dict(alpha=0.7)), E("PRelu", [["n", 3], w(3)]),
        E("HardSigmoid", [X], dict(alpha=0.3, beta=0.4)),
        E("Where", [np.array([True, False, True]), ["n", 3], ["n", 1]]),
        E("Where", [np.array([True, False, True]), ["n", 3], np.float32(-np.inf)]),
        E("Cast", [X], dict(to=TensorProto.INT64)), E("Cast", [X], dict(to=TensorProto.BOOL)),
        E("Cast", [X], dict(to=TensorProto.FLOAT)), E("CastLike", [X, i(1)]),
    ]  # fmt: skip


def shapes() -> list[OnnxExample]:
    """What moves elements."""
    return [
        E("Shape", [X]), E("Shape", [["n", 3, "m"]], dict(start=1)), E("Size", [X]),
        E("ConstantOfShape", [i(2, 3)]), E("ConstantOfShape", [i(20, 30)], dict(
            value=helper.make_tensor("v", TensorProto.INT64, [1], [7]))),
        E("Range", [i(2)[0], i(9)[0], i(3)[0]]), E("Expand", [["n", 1], i(2, 1, 4)]), E("Expand", [w(1, 3), i(2, 1)]),
        E("Expand", [w(1, 3), i(200, 1)]),
        E("Reshape", [["n", "m", 4], i(0, -1)]), E("Reshape", [["n", 6], i(-1, 3)]),
        E("Reshape", [["n", 6], i(0, 2, 3)]),
        E("Flatten", [["n", 2, "m", 3]]), E("Flatten", [["n", 2, "m"]], dict(axis=2)), E("Flatten", [X], dict(axis=0)),
        E("Flatten", [["n", 2, "m"]], dict(axis=-1)),
        E("Squeeze", [["n", 1, "m", 1], i(1)]), E("Squeeze", [["n", 1, 3, 1]], opset=11, attributes=dict(axes=[-1])),
        E("Squeeze", [[2, 1, 3, 1]]), E("Unsqueeze", [X, i(0, -1)]), E("Unsqueeze", [X], dict(axes=[1]), opset=11),
        E("Transpose", [["n", 2, "m"]], dict(perm=[2, 0, 1])), E("Transpose", [X]),
        E("DepthToSpace", [["n", 8, "m", 3]], dict(blocksize=2)),
        E("DepthToSpace", [["n", 8, "m", 3]], dict(blocksize=2, mode="CRD")),
        E("Tile", [X, i(2, 3)]), E("Tile", [X, i(1, 1)]),
        E("Concat", [X, X, ["n", 2]], dict(axis=1)), E("Concat", [X], dict(axis=0)),
        E("Concat", [["n", 4], w(0, 4)], dict(axis=0)),
        E("Split", [["n", 6], i(1, 2, 3)], dict(axis=1), outputs=3),
        E("Split", [["n", 7]], dict(axis=-1, num_outputs=3), outputs=3), E("Split", [[6, "m"]], outputs=2, opset=13),
        E("Split", [["n", 6]], dict(axis=1, split=[2, 4]), outputs=2, opset=11),
        E("Slice", [["n", 9], i(1), i(7), i(1), i(2)]), E("Slice", [["n", 9], i(-3), i(2**62), i(1)]),
        E("Slice", [["n", 9, "m"], i(0, 2), i(1, -1)]), E("Slice", [["n", 9], i(-20), i(20), i(-1)]),
        E("Slice", [["n", 9]], dict(starts=[1], ends=[5], axes=[1]), opset=9),
        E("Gather", [["n", 9], np.array(2)], dict(axis=1)), E("Gather", [["n", 9], np.array(-1)], dict(axis=1)),
        E("Gather", [["n", 9], i(1, 5, -2)], dict(axis=1)), E("Gather", [[9, "m"], np.array([[1, 2], [0, 8]])]),
        E("Trilu", [X]), E("Trilu", [X, np.array(1)], dict(upper=0)),
        E("Pad", [X, i(1, 0, 2, 3)]), E("Pad", [X, i(1, 2), np.float32(5), i(-1)]),
        E("Pad", [["n", 9], i(0, -2, 1, -3)], lacking=True),
        E("Pad", [X], dict(pads=[0, 1, 0, 2], value=1.5), opset=10),
    ]  # fmt: skip


def layers() -> list[OnnxExample]:
    """Products, normalisations, attention, reductions."""
    heads = [["n", 4, "m", 8]]
    return [
        E("MatMul", [["n", "m", 8], w(8, 5)]), E("MatMul", [["n", 1, 3, "m"], [2, "m", 4]]),
        E("MatMul", [["m"], ["m", 4]]), E("MatMul", [["n", "m"], ["m"]]), E("MatMul", [w(3, 4), [4, "m"]]),
        E("Gemm", [["n", 8], w(8, 5), w(5)]), E("Gemm", [["n", 8], w(5, 8), w(5)], dict(transB=1)),
        E("Gemm", [[8, "n"], w(5, 8), w(5)], dict(transA=1, transB=1, alpha=0.5, beta=2.0)),
        E("Gemm", [["n", 8], w(8, 5)]), E("Gemm", [["n", 8], w(8, 5), w(1, 5)]),
        E("Gemm", [["n", 8], w(8, 5), np.float32(3)]), E("Gemm", [["n", 5], w(5, 5), w(1)], dict(transB=1)),
        E("BatchNormalization", [IMAGE, w(3), w(3), w(3), w(3, low=0.1)]),
        E("BatchNormalization", [["n", 3], w(3), w(3), w(3), w(3, low=0.1)], dict(epsilon=1e-3), opset=9, lacking=True),
        E("LayerNormalization", [["n", "m", 6], w(6), w(6)]), E("LayerNormalization", [["n", "m", 6], w(6)]),
        E("LayerNormalization", [["n", 4, 6], w(4, 6), w(4, 6)], dict(axis=1, epsilon=1e-2)),
        E("RMSNormalization", [["n", "m", 6], w(6)]), E("InstanceNormalization", [IMAGE, w(3), w(3)]),
        E("GroupNormalization", [["n", 4, "m"], w(4), w(4)], dict(num_groups=2)),
        E("Softmax", [["n", "m", 3]]), E("Softmax", [["n", "m", 3]], dict(axis=1)),
        E("Softmax", [["n", "m", 3]], opset=11, lacking=True), E("LogSoftmax", [["n", "m"]]),
        E("LogSoftmax", [["n", "m"]], opset=12),
        E("Attention", heads * 3), E("Attention", heads * 3, dict(is_causal=1, scale=0.3)),
        E("Attention", [*heads * 3, ["m", "m"]]),
        E("Attention", [["n", 4, "m", 8], ["n", 2, "m", 8], ["n", 2, "m", 8]]),
        E("Attention", [["n", 3, 8], ["n", "m", 8], ["n", "m", 8]], dict(q_num_heads=2, kv_num_heads=2)),
        *(E(f"Reduce{name}", [["n", 4, "m"], i(1, -1)]) for name in ("Mean", "Sum", "Max", "Min", "L2", "SumSquare")),
        E("ReduceMean", [["n", 4, "m"]], dict(axes=[1], keepdims=0), opset=13), E("ReduceSum", [X], dict(keepdims=0)),
        E("ReduceSum", [X], dict(noop_with_empty_axes=1)),
        E("GlobalAveragePool", [IMAGE]), E("GlobalAveragePool", [["n", 3, "m"]]), E("GlobalMaxPool", [IMAGE]),
    ]  # fmt: skip


def windows() -> list[OnnxExample]:
    """Convolutions, pooling, resizing."""
    nearest = dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    three, two = dict(kernel_shape=[3, 3]), dict(kernel_shape=[2, 2], strides=[2, 2])
    scales = np.array([1, 1, 2, 3], "float32")
    return [
        E("Conv", [["n", 3, "m", 8], w(4, 3, 2, 3), w(4)]), E("Conv", [["n", 3, 8], w(4, 3, 3)], dict(pads=[1, 1])),
        E("Conv", [["n", 4, "m", 9], w(8, 2, 2, 3)], dict(group=2, strides=[1, 2], dilations=[1, 2], pads=[1, 2] * 2)),
        E("Conv", [["n", 3, "m", 8], w(4, 3, 3, 3)], dict(pads=[1, 0, 2, 1])),
        E("Conv", [["n", 3, 7, 8], w(4, 3, 3, 3)], SAME), E("Conv", [["n", 3, 7, 8], w(4, 3, 4, 3)],
            dict(auto_pad="SAME_LOWER")),
        E("Conv", [["n", 3, "m", 8], w(4, 3, 1, 1)], dict(auto_pad="VALID")),
        E("ConvTranspose", [["n", 3, "m", 5], w(3, 4, 2, 2), w(4)], dict(strides=[2, 2])),
        E("ConvTranspose", [["n", 3, "m", 5], w(3, 4, 3, 3), w(4)], dict(strides=[2, 2], pads=[1, 1, 1, 1])),
        E("ConvTranspose", [["n", 3, "m", 5], w(3, 4, 3, 3)],
            dict(strides=[2, 2], pads=[1] * 4, output_padding=[1, 0])),
        E("ConvTranspose", [["n", 3, "m"], w(3, 4, 3)], dict(strides=[2])),
        E("MaxPool", [["n", 3, "m", 8]], dict(kernel_shape=[2, 3])),
        E("MaxPool", [["n", 3, 8, 8]], two | dict(ceil_mode=1)),
        E("MaxPool", [["n", 3, 7, 8]], dict(**three, strides=[2, 2], pads=[1, 1, 1, 1])),
        E("MaxPool", [["n", 3, 7, 8]], dict(**three, strides=[2, 2], ceil_mode=1)), E("MaxPool", [["n", 3, 9]],
            dict(kernel_shape=[3], pads=[0, 1]), lacking=True),
        E("MaxPool", [["n", 3, 7, 8]], three | SAME),
        E("AveragePool", [["n", 3, "m", 8]], dict(kernel_shape=[2, 3], strides=[1, 2])),
        E("AveragePool", [["n", 3, "m", 8]], dict(**three, pads=[1] * 4, count_include_pad=1)),
        E("AveragePool", [["n", 3, "m", 8]], dict(**three, pads=[1] * 4)),
        E("AveragePool", [["n", 3, 9]], dict(kernel_shape=[3], pads=[0, 1])),
        E("Resize", [["n", 3, "m", 4], None, scales], nearest), E("Resize", [["n", 3, "m", 4], None, scales]),
        E("Resize", [[1, 3, 4, 5], None, None, i(1, 3, 8, 10)], nearest),
        E("Resize", [[1, 3, 4, 5], None, None, i(1, 3, 7, 13)], nearest),
        E("Resize", [[1, 3, 4, 5], None, None, i(8, 10)], nearest | dict(axes=[2, 3])),
        E("Resize", [["n", 3, "m"], None, np.array([1, 1, 2], "float32")], nearest),
        E("Upsample", [["n", 3, "m", 4], scales], opset=9),
        E("Upsample", [["n", 3, "m", 4]], dict(scales=[1.0, 1.0, 2.0, 3.0]), opset=7, lacking=True),
    ]  # fmt: skip


def onnx_examples() -> list[OnnxExample]:
    """At least one for every operator."""
    return [*pointwise(), *shapes(), *layers(), *windows()]
