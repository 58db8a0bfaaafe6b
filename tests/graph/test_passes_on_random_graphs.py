"""Every pass, and all of them together, on random graphs: nothing changes but the calls."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import RandomGraph, random_arrays

from searchlab.graph import GraphModule, evaluate_graph, graph_from_json, graph_to_json, legalise, verify_graph
from searchlab.graph.passes import fuse_operators, fuse_programs

Pass = Callable[[GraphModule], GraphModule]
SIZES = [{"n": 3, "m": 4}, {"n": 1, "m": 2}, {"n": 7, "m": 5}]


@st.composite
def graphs(draw, calls: int = 40) -> GraphModule:
    count, symbolic = draw(st.integers(2, calls // 2)), draw(st.booleans())
    return RandomGraph(lambda low, high: draw(st.integers(low, high)), symbolic).module(count)


def check(module: GraphModule, *passes: Pass, sizes: list[dict[str, int]] = SIZES) -> GraphModule:
    """Applies passes, and compares results at several sizes with those of the graph as it was."""
    changed = module
    for change in passes:
        before = str(changed)
        after = change(changed)
        assert str(changed) == before
        changed = after
        verify_graph(changed)
    assert changed["main"].returns == module["main"].returns
    for values in sizes if module["main"].ranges else sizes[:1]:
        arrays = random_arrays(module, 1, **values)
        for got, want in zip(evaluate_graph(changed, *arrays), evaluate_graph(module, *arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    return changed


@settings(max_examples=60)
@given(graphs())
def test_fused_operators(module: GraphModule) -> None:
    fused = check(module, fuse_operators)
    assert graph_from_json(graph_to_json(fused)) == fused
    assert fuse_operators(module) == fused


@settings(max_examples=25)
@given(graphs(calls=16))
def test_fused_programs(module: GraphModule) -> None:
    check(module, fuse_operators, fuse_programs, legalise, sizes=[{"n": 2, "m": 3}])


@pytest.mark.slow
@settings(max_examples=1000)
@given(graphs())
def test_many_random_graphs_fused(module: GraphModule) -> None:
    check(module, fuse_operators, fuse_programs, legalise)
