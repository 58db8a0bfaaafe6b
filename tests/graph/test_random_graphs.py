"""Properties of random graphs: verified, deduced right at all sizes, written and read back, legalised."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import RandomGraph, m, n, random_arrays

from searchlab.graph import (
    Binding,
    GraphFunction,
    GraphModule,
    GraphParameter,
    deduced,
    evaluate_graph,
    graph_from_json,
    graph_to_json,
    legalise,
    verify_graph,
)
from searchlab.graph.legalising import everything
from searchlab.ir.expr import Const
from searchlab.ir.walk import Substitution

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


def put_numbers(function: GraphFunction) -> GraphFunction:
    """The function with numbers in place of its symbols."""
    put = Substitution({n: Const(3), m: Const(4)})
    parameters = tuple(GraphParameter(p.name, p.annotation.map_dims(put)) for p in function.parameters)
    bindings = tuple(Binding(b.name, b.call.map_dims(put), b.annotation.map_dims(put)) for b in function.bindings)
    return replace(function, parameters=parameters, bindings=bindings, ranges={})


@settings(max_examples=30)
@given(graphs())
def test_deduction_commutes_with_substitution(module: GraphModule) -> None:
    """What is deduced of symbols, with numbers put in, is what is deduced of numbers."""
    fixed = module.with_function(put_numbers(module["main"]))
    verify_graph(fixed)
    assert not fixed["main"].symbols
    uses = module["main"].uses
    assert uses[module["main"].result] == 1 and sum(uses.values()) > len(module["main"].bindings)


@settings(max_examples=20)
@given(graphs(calls=12))
def test_random_graphs_as_programs(module: GraphModule) -> None:
    lowered = legalise(module, everything)
    verify_graph(lowered)
    assert graph_from_json(graph_to_json(lowered)) == lowered
    verify_graph(lowered.with_function(put_numbers(lowered["main"])))
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
