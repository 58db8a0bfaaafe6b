"""Two functions and a branch: which half runs, what each half is compiled to, and what is refused."""

import numpy as np
import pytest

from benchmarks.graph_models import N, transformer_layers
from searchlab.errors import GraphError
from searchlab.graph import (
    BranchCall,
    GraphBuilder,
    LibraryCall,
    SizeRange,
    dispatch_libraries,
    evaluate_graph,
    graph_from_json,
    graph_to_json,
    legalise,
    split_by_size,
    verify_graph,
)
from searchlab.graph.passes.memory_plan import plan_memory
from searchlab.ir import size

n, m = size("n"), size("m")


def test_each_half_is_lowered_by_what_it_knows() -> None:
    """A library from 16 rows on, programs for fewer: decoding and prompts of a transformer."""
    module = transformer_layers(16, 1, 2, longest=40)
    made = legalise(dispatch_libraries(split_by_size(module, N, 16), ["numpy"]))
    verify_graph(made)
    calls = {f.name: sum(isinstance(c, LibraryCall) for c in f.calls.values()) for f in made}
    assert calls == {"main": 0, "main_below": 0, "main_from": 8}
    assert made["main_below"].ranges[N] == SizeRange(1, 15) and made["main_from"].ranges[N] == SizeRange(16, 40)
    assert "result: float32[n, 16] = call (main_below if n < 16 else main_from)(x)" in str(made)
    constants = {name: c.array for name, c in made.constants.items()}
    assert graph_from_json(graph_to_json(made), constants) == made
    for rows in (1, 15, 16, 40):
        x = np.random.default_rng(rows).uniform(-1, 1, (rows, 16)).astype("float32")
        np.testing.assert_allclose(evaluate_graph(made, x), evaluate_graph(module, x), rtol=1e-4, atol=1e-5)
    assert plan_memory(made, "main_below").arena < plan_memory(made, "main_from").arena
    assert not plan_memory(made, "main").storages


def test_halves_can_be_divided_again() -> None:
    b = GraphBuilder("main", ranges={n: (1, 64)})
    module = split_by_size(b.build(b.relu(b.input("x", (n, 4)))), n, 16)
    module = split_by_size(module, n, 4, "main_below")
    verify_graph(module)
    assert [str(f.ranges[n]) for f in module] == ["1 to 64", "1 to 15", "16 to 64", "1 to 3", "4 to 15"]
    assert evaluate_graph(module, np.full((3, 4), -1, "float32")).max() == 0


def test_arguments_live_as_long_as_a_result_that_is_one_of_them() -> None:
    first = GraphBuilder("same")
    module = first.build(first.input("p", (n, 4)))
    second = GraphBuilder("other", module)
    module = second.build(second.relu(second.input("p", (n, 4))))
    b = GraphBuilder("main", module)
    x = b.op("exp", b.input("x", (n, 4)), name="a")
    y = b.emit(BranchCall(("a",), n < 8, "other", "same"), "y")
    module = b.build(b.add(b.neg(y), y))
    verify_graph(module)
    (a,) = (v for v in plan_memory(module, "main", "pool").values if v.name == "a")
    assert (a.first, a.last) == (0, 3) and x.name == "a"


def test_what_is_refused() -> None:
    b = GraphBuilder("main", ranges={n: (2, 64)})
    module = b.build(b.relu(b.input("x", (n, 4))))
    for at in (2, 65):
        with pytest.raises(GraphError, match=f"main: n is 2 to 64, which {at} does not divide in two"):
            split_by_size(module, n, at)
    with pytest.raises(GraphError, match="no parameter determines m, so nothing can depend on it; known: n"):
        split_by_size(module, m, 8)
    other = GraphBuilder("other", module)
    module = other.build(other.sum(other.input("x", (n, 4)), axes=(0,)))
    b = GraphBuilder("third", module)
    b.input("x", (n, 4))
    with pytest.raises(GraphError, match=r"its functions return float32\[n, 4\] and float32\[4\]; they have to agree"):
        b.emit(BranchCall(("x",), n < 8, "main", "other"))
    with pytest.raises(GraphError, match="the symbol m is not in scope"):
        b.emit(BranchCall(("x",), m < 8, "main", "main"))
