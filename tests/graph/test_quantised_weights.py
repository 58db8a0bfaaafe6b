"""Weights of 4 bits: packing, the operator, the pass, and what default schedules make of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.backend import compile
from searchlab.defaults import default_schedule
from searchlab.errors import GraphError
from searchlab.graph import (
    GraphBuilder,
    GraphModule,
    SizeFacts,
    evaluate_graph,
    legalise,
    operator_named,
    quantise_weights,
    tensor,
    verify_graph,
)
from searchlab.graph.ops.quantised_ops import packed, quantised, unpacked
from searchlab.ir import size
from searchlab.ir.program import Program
from searchlab.targets import detect, parse

n = size("n")


@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 4, 8, 32]), st.integers(1, 4), st.integers(1, 5))
def test_packing_keeps_every_number(seed: int, group: int, groups: int, outputs: int) -> None:
    q = np.random.default_rng(seed).integers(-8, 8, (group * groups, outputs)).astype(np.int8)
    data = packed(q, group)
    assert data.dtype == np.uint8 and data.shape == (group * groups // 2, outputs)
    assert (unpacked(data, group) == q).all()


@pytest.mark.parametrize("offsets", [False, True])
def test_quantised_weights_are_near(offsets: bool) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 5)).astype("float32")
    weights[:32, 1] = 0  # a group without a scale
    weights[32:, 2] = 3.5  # a group of one number
    data, scale, offset = quantised(weights, 32, offsets)
    q = unpacked(data, 32).reshape(2, 32, 5)
    found = q * scale[:, None] + (0 if offset is None else offset[:, None])
    # without offsets the end opposite to the largest weight may be cut off, by less than a step
    near = np.abs(scale)[:, None] * (0.5 if offsets else 1.0) + 1e-6
    assert (np.abs(found - weights.reshape(2, 32, 5)) <= near).all()


def layers(rng: np.random.Generator, rows: object = n) -> GraphModule:
    b = GraphBuilder("main", ranges={n: (1, 64)})
    x = b.input("x", (rows, 64))
    first, second = rng.standard_normal((96, 64)), rng.standard_normal((96, 40))
    h = b.relu(b.linear(x, b.constant("w1", first.astype("f")), b.constant("b1", rng.standard_normal(96).astype("f"))))
    y = b.dense(h, b.constant("w2", second.astype("f")))
    small = b.linear(y, b.constant("w3", rng.standard_normal((3, 40)).astype("f")))  # 40 inputs: no multiple of 32
    return b.build(small)


@pytest.mark.parametrize("offsets", [False, True])
def test_the_pass_replaces_layers_by_the_same_with_rounded_weights(offsets: bool) -> None:
    module = layers(np.random.default_rng(0))
    made = quantise_weights(module, group=32, offsets=offsets, least=1)
    verify_graph(made)
    called = [b.call.callee for b in made["main"].bindings]
    assert called == ["linear_q4", "add", "relu", "linear_q4", "linear"]
    assert {"w1", "w2"}.isdisjoint(made.constants) and {"b1", "w3", "w1_q4", "w1_scale"} <= set(made.constants)
    x = np.random.default_rng(1).standard_normal((5, 64)).astype("float32")
    # numpy with the weights that the constants stand for, decoded by the definition
    arrays = {name: held.array for name, held in made.constants.items()}

    def weights(name: str) -> np.ndarray:
        q = unpacked(arrays[f"{name}_q4"], 32).astype("float64").reshape(-1, 32, arrays[f"{name}_q4"].shape[1])
        table = q * arrays[f"{name}_scale"][:, None]
        return (table + (arrays[f"{name}_offset"][:, None] if offsets else 0)).reshape(-1, q.shape[-1])

    h = np.maximum(x @ weights("w1") + arrays["b1"], 0)
    wanted = h @ weights("w2") @ arrays["w3"].T
    for graph in (made, legalise(made)):
        np.testing.assert_allclose(evaluate_graph(graph, x), wanted, rtol=1e-4, atol=1e-3)
    exact = evaluate_graph(module, x)
    assert 0 < np.abs(wanted - exact).max() < 0.25 * np.abs(exact).max()


def test_weights_that_are_used_twice_are_quantised_once() -> None:
    b = GraphBuilder()
    x, w = b.input("x", (n, 32)), b.constant("w", np.eye(32, dtype="float32"))
    module = quantise_weights(b.build(b.linear(x, w), b.linear(b.relu(x), w), w), least=1)
    assert sorted(module.constants) == ["w", "w_q4", "w_scale"]  # w itself is a result


def test_small_layers_stay_and_nonsense_is_refused() -> None:
    module = layers(np.random.default_rng(0))
    assert str(quantise_weights(module)) == str(module)
    with pytest.raises(GraphError, match="bits = 3; weights are quantised to 4 bits"):
        quantise_weights(module, bits=3)
    with pytest.raises(GraphError, match="group = 5; a group has an even number"):
        quantise_weights(module, group=5)
    b = GraphBuilder()
    x, q, s = b.input("x", (n, 64)), b.input("q", (32, 5), "uint8"), b.input("s", (2, 5))
    with pytest.raises(GraphError, match="the groups and the inputs"):
        b.linear_q4(x, q, s, group=16)
    with pytest.raises(GraphError, match="weights of float32; two are packed into each element of uint8"):
        b.linear_q4(x, s, s)


def program(rows: object, inputs: int, outputs: int, offsets: bool = False, dtype: str = "float32") -> Program:
    tables = [tensor((inputs // 32, outputs))] * (2 if offsets else 1)
    operands = tensor((rows, inputs), dtype), tensor((inputs // 2, outputs), "uint8"), *tables
    made = operator_named("linear_q4").program(SizeFacts(), *operands)
    assert made is not None
    return made


@pytest.mark.cpu
@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize(("rows", "outputs"), [(1, 200), (1, 40), (7, 200), (n, 136)])
def test_compiled_products_are_those_of_the_reference(rows: object, outputs: int, offsets: bool) -> None:
    rng, target = np.random.default_rng(0), detect()
    data, *tables = quantised(rng.standard_normal((96, outputs)), 32, offsets)
    tables = [t for t in tables if t is not None]
    scheduled = default_schedule(program(rows, 96, outputs, offsets), target, weights=("Q", "S", "O"))
    for count in (1, 5) if rows is n else (rows,):
        x = rng.standard_normal((count, 96)).astype("float32")
        found = compile(scheduled, target)(x, data, *tables)
        wanted = operator_named("linear_q4").reference(x.astype("float64"), data, *tables)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


def test_one_row_decodes_on_the_way_and_several_share_a_panel() -> None:
    target = parse("x86-64-v3:threads=2")
    one = default_schedule(program(1, 64, 128), target, weights=("Q", "S"))
    assert list(one.blocks) == ["Y"] and "layout Q" in str(one) and "parallel" in str(one)
    several = default_schedule(program(8, 64, 128), target, weights=("Q", "S"))
    panel = str(several).split("for Y_n_0 in")[1]
    assert "block W" in panel and "block Y" in panel  # decoded inside the loop over columns


def test_bytes_are_decoded_in_vectors() -> None:
    target = parse("x86-64-v3:threads=1")
    text = compile(default_schedule(program(1, 64, 128), target, weights=("Q", "S")), target).assembly
    assert "vpmovsxbd" in text and "vroundps" in text and "vfmadd" in text
