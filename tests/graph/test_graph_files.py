"""Graphs in files: round trips with constants, and what is refused."""

import json

import numpy as np
import pytest

from searchlab.errors import GraphError
from searchlab.graph import (
    Constant,
    GraphBuilder,
    GraphModule,
    ShapeType,
    evaluate_graph,
    graph_from_json,
    graph_to_json,
    legalise,
    load_graph,
    save_graph,
)
from searchlab.ir import size

n = size("n")


def module() -> GraphModule:
    inner = GraphBuilder("scaled", ranges={n: (1, 9)})
    x = inner.input("x", (n, 4))
    w = inner.constant("w", np.arange(16, dtype="float32").reshape(4, 4))
    low = inner.build(inner.matmul(x, w) * 0.5)
    b = GraphBuilder("main", low)
    x = b.input("x", (n + 1, 4))
    b.input("count", ShapeType((n,)))
    half = b.constant("half", Constant.of(np.full(4, 0x3F00, "uint16"), "bfloat16"))
    y = b.match_cast(b.slice(x, axis=0, stop=n), (n, 4)) + b.cast(half, dtype="float32")
    y = b.clamp(y, low=float("-inf"), high=3)
    return b.build(b.call("scaled", y), b.full(shape=(n,), value=True, dtype="bool"))


def test_round_trip(tmp_path) -> None:
    for whole in (module(), legalise(module())):
        path = save_graph(whole, tmp_path / "graph")
        again = load_graph(path)
        assert again == whole and str(again) == str(whole)
        x = np.ones((4, 4), "float32")
        for got, want in zip(evaluate_graph(again, x, (3,)), evaluate_graph(whole, x, (3,)), strict=True):
            np.testing.assert_array_equal(got, want)


def test_constants_that_differ_make_another_module() -> None:
    text = graph_to_json(module())
    arrays = {name: np.array(c.array) for name, c in module().constants.items()}
    assert graph_from_json(text, arrays) == module()
    arrays["w"] = arrays["w"] + 1
    assert graph_from_json(text, arrays) != module()


def test_constants_do_not_change() -> None:
    given = np.zeros(3)
    held = Constant.of(given)
    with pytest.raises(ValueError, match="read-only"):
        held.array[0] = 1
    given[0] = 1  # the caller's array stays the caller's


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d, a: d.update(format=7), "its format is 7; this version reads 1"),
        (lambda d, a: a.pop("w"), "the constant 'w' is missing; given: half"),
        (lambda d, a: a.update(w=np.zeros((4, 3), "float32")), r"'w' has shape \(4, 3\), expected \(4, 4\)"),
        (lambda d, a: a.update(w=np.zeros((4, 4))), "an array of float64 does not hold float32"),
        (lambda d, a: d["functions"][0]["bindings"].pop(0), "scaled: mul = .*: 'matmul' is not defined before its use"),
        (lambda d, a: d["functions"][0]["bindings"][0][3].__setitem__(2, "float64"), "its annotation is float64"),
        (lambda d, a: d["functions"][0].pop("result"), "KeyError: 'result'"),
        (lambda d, a: d["functions"][0]["bindings"].append(3), "3 is not a Binding"),
        (lambda d, a: d["functions"][0]["parameters"].append(["Nothing"]), "unknown node 'Nothing'"),
    ],
)
def test_what_is_wrong_is_named(spoil, message) -> None:
    data = json.loads(graph_to_json(module()))
    arrays = {name: np.array(c.array) for name, c in module().constants.items()}
    spoil(data, arrays)
    with pytest.raises(GraphError, match=f"not a graph in JSON: .*{message}"):
        graph_from_json(json.dumps(data), arrays)


def test_files_that_are_no_graphs(tmp_path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "arrays.npz", x=np.zeros(3))
    with pytest.raises(GraphError, match="text.npz: cannot be read"):
        load_graph(tmp_path / "text")
    with pytest.raises(GraphError, match="arrays.npz: an archive without graph.json"):
        load_graph(tmp_path / "arrays")
    with pytest.raises(GraphError, match="missing.npz: cannot be read"):
        load_graph(tmp_path / "missing")
