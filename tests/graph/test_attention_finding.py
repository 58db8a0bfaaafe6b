"""Attention that is written out becomes one operator, whatever its factor, mask and the order of its keys."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from searchlab.graph import CompileOptions, GraphBuilder, GraphModule, GraphValue, evaluate_graph, verify_graph
from searchlab.graph.model.pipeline import lowered
from searchlab.graph.passes import find_attention
from searchlab.ir import size
from searchlab.targets import parse

n, m = size("n"), size("m")
Written = Callable[[GraphBuilder, GraphValue, GraphValue, GraphValue], GraphValue]


def module_of(written: Written, dtype: str = "float32") -> GraphModule:
    b = GraphBuilder("main", ranges={n: (1, 64), m: (1, 64)})
    q = b.input("q", (2, n, 8), dtype)
    k, v = (b.input(name, (2, m, 8), dtype) for name in "kv")
    return b.build(written(b, q, k, v))


def scores(b: GraphBuilder, q: GraphValue, k: GraphValue) -> GraphValue:
    return b.matmul(q, b.permute(k, axes=(0, 2, 1)))


def mask(b: GraphBuilder) -> GraphValue:
    return b.input("mask", (n, m))


def twice(b: GraphBuilder, probabilities: GraphValue, v: GraphValue) -> GraphValue:
    return b.matmul(probabilities, v) + b.sum(probabilities)


FOUND: dict[str, Written] = {
    "plain": lambda b, q, k, v: b.matmul(b.softmax(scores(b, q, k)), v),
    "factor": lambda b, q, k, v: b.matmul(b.softmax(scores(b, q, k) * 0.25, axis=2), v),
    "quotient": lambda b, q, k, v: b.matmul(b.softmax(scores(b, q, k) / 4.0), v),
    "constant": lambda b, q, k, v: b.matmul(b.softmax(scores(b, q, k) / b.constant("c", np.full(1, 3, "float32"))), v),
    "mask": lambda b, q, k, v: b.matmul(b.softmax(mask(b) + 0.5 * scores(b, q, k)), v),
    "keys in columns": lambda b, q, k, v: b.matmul(b.softmax(b.matmul(q, b.input("c", (2, 8, m))) * 0.3), v),
    "keys of another order": lambda b, q, k, v: b.matmul(
        b.softmax(b.matmul(q, b.permute(b.input("c", (m, 2, 8)), axes=(1, 2, 0)))), v
    ),
    "with more after it": lambda b, q, k, v: b.relu(b.matmul(b.softmax(scores(b, q, k)), v)) + 1.0,
}

LEFT: dict[str, Written] = {
    "along another axis": lambda b, q, k, v: b.matmul(b.softmax(scores(b, q, k), axis=1), v),
    "probabilities are used twice": lambda b, q, k, v: twice(b, b.softmax(scores(b, q, k)), v),
    "a mask before the factor": lambda b, q, k, v: b.matmul(b.softmax((scores(b, q, k) + mask(b)) * 0.5), v),
    "a factor that is no number": lambda b, q, k, v: b.matmul(b.softmax(scores(b, q, k) * mask(b)), v),
    "values that are broadcast": lambda b, q, k, v: b.matmul(b.softmax(scores(b, q, k)), b.input("w", (m, 8))),
    "something between": lambda b, q, k, v: b.matmul(b.relu(b.softmax(scores(b, q, k))), v),
}


def arrays(module: GraphModule, rows: int, keys: int) -> list[np.ndarray]:
    rng = np.random.default_rng(rows)
    sizes = {"n": rows, "m": keys}
    shapes = [[sizes.get(str(e), str(e)) for e in p.annotation.dims()] for p in module["main"].parameters]
    return [rng.standard_normal([int(e) for e in shape]).astype("float32") for shape in shapes]


@pytest.mark.parametrize("name", FOUND)
def test_written_out(name: str) -> None:
    module = module_of(FOUND[name])
    found = find_attention(module)
    verify_graph(found)
    calls = [call.callee for call in found["main"].calls.values()]
    assert "attention" in calls and not {"softmax", "matmul"} & set(calls)
    for rows, keys in ((1, 5), (7, 3)):
        given = arrays(module, rows, keys)
        np.testing.assert_allclose(evaluate_graph(found, *given), evaluate_graph(module, *given), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_attention(name: str) -> None:
    module = module_of(LEFT[name])
    assert find_attention(module) == module


def test_halves_are_left_as_they_are_rounded() -> None:
    module = module_of(FOUND["plain"], "float16")
    assert find_attention(module) == module


def test_keys_that_were_permuted_are_read_as_they_lie() -> None:
    text = str(find_attention(module_of(FOUND["factor"])))
    assert "attention(q, k, v, scale=0.25)" in text and "permute" not in text


def test_models_are_compiled_with_it() -> None:
    programs = lowered(module_of(FOUND["with more after it"]), CompileOptions(), target=parse("x86-64-v3")).programs
    assert list(programs) == ["fused_attention_relu_add"]
