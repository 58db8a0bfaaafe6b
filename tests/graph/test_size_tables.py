"""Several programs for one open size: a compiled model runs the one that the table says, and all are right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import RandomGraph, random_arrays

from searchlab import targets
from searchlab.defaults import default_schedule
from searchlab.errors import GraphError
from searchlab.graph import GraphBuilder, GraphModule, compile, evaluate_graph, load_model, split_by_size
from searchlab.graph.model.compiled_model import CompiledModel
from searchlab.graph.passes.memory_plan import POLICIES
from searchlab.graph.size_table import SizeTable
from searchlab.ir import Program, size
from searchlab.schedule import Schedule

TARGET = targets.parse("x86-64-v3:threads=1")
pytestmark = pytest.mark.skipif("x86-64-v3" not in targets.offered(), reason="runs code for AVX2")
n = size("n")


def layers(count: int = 2, rows: object = n) -> GraphModule:
    b = GraphBuilder("main", ranges={n: (1, 40)})
    x = b.input("x", (rows, 24))
    for number in range(count):
        w = np.random.default_rng(number).standard_normal((24, 24)).astype("float32")
        x = b.relu(b.linear(x, b.constant(f"w{number}", w)))
    return b.build(b.softmax(x))


def tiled(program: Program, tile: int) -> Program:
    """A schedule that differs from the default one, for every size: its rows are split."""
    s = Schedule(program)
    block = next(iter(program.blocks))
    s.split(s.loops(block)[0], [None, tile], tail=True)
    return s.program


def tuned(last: tuple[int, ...] = (4, 17), which: str = "linear"):
    """A table for the layers: the default schedule, then rows by 2, then by 8, and so on."""

    def found(program: Program, weights: frozenset[str]) -> SizeTable[Program] | None:
        if which not in program.name:
            return None
        plain = default_schedule(program, TARGET, sorted(weights))
        others = [tiled(program, 2 ** (1 + 2 * k)) for k in range(len(last))]
        return SizeTable((plain, *others), program.sizes[0], last)

    return found


def run_at(model: CompiledModel, rows: int) -> dict[str, str]:
    """The kernels that ran."""
    return dict(model["main"].observed(np.ones((rows, 24), "float32"), poison=True).kernels)


def test_tables_say_what_is_taken() -> None:
    table = SizeTable(("a", "b", "c"), "n", (4, 17))
    assert [table.at(v) for v in (1, 4, 5, 17, 18, 10**9)] == ["a", "a", "b", "b", "c", "c"]
    assert table.map(str.upper).at(5) == "B" and SizeTable((3,)).at(7) == 3
    for entries, name, last, why in [
        (("a", "b"), "n", (), "2 entries has one limit fewer, not 0"),
        (("a", "b", "c"), "n", (4, 4), "limits of a table grow, unlike 4, 4"),
        (("a", "b"), "", (4,), "names the size that decides"),
    ]:
        with pytest.raises(GraphError, match=why):
            SizeTable(entries, name, last)


def test_every_size_is_right_and_runs_what_the_table_says() -> None:
    module = layers()
    model = compile(module, TARGET, tuned())
    (name,) = {c.kernels for c in model["main"].facts.calls if len(c.kernels) > 1}
    assert len(name) == 3 and set(name) < set(model.parts.kernels)
    for rows in range(1, 41):
        x = np.random.default_rng(rows).standard_normal((rows, 24)).astype("float32")
        assert np.allclose(model(x), evaluate_graph(module, x), rtol=1e-4, atol=1e-6)
        ran = run_at(model, rows)
        wanted = name[0] if rows <= 4 else name[1] if rows <= 17 else name[2]
        assert [ran[c] for c in ran if "linear" in ran[c]] == [wanted] * 2


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_table_is_followed(data: st.DataObject) -> None:
    last = tuple(sorted(data.draw(st.sets(st.integers(1, 45), min_size=1, max_size=3))))
    model = compile(layers(1), TARGET, tuned(last))
    rows = data.draw(st.integers(1, 40))
    kernels = next(iter(model["main"].facts.calls)).kernels
    ran = next(iter(run_at(model, rows).values()))
    possible = [k for k, low in enumerate((0, *last)) if low < 40]  # no more rows than that
    assert len(kernels) == len(possible)
    assert ran == kernels[sum(rows > limit for limit in last)]


def test_branches_that_cannot_be_taken_are_left_out() -> None:
    """Where the size is known, or half of its range, so is the kernel."""
    halves = split_by_size(layers(1), n, 5)
    model = compile(halves, TARGET, tuned((4, 17)))
    assert [len(c.kernels) for c in model["main"].facts.calls if "linear" in c.callee] == [1, 2]
    x = np.ones((7, 24), "float32")
    assert np.allclose(model(x), evaluate_graph(halves, x), rtol=1e-4, atol=1e-6)


def test_conditions_are_computed_once() -> None:
    few, many = (compile(layers(count), TARGET, tuned()) for count in (1, 6))
    texts = [str(m.parts.functions["main"].code) for m in (few, many)]
    assert texts[0].count("at_most") == texts[1].count("at_most") == 2


def test_saved_models_and_c_libraries_have_the_table(tmp_path: Path) -> None:
    module = layers()
    model = compile(module, TARGET, tuned())
    saved, library = model.save(tmp_path / "model.slm"), model.export_c(tmp_path / "c", "layers")
    for loaded in map(load_model, (saved, library)):
        for rows in (1, 4, 5, 17, 18, 40):
            x = np.random.default_rng(rows).standard_normal((rows, 24)).astype("float32")
            assert np.array_equal(loaded(x), model(x))
            assert loaded["main"].observed(x).kernels == model["main"].observed(x).kernels


def test_fusion_after_scheduling_takes_tables_of_products() -> None:
    module = layers()
    model = compile(module, TARGET, tuned(which="linear"), {"fuse": "after"})
    assert max(len(c.kernels) for c in model["main"].facts.calls) == 3
    for rows in (1, 4, 5, 18, 40):
        x = np.random.default_rng(rows).standard_normal((rows, 24)).astype("float32")
        assert np.allclose(model(x), evaluate_graph(module, x), rtol=1e-4, atol=1e-6)


def test_a_table_by_another_size_is_refused() -> None:
    def wrong(program: Program, weights: frozenset[str]) -> SizeTable[Program]:
        made = default_schedule(program, TARGET)
        return SizeTable((made, made), "rows", (3,))

    with pytest.raises(GraphError, match=r"'rows' is none of its sizes \(n\)"):
        compile(layers(1), TARGET, wrong)


def plain_or_default(cut: int):
    """A table for every program with an open size: its plain loops up to a size, its default schedule above."""

    def found(program: Program, weights: frozenset[str]) -> SizeTable[Program] | None:
        if not program.sizes:
            return None
        made = default_schedule(program, TARGET, sorted(weights))
        return SizeTable((program, made), program.sizes[-1], (cut,))

    return found


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_random_graphs_with_tables(data: st.DataObject) -> None:
    """All programs of a graph have tables, and memory is planned for either: poisoned memory is never read."""
    module = RandomGraph(lambda low, high: data.draw(st.integers(low, high)), True).module(
        data.draw(st.integers(3, 12))
    )
    fuse, memory = data.draw(st.sampled_from(["before", "after", "never"])), data.draw(st.sampled_from(POLICIES))
    model = compile(module, TARGET, plain_or_default(data.draw(st.integers(1, 6))), {"fuse": fuse, "memory": memory})
    for sizes in ({"n": 3, "m": 4}, {"n": 1, "m": 2}, {"n": 7, "m": 5}):
        arrays = random_arrays(module, 1, **sizes)
        found = model["main"].observed(*arrays, poison=True).result
        for got, want in zip(found, evaluate_graph(module, *arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
