"""Every pass, and all of them together, on random graphs: nothing changes but the calls."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import RandomGraph, random_arrays

from searchlab.defaults import default_schedule
from searchlab.graph import GraphModule, evaluate_graph, graph_from_json, graph_to_json, legalise, verify_graph
from searchlab.graph.passes import (
    fold_batch_norms,
    fold_constants,
    forward_items,
    fuse_operators,
    fuse_programs,
    fused_program,
    remove_dead,
    schedule_then_fuse,
    share_equal_calls,
)
from searchlab.ir import interpret
from searchlab.ir.bfloat16 import stored
from searchlab.targets import parse

Pass = Callable[[GraphModule], GraphModule]
ALL = (
    forward_items, fold_constants, fold_batch_norms, share_equal_calls, remove_dead, fuse_operators, fuse_programs,
    legalise,
)  # fmt: skip
SIZES = [{"n": 3, "m": 4}, {"n": 1, "m": 2}, {"n": 7, "m": 5}]


@st.composite
def graphs(draw, calls: int = 40, weights: bool = False) -> GraphModule:
    count, symbolic = draw(st.integers(2, calls // 2)), draw(st.booleans())
    made = RandomGraph(lambda low, high: draw(st.integers(low, high)), symbolic)
    made.weights = weights
    return made.module(count)


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


@settings(max_examples=25)
@given(graphs(weights=True))
def test_constants_are_folded(module: GraphModule) -> None:
    folded = check(module, fold_constants)
    for call in folded["main"].calls.values():
        constant = [o in folded.constants or not isinstance(o, str) for o in call.operands()]
        assert not all(constant) or not constant
    assert fold_constants(folded) == folded


@settings(max_examples=25)
@given(graphs(weights=True))
def test_batch_norms_are_folded(module: GraphModule) -> None:
    folded = check(module, fold_batch_norms)
    assert not any(call.callee == "batch_norm" for call in folded["main"].calls.values())


@settings(max_examples=25)
@given(graphs(weights=True))
def test_cleaned(module: GraphModule) -> None:
    shared = check(module, share_equal_calls)
    cleaned = check(module, share_equal_calls, remove_dead)
    assert len(cleaned["main"].bindings) <= len(shared["main"].bindings) <= len(module["main"].bindings)
    uses = cleaned["main"].uses
    assert all(uses[b.name] for b in cleaned["main"].bindings if b.call.callee != "match_cast")
    calls = [call for call in cleaned["main"].calls.values() if call.callee != "match_cast"]
    assert len({repr(call) for call in calls}) == len(calls)


@settings(max_examples=30)
@given(graphs())
def test_fused_operators(module: GraphModule) -> None:
    fused = check(module, fuse_operators)
    assert graph_from_json(graph_to_json(fused)) == fused
    assert fuse_operators(module) == fused


@settings(max_examples=25)
@given(graphs(calls=16))
def test_fused_programs(module: GraphModule) -> None:
    check(module, fuse_operators, fuse_programs, legalise, sizes=[{"n": 2, "m": 3}])


@settings(max_examples=20)
@given(graphs(calls=16, weights=True))
def test_all_passes_together(module: GraphModule) -> None:
    check(module, *ALL, sizes=[{"n": 5, "m": 3}])


@settings(max_examples=15)
@given(graphs(calls=20, weights=True))
def test_fusion_after_scheduling(module: GraphModule) -> None:
    check_after(module)


def check_after(module: GraphModule) -> None:
    """Compares groups that were scheduled and then fused with those that were fused and not scheduled."""
    fused, target = fuse_operators(module), parse("x86-64-v3:threads=2")
    rng = np.random.default_rng(0)
    for function in fused:
        if function.name == "main":
            continue
        plain = fused_program(fused, function)
        after = schedule_then_fuse(fused, function, lambda product: default_schedule(product, target))
        sizes = {name: {"n": 3, "m": 4}[name] for name in plain.sizes}
        buffers = [plain.substitute(sizes).buffers[name] for name in plain.inputs]
        given = [stored(rng.uniform(0.1, 1, [int(e.value) for e in b.shape]), b.dtype) for b in buffers]
        found = interpret(after, dict(zip(after.inputs, given, strict=True)), sizes)
        wanted = interpret(plain, dict(zip(plain.inputs, given, strict=True)), sizes)
        for got, want in zip(found.values(), wanted.values(), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@settings(max_examples=300)
@given(graphs(weights=True))
def test_fusion_after_scheduling_of_many(module: GraphModule) -> None:
    check_after(module)


@pytest.mark.slow
@settings(max_examples=1000)
@given(graphs(weights=True))
def test_many_random_graphs_fused(module: GraphModule) -> None:
    check(module, *ALL)
