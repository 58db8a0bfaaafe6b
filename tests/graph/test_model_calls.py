"""How compiled models are called: kinds of arrays, functions of functions, sizes that are bound and checked, memory."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from searchlab.errors import GraphError
from searchlab.graph import (
    GraphBuilder,
    GraphModule,
    ShapeType,
    TensorType,
    TupleType,
    compile,
    evaluate_graph,
    library,
    tensor,
)
from searchlab.graph.passes.memory_plan import plan_memory
from searchlab.graph.passes.memory_pool import allocation_log
from searchlab.ir import size
from searchlab.ir.expr import Const

n, m, k = size("n"), size("m"), size("k")


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, shape).astype("float32") for shape in shapes]


def agree(module: GraphModule, *args: object, **options: object) -> None:
    got, want = (
        compile(module, options=options)["main"].observed(*args, poison=True).result,
        evaluate_graph(module, *args),
    )
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, want)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def chain() -> GraphModule:
    """Values of several sizes, of which some are views, and one is returned."""
    b = GraphBuilder(ranges={n: (1, 16)})
    x = b.input("x", (n, 6))
    y = b.tanh(x) + 1.0
    z = b.reshape(y, shape=(n * 6,))
    s = b.softmax(b.concat(z, z, axis=0))
    return b.build(b.exp(s), b.sum(y, axes=(1,)))


# --- arrays -----------------------------------------------------------------------------------------------------------


def test_torch_tensors_in_and_out() -> None:
    torch = pytest.importorskip("torch")
    model = compile(chain())
    x = torch.rand(4, 6, requires_grad=True)
    y, s = model(x)
    wanted = model(x.detach().numpy())
    assert isinstance(y, torch.Tensor) and y.dtype == torch.float32 and not y.requires_grad
    assert np.array_equal(y.numpy(), wanted[0]) and np.array_equal(s.numpy(), wanted[1])
    assert np.array_equal(model(x.detach().t().contiguous().t())[0].numpy(), wanted[0])


def test_bfloat16_of_torch() -> None:
    torch = pytest.importorskip("torch")
    b = GraphBuilder()
    x = b.input("x", (n, 8), "bfloat16")
    model = compile(b.build(b.relu(x)))
    given = torch.randn(3, 8).to(torch.bfloat16)
    assert torch.equal(model(given), given.relu())
    with pytest.raises(GraphError, match="main: x holds float16, expected bfloat16"):
        model(given.to(torch.float16))


class Exchanged:
    """An array that is known only by DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)  # type: ignore[arg-type]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __array_namespace__(self) -> object:
        class Namespace:
            @staticmethod
            def from_dlpack(array: np.ndarray) -> "Exchanged":
                return Exchanged(array)

        return Namespace


def test_anything_with_dlpack() -> None:
    model, (x,) = compile(chain()), arrays((4, 6))
    y, _ = model(Exchanged(x))
    assert isinstance(y, Exchanged) and np.array_equal(y.array, model(x)[0])


@pytest.mark.parametrize("change", [lambda x: np.asfortranarray(x), lambda x: x[:, ::2], lambda x: x.astype(">f4")])
def test_arrays_that_are_copied(change: object) -> None:
    (x,) = arrays((4, 6))
    wide = np.repeat(x, 2, axis=1) if change(np.zeros((4, 12))).shape == (4, 6) else x  # type: ignore[operator]
    model = compile(chain())
    assert np.array_equal(model(change(wide))[0], model(x)[0])  # type: ignore[operator]


def test_results_outlive_the_model() -> None:
    model, (x,) = compile(chain()), arrays((4, 6))
    first, _ = model(x)
    kept = first.copy()
    second, _ = model(x + 1)
    del model
    assert np.array_equal(first, kept) and not np.array_equal(first, second)
    first += 1  # writable


def test_several_threads() -> None:
    model, barrier = compile(chain()), threading.Barrier(4)
    inputs = [x for x in arrays(*((1 + i % 16, 6) for i in range(64)))]
    wanted = [model(x) for x in inputs]

    def run(part: int) -> None:
        barrier.wait()
        for at in range(part, 64, 4):
            for got, want in zip(model(inputs[at]), wanted[at], strict=True):
                assert np.array_equal(got, want)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_sizes_that_extents_determine_together() -> None:
    b = GraphBuilder(ranges={n: (1, 8)})
    x, y = b.input("x", (2 * n + 1, m)), b.input("y", (n, m + 3))
    module = b.build(b.relu(x), b.relu(y))
    agree(module, *arrays((7, 4), (3, 7)))
    model = compile(module)
    for shapes, text in {
        ((6, 4), (3, 7)): r"main: x: extent 0 is 6, expected n\*2 \+ 1 = 5",
        ((7, 4), (2, 7)): "main: y: extent 0 is 2, expected n = 3",
        ((7, 4), (3, 8)): r"main: y: extent 1 is 8, expected m \+ 3 = 7",
        ((19, 4), (9, 7)): "main: x: n = 9 is out of its range, 1 <= n <= 8",
        ((0, 4), (3, 7)): "main: x: n = -1 is out of its range, 1 <= n <= 8",
    }.items():
        with pytest.raises(GraphError, match=text):
            model(*arrays(*shapes))


def test_match_cast_checks_and_binds() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(dtype="float32", rank=2))
    y = b.match_cast(x, (n, 2 * m))
    module = b.build(b.sum(b.reshape(y, shape=(n, 2, m)), axes=(1,)))
    agree(module, *arrays((3, 8)))
    with pytest.raises(GraphError, match=r"main: match_cast = match_cast\(x, .*\): extent 1 is 7, expected m\*2 = 6"):
        compile(module)(*arrays((3, 7)))
    with pytest.raises(GraphError, match="main: x: extent 0 = 0 is out of its range, 1 <= it"):
        compile(module)(*arrays((0, 8)))


