"""Calls of libraries in place of operators: which chains match, on which conditions, and that results are the same."""

import importlib.util

import numpy as np
import pytest

from benchmarks.graph_models import transformer_layers
from searchlab.errors import GraphError
from searchlab.graph import (
    GRAPH_LIBRARIES,
    GraphBuilder,
    GraphLibrary,
    GraphModule,
    LibraryCall,
    LibraryPattern,
    TensorType,
    dispatch_libraries,
    evaluate_graph,
    graph_from_json,
    graph_to_json,
    legalise,
    library,
    library_function,
    verify_graph,
)
from searchlab.graph.passes.memory_plan import plan_memory
from searchlab.ir import size

n, m = size("n"), size("m")
LIBRARIES = ["numpy", *(["torch"] if importlib.util.find_spec("torch") else [])]
RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype("float32")


def layer(rows: object = 32, ranges: dict | None = None, dtype: str = "float32", operator: str = "linear"):
    b = GraphBuilder("main", ranges=ranges or {})
    x = b.input("x", (rows, 8), dtype)
    w = b.constant("w", array(4, 8).astype(dtype) if operator == "linear" else array(8, 4).astype(dtype))
    bias = b.constant("bias", array(4).astype(dtype))
    return b, b.op(operator, x, w, bias, name="layer")


def called(module: GraphModule) -> dict[str, str]:
    return {name: c.function for name, c in module["main"].calls.items() if isinstance(c, LibraryCall)}


