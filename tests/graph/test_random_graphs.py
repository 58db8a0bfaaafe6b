"""Properties of random graphs: verified, deduced right at all sizes, written and read back, legalised."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import RandomGraph, random_arrays

from searchlab.graph import (
    GraphModule,
    deduced,
    evaluate_graph,
    graph_from_json,
    graph_to_json,
    legalise,
    verify_graph,
)

SIZES = [{"n": 3, "m": 4}, {"n": 1, "m": 2}, {"n": 8, "m": 5}]


@st.composite
def graphs(draw, calls: int = 40) -> GraphModule:
    count, symbolic = draw(st.integers(2, calls // 2)), draw(st.booleans())
    return RandomGraph(lambda low, high: draw(st.integers(low, high)), symbolic).module(count)


@settings(max_examples=60)
@given(graphs())
def test_random_graphs(module: GraphModule) -> None:
    verify_graph(module)
    text = graph_to_json(module)
    again = graph_from_json(text)
    assert again == module and str(again) == str(module) and graph_to_json(again) == text
    assert deduced(module, module["main"]) == module["main"]
    for sizes in SIZES if module["main"].ranges else SIZES[:1]:
        evaluate_graph(module, *random_arrays(module, 0, **sizes))  # compares every shape with its annotation


@settings(max_examples=20)
@given(graphs(calls=12))
def test_random_graphs_as_programs(module: GraphModule) -> None:
    lowered = legalise(module)
    verify_graph(lowered)
    assert graph_from_json(graph_to_json(lowered)) == lowered
    arrays = random_arrays(module, 1, n=2, m=3) if module["main"].ranges else random_arrays(module, 1)
    for got, want in zip(evaluate_graph(lowered, *arrays), evaluate_graph(module, *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@settings(max_examples=1500)
@given(graphs())
def test_many_random_graphs(module: GraphModule) -> None:
    verify_graph(module)
    assert graph_from_json(graph_to_json(module)) == module
    for sizes in SIZES if module["main"].ranges else SIZES[:1]:
        evaluate_graph(module, *random_arrays(module, 0, **sizes))