def test_functions_that_call_functions() -> None:
    b = GraphBuilder("inner", ranges={k: (1, 8)})
    x, w = b.input("x", (k, m)), b.input("w", (m,))
    module = b.build(b.softmax(x * w), b.sum(x, axes=(0,)))
    b = GraphBuilder("twice", module=module)
    x, w = b.input("x", (n, m)), b.input("w", (m,))
    first = b.call("inner", x, w)
    module = b.build(b.call("inner", first[0], first[1])[0])
    b = GraphBuilder("main", module=module)
    x = b.input("x", (n, 4))
    w = b.constant("scale", np.arange(4, dtype="float32"))
    module = b.build(b.call("twice", b.relu(x), w), b.call("twice", x, w))
    agree(module, *arrays((3, 4)))
    model = compile(module)
    assert list(model.functions) == ["main"]
    with pytest.raises(GraphError, match=r"k(_\d)? = 9 is out of its range, 1 <= k(_\d)? <= 8"):
        model(*arrays((9, 4)))


def test_shapes_and_tuples_as_arguments() -> None:
    b = GraphBuilder()
    pair = b.input("pair", TupleType((tensor((n,)), tensor((n, m)))))
    b.input("shape", ShapeType((k,)))
    x, y = pair[0], pair[1]
    module = b.build(b.expand(b.reshape(x, shape=(n, 1)), shape=(n, k)), y, pair)
    x, y = arrays((3,), (3, 2))
    got = compile(module)((x, y), (5,))
    assert got[0].shape == (3, 5) and np.array_equal(got[1], y) and np.array_equal(got[2][0], x)
    model = compile(module)
    for args, text in [
        (((x, y), (5, 6)), "main: shape has 2 axes, expected 1"),
        (((x,), (5,)), "main: pair: expected .* got 1 values"),
        (((x, y), 5), "main: shape: expected .*, a tuple of integers, got int"),
        (((x, y[:2]), (5,)), r"main: pair\[1\]: extent 0 is 2, expected n = 3"),
    ]:
        with pytest.raises(GraphError, match=text):
            model(*args)


def test_results_that_are_arguments_constants_views_and_the_same() -> None:
    b = GraphBuilder()
    x = b.input("x", (n, 4))
    c = b.constant("c", np.arange(6, dtype="float32"))
    y = b.relu(x)
    flat = b.reshape(y, shape=(4 * n,))
    module = b.build(x, c, y, flat, y, b.tanh(flat))
    (x,) = arrays((3, 4))
    agree(module, x)
    found = compile(module)(x)
    assert not any(np.may_share_memory(a, b) for i, a in enumerate(found) for b in (x, *found[:i]))


# --- library functions and memory -------------------------------------------------------------------------------------


@library("test.scaled")
def scaled(x: np.ndarray, y: np.ndarray, *, by: int, label: str) -> None:
    if label == "broken":
        raise ValueError("it is broken")
    y[...] = x * by


def with_library(label: str) -> GraphModule:
    b = GraphBuilder()
    x = b.input("x", (n, 4))
    y = b.call_library("test.scaled", b.relu(x), out=tensor((n, 4)), by=Const(2) * n, label=label)
    return b.build(b.tanh(y))


def test_library_functions() -> None:
    agree(with_library("fine"), *arrays((3, 4)))
    model = compile(with_library("broken"))
    for _ in range(2):  # the state of a failed run is used again
        with pytest.raises(GraphError, match=r"main: .* = library test.scaled\(.*\): it is broken") as e:
            model(*arrays((3, 4)))
    assert isinstance(e.value.__cause__, ValueError)


@pytest.mark.parametrize("policy", ["none", "pool", "symbolic", "bounds"])
def test_the_log_is_the_one_that_was_computed(policy: str) -> None:
    module = chain()
    model = compile(module, options={"memory": policy})
    series = [arrays((count, 6)) for count in (4, 9, 4, 1)]
    found = model["main"].observed_series(series, poison=True)
    plan = plan_memory(model.lowered, "main", policy)  # type: ignore[arg-type]
    wanted = allocation_log(plan, [{"n": 4}, {"n": 9}, {"n": 4}, {"n": 1}])
    assert [e for record in found for e in record.events] == [(e.event, e.storage, e.bytes) for e in wanted.events]
    for (x,), record in zip(series, found, strict=True):
        for got, want in zip(record.result, evaluate_graph(module, x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_too_much_memory_is_an_error() -> None:
    b = GraphBuilder()
    x = b.input("x", (n,))
    big = b.expand(b.reshape(x, shape=(n, 1)), shape=(n, 1 << 46))
    model = compile(b.build(b.sum(b.relu(big), axes=(1,))), options={"memory": "pool", "fuse": "never"})
    with pytest.raises(GraphError, match=r"main: memory for expand: \d+ bytes are not available"):
        model(np.ones(3, "float32"))


def test_upper_bounds_that_nobody_means() -> None:
    b = GraphBuilder(ranges={n: (1, 1 << 40)})
    module = b.build(b.exp(b.tanh(b.input("x", (n,)))))
    (x,) = arrays((5,))
    found = compile(module, options={"fuse": "never"})["main"].observed(x)
    assert found.events == (("allocate", "storage_0", 64), ("release", "storage_0", 64))
    np.testing.assert_allclose(found.result, np.exp(np.tanh(x)), rtol=1e-5)
