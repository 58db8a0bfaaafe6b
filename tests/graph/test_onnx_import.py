"""Operators of ONNX in a graph: every converter gives what onnx's own evaluator gives, at several sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_examples import OnnxExample, onnx_examples

from searchlab.errors import GraphError
from searchlab.graph import evaluate_graph, from_onnx, verify_graph
from searchlab.graph.onnx_import import ONNX_CONVERTERS

EXAMPLES = onnx_examples()


def evaluator(model: Any, lacking: bool = False) -> Any:
    if not lacking:
        return ReferenceEvaluator(model)
    return pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString())


def compare(model: Any, module: Any, arguments: list[np.ndarray], lacking: bool = False) -> None:
    names = [info.name for info in model.graph.input]
    wanted = evaluator(model, lacking).run(None, dict(zip(names, arguments, strict=True)))
    found = evaluate_graph(module, *arguments)
    for got, want in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        want = np.asarray(want)
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_converted_operator_is_that_of_onnx(example: OnnxExample) -> None:
    model = example.model()
    module = from_onnx(model)
    verify_graph(module)
    for sizes in ({"n": 1, "m": 3}, {"n": 4, "m": 6}):
        compare(model, module, example.arguments(sizes), example.lacking)


def test_every_converter_has_an_example() -> None:
    assert {e.operator for e in EXAMPLES} == set(ONNX_CONVERTERS)


# --- models of several nodes ------------------------------------------------------------------------------------------


def model_of(
    nodes: list[Any], inputs: dict[str, Any], outputs: list[str], held: dict[str, np.ndarray] | None = None, **more: Any
) -> Any:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ()) for name in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in (held or {}).items()]
    graph = helper.make_graph(nodes, "several", infos, results, tensors)
    imports = [helper.make_opsetid("", 21), *(helper.make_opsetid(d, 1) for d in ("mine", "com.microsoft"))]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **more)


def made(text: str, **attributes: Any) -> Any:
    """A node: `y, z = Split x w`."""
    outputs, operator, *inputs = [part.strip() for part in text.replace(" = ", "|").replace(" ", "|", 99).split("|")]
    return helper.make_node(operator, [i if i != "-" else "" for i in inputs], outputs.split(","), **attributes)


def test_shapes_are_computed_while_importing() -> None:
    """Heads split off as exporters write it: the shape of x, one of its extents, a product, a new shape."""
    nodes = [
        made("s = Shape x"), made("n = Gather s zero", axis=0), made("m = Gather s one", axis=0),
        made("two_n = Mul n two"), made("a = Unsqueeze two_n axes"), made("b = Unsqueeze m axes"),
        made("shape = Concat a b four", axis=0), made("y = Reshape x shape"),
        made("range = Range zero two_n one"), made("column = Cast range", to=TensorProto.FLOAT),
        made("known = Equal shape shape"), made("wide = Where known shape shape"), made("z = Expand scalar wide"),
        made("last = Slice x start end axes1"), made("count = Size x"),
        made("floats = Cast count", to=TensorProto.FLOAT),
        made("w = Mul x floats"),
    ]  # fmt: skip
    held = {
        "zero": np.array(0), "one": np.array(1), "two": np.array(2), "axes": np.array([0]), "four": np.array([4]),
        "scalar": np.float32(3), "start": np.array([-2]), "end": np.array([2**63 - 1]), "axes1": np.array([1]),
    }  # fmt: skip
    model = model_of(nodes, {"x": ["n", "m", 8]}, ["y", "column", "z", "last", "floats", "w"], held)
    module = from_onnx(model, sizes={"m": (2, 64)})
    calls = [b.call.callee for b in module.functions["main"].bindings]  # everything about shapes is gone
    assert calls == ["reshape", "arange", "cast", "full", "slice", "mul", "full", "tuple"]
    for n, m in ((1, 2), (3, 7)):
        compare(model, module, [np.random.default_rng(0).random((n, m, 8), "float32")])


def test_functions_of_the_model_and_of_onnx_are_inlined() -> None:
    body = [made("h = Add x x"), made("y = Elu h")]
    body[1].attribute.append(AttributeProto(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT))
    imports = [helper.make_opsetid("", 21)]
    twice = helper.make_function("mine", "Twice", ["x"], ["y"], body, imports, ["slope"])
    nodes = [made("a = Twice x", domain="mine", slope=0.5), made("y = ThresholdedRelu a", alpha=0.25)]
    model = model_of(nodes, {"x": ["n", 3]}, ["y"], functions=[twice])
    compare(model, from_onnx(model), [np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)], lacking=True)


def test_a_branch_is_chosen_if_its_condition_is_known() -> None:
    def branch(name: str, operator: str) -> Any:
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"])
        return helper.make_graph([helper.make_node(operator, ["x"], [name])], name, [], [out])

    nodes = [
        made("s = Shape x"), made("n = Gather s zero"), made("big = Greater n zero"),
        made("y = If big", then_branch=branch("t", "Relu"), else_branch=branch("e", "Neg")),
    ]  # fmt: skip
    model = model_of(nodes, {"x": ["n"]}, ["y"], {"zero": np.array(0)})
    compare(model, from_onnx(model), [np.array([-1, 2], "float32")])


def test_weights_are_shared_among_functions() -> None:
    model = model_of(
        [made("y = MatMul x layer.weight")], {"x": ["n", 2]}, ["y"], {"layer.weight": np.eye(2, 3, dtype="f")}
    )
    module = from_onnx(model, name="first")
    module = from_onnx(model, name="second", sizes={"n": 4}, into=module)
    assert list(module.functions) == ["first", "second"] and list(module.constants) == ["layer_weight"]
    assert evaluate_graph(module, np.ones((4, 2), "float32"), function="second").shape == (4, 3)


def test_dimensions_are_sizes_expressions_or_names_of_their_own() -> None:
    nodes = [made("y = Relu x"), made("z = Relu past"), made("v = Relu odd")]
    inputs = {"x": ["n", "m"], "past": ["n + 2*m", "m - 1"], "odd": ["unk__1 (?)", None]}
    module = from_onnx(model_of(nodes, inputs, ["y", "z", "v"]), sizes={"m": (2, None)})
    shapes = [str(p.annotation) for p in module.functions["main"].parameters]
    assert shapes == ["float32[n, m]", "float32[m*2 + n, m - 1]", "float32[unk__1____, odd_1]"]


def refused(model: Any, **options: Any) -> str:
    with pytest.raises(GraphError) as caught:
        from_onnx(model, **options)
    return str(caught.value)


def test_what_is_not_covered_is_refused_by_name_all_at_once() -> None:
    nodes = [
        helper.make_node("CumSum", ["x", "axis"], ["a"], name="sums"), made("b = Relu a"),
        helper.make_node("FusedGemm", ["x", "x"], ["y"], domain="com.microsoft"),
    ]  # fmt: skip
    message = refused(model_of(nodes, {"x": ["n", 3]}, ["b", "y"], {"axis": np.array(0)}))
    assert message == (
        "ONNX model 'several': 2 operators are not covered: CumSum at node 'sums'; "
        "com.microsoft.FusedGemm at the node that makes 'y'"
    )


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (made("y = Reshape x x"), "Reshape at the node that makes 'y': the shape depends on data"),
        (made("y = Resize x - two", mode="linear"), "Resize at the node that makes 'y': mode linear"),
        (made("y = MaxPool x", kernel_shape=[2, 2], dilations=[2, 2]), "dilation = (2, 2) is not covered"),
        (made("y = Pow x x"), "the exponent must be numbers that the model holds"),
        (made("y = Pad x two", mode="reflect"), "mode reflect; constant is covered"),
        (made("a,y = MaxPool x", kernel_shape=[2, 2]), "the result 'y' of MaxPool at the node that makes 'a'"),
        (made("y = MatMul x x"), "matmul: columns of the first and rows of the second operand: 8 and m"),
    ],
    ids=lambda p: p.op_type if hasattr(p, "op_type") else "",
)
def test_a_node_that_is_not_covered_is_named(node: Any, said: str) -> None:
    model = model_of([node], {"x": ["n", 3, "m", 8]}, ["y"], {"two": np.array([1, 1, 2, 2], "float32")})
    assert said in refused(model)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    assert "not an ONNX model" in refused(b"no model")
    assert "there is no file" in refused(tmp_path / "none.onnx")
    assert "takes a path, bytes or an onnx.ModelProto, not int" in refused(3)
    model = model_of([made("y = Relu x")], {"x": ["rows"]}, ["y"])
    assert "the model has no dimension 'row'" in refused(model, sizes={"row": 3})
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    assert str(from_onnx(tmp_path / "a.onnx")) == str(from_onnx(model)) == str(from_onnx(model.SerializeToString()))
    assert "onnx refuses it" in refused(model_of([made("y = Relu z")], {"x": ["n"]}, ["y"]))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.COMPLEX64
    assert "the input 'x' has dtype complex64" in refused(model)


def test_arrangements_of_sizes_are_those_of_arrays() -> None:
    nodes = [
        made("s = Shape x"), made("row = Unsqueeze s zero"), made("flat = Squeeze row zero"),
        made("table = Reshape s two"), made("product = ReduceProd flat", keepdims=0), made("less = Neg product"),
        made("part = Slice s zero one"), made("three = Concat part part zero", axis=0), made("most = Max s one"),
        made("rest = Mod product one"), made("halves = Div product one"),
    ]  # fmt: skip
    held = {"zero": np.array([0]), "one": np.array([1]), "two": np.array([-1, 1])}
    results = ["row", "flat", "table", "less", "three", "most", "halves", "rest"]
    model = model_of(nodes, {"x": ["n", "m"]}, results, held)
    compare(model, from_onnx(model), [np.zeros((2, 5), "float32")])