def checked(module: GraphModule, *arrays: np.ndarray, libraries=("numpy",)) -> GraphModule:
    """The module with calls of libraries, which computes the same, before and after legalisation."""
    made = dispatch_libraries(module, libraries)
    verify_graph(made)
    wanted = evaluate_graph(module, *arrays)
    np.testing.assert_allclose(evaluate_graph(made, *arrays), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(evaluate_graph(legalise(made), *arrays), wanted, rtol=1e-5, atol=1e-5)
    return made


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("operator", ["linear", "dense"])
def test_layers_become_calls(name: str, operator: str) -> None:
    b, y = layer(operator=operator)
    made = checked(b.build(b.exp(y)), array(32, 8), libraries=[name])
    assert called(made) == {"layer": f"{name}.layer"}
    b = GraphBuilder()
    made = checked(b.build(b.linear(b.input("x", (2, 20, 8)), b.constant("w", array(4, 8)))), array(2, 20, 8))
    assert called(made) == {"linear": "numpy.layer"}  # without a bias, and with a batch: 40 rows


@pytest.mark.parametrize("name", LIBRARIES)
def test_products_and_attention_become_calls(name: str) -> None:
    b = GraphBuilder()
    x, y = b.input("x", (3, 16, 8)), b.input("y", (3, 8, 5))
    made = checked(b.build(b.matmul(x, y)), array(3, 16, 8), array(3, 8, 5), libraries=[name])
    assert called(made) == {"matmul": f"{name}.matmul"}
    chosen = [{name: {"attention": True}}] if name == "numpy" else [name]
    for options in ({}, {"causal": True}, {"scale": 0.3}, {"grouped": True}):
        b = GraphBuilder()
        heads = 2 if options.get("grouped") else 4
        shapes = [(4, 16, 8), (heads, 16, 8), (heads, 16, 6)]
        q, k, v = (b.input(word, s) for word, s in zip("qkv", shapes, strict=True))
        made = checked(b.build(b.attention(q, k, v, **options)), *(array(*s) for s in shapes), libraries=chosen)
        assert called(made) == {"attention": f"{name}.attention"}


def test_masks_of_attention() -> None:
    for dtype in ("bool", "float32"):
        b = GraphBuilder()
        q, mask = b.input("q", (16, 8)), b.input("mask", (16, 16), dtype)
        given = np.tri(16, dtype=bool) if dtype == "bool" else array(16, 16)
        checked(b.build(b.attention(q, q, q, mask)), array(16, 8), given, libraries=[{"numpy": {"attention": True}}])


def test_chains_are_one_call() -> None:
    b, y = layer()
    made = checked(b.build(b.relu(y, name="y")), array(32, 8))
    assert called(made) == {"y": "numpy.layer"} and list(made["main"].calls) == ["y"]
    b, y = layer()
    other = b.input("other", (32, 4))
    made = checked(
        b.build(b.add(other, y, name="y")), array(32, 8), array(32, 4)
    )  # the layer may be the second operand
    assert called(made) == {"y": "numpy.layer"} and dict(made["main"].calls["y"].attributes)["then"] == "add"


def test_a_result_that_others_use_stays() -> None:
    b, y = layer()
    made = checked(b.build(b.add(b.relu(y), y)), array(32, 8))
    assert called(made) == {"layer": "numpy.layer"} and "relu" in made["main"].calls


def test_a_sum_that_broadcasts_is_not_part_of_the_call() -> None:
    b, y = layer()
    made = checked(b.build(b.add(y, b.input("row", (4,)), name="y")), array(32, 8), array(4))
    assert called(made) == {"layer": "numpy.layer"}


@pytest.mark.parametrize(
    ("rows", "ranges", "found"),
    [(15, {}, False), (16, {}, True), (n, {}, False), (n, {n: (16, None)}, True), (n, {n: (1, 64)}, False),
     (n * 16, {}, True), (n, {n: (40, 50)}, True)],
)  # fmt: skip
def test_conditions_are_proved(rows: object, ranges: dict, found: bool) -> None:
    b, y = layer(rows, ranges)
    assert bool(called(dispatch_libraries(b.build(y), ["numpy"]))) == found


def test_options_of_a_library() -> None:
    b, y = layer(4)
    module = b.build(y)
    assert called(dispatch_libraries(module, [{"numpy": {"rows": 4}}])) and not called(
        dispatch_libraries(module, [{"numpy": {"rows": 5}}])
    )
    with pytest.raises(GraphError, match="unknown option 'row'; did you mean 'rows'"):
        dispatch_libraries(module, [{"numpy": {"row": 4}}])
    with pytest.raises(GraphError, match="unknown library 'numpi'; did you mean 'numpy'"):
        dispatch_libraries(module, ["numpi"])
    with pytest.raises(GraphError, match="rows = 0; at least 1 is accepted"):
        dispatch_libraries(module, [{"numpy": {"rows": 0}}])


def test_other_types_and_unknown_shapes_are_left_alone() -> None:
    b, y = layer(dtype="float16")
    assert not called(dispatch_libraries(b.build(y), ["numpy"]))
    b = GraphBuilder()
    x = b.input("x", TensorType(dtype="float32", rank=2))
    assert not called(dispatch_libraries(b.build(b.linear(x, b.constant("w", array(4, 8)))), ["numpy"]))


def test_earlier_libraries_take_precedence() -> None:
    b, y = layer()
    module = b.build(y)
    if len(LIBRARIES) > 1:
        assert called(dispatch_libraries(module, ["torch", "numpy"])) == {"layer": "torch.layer"}
    assert called(dispatch_libraries(module, ["numpy", *LIBRARIES])) == {"layer": "numpy.layer"}


def test_a_library_of_the_user() -> None:
    @library("tests.square_relu")
    def square_relu(x: np.ndarray, out: np.ndarray) -> None:
        np.maximum(x * x, 0, out=out)

    @GRAPH_LIBRARIES.add
    class SquareLibrary(GraphLibrary):
        name = "tests"

        def patterns(self) -> list[LibraryPattern]:
            return [LibraryPattern(("square", "relu"), "tests.square_relu")]

    b = GraphBuilder()
    module = b.build(b.relu(b.square(b.input("x", (3,))), name="y"))
    assert called(checked(module, array(3), libraries=["tests"])) == {"y": "tests.square_relu"}


def test_functions_are_found_through_their_library() -> None:
    b, y = layer()
    made = dispatch_libraries(b.build(y), ["numpy"])
    constants = {name: c.array for name, c in made.constants.items()}
    assert graph_from_json(graph_to_json(made), constants) == made
    with pytest.raises(GraphError, match="unknown library function 'nowhere.gemm'"):
        library_function("nowhere.gemm")
    with pytest.raises(GraphError, match="unknown library function 'numpy.gem'"):
        library_function("numpy.gem")


def test_a_transformer_on_libraries() -> None:
    module = transformer_layers(32, 2, 4, longest=64)
    assert not called(dispatch_libraries(module, ["numpy"]))  # the length may be 1
    made = checked(module, array(20, 32), libraries=[{"numpy": {"rows": 1}}])
    assert sum(f == "numpy.layer" for f in called(made).values()) == 12
    assert sum(f == "numpy.matmul" for f in called(made).values()) == 4
    assert plan_memory(made).arena is not None
