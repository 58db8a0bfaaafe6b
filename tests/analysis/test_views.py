"""What the views promise beyond their numbers: shapes, joining sketches, trees, targets, chunks, errors."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from tensorized_products import byte_product, tiled

from searchlab.analysis import NODE_KINDS, Ragged, extractor, schema
from searchlab.analysis.column_machine import BLOCK
from searchlab.analysis.nest import Nest
from searchlab.analysis.summary_view import main
from searchlab.errors import IRError, SpaceError
from searchlab.ir import Program, knob
from searchlab.ir.expr import value_of
from searchlab.schedule import Schedule
from searchlab.search import RecordedSpace, Space, menu
from searchlab.targets import parse as parse_target
from searchlab.workloads import parse

from ..random_schedules import WORKLOADS, random_schedule
from .programs import MAIN, SKETCHES
from .reference import Reference
from .test_features import VIEWS, assert_same, expected, in_columns


def mixed() -> Space:
    return Space([SKETCHES["tiled_matmul"](), SKETCHES["tailed_matmul"]()])


@pytest.mark.parametrize("view", VIEWS)
def test_schemas_name_every_column_once(view: str) -> None:
    found = schema(view)
    assert len(set(found.columns)) == found.width
    assert found.name == view


def test_statements_have_ansors_groups() -> None:
    found = schema("statements")
    assert found.width - found.gained == 164


@pytest.mark.parametrize("view", ["knobs", "loops", "curves", "summary", "estimate"])
def test_a_space_gives_one_row_per_point_in_order(view: str) -> None:
    space = mixed()
    points = space.sample(50, np.random.default_rng(0))
    together = space.features(points, view)
    assert len(together) == 50
    for n in (0, 7, 49):
        np.testing.assert_array_equal(space.features(points[n], view)[0], together[n])


def test_statements_of_different_sketches_are_joined_by_segments() -> None:
    space = mixed()
    points = space.sample(40, np.random.default_rng(1))
    found = space.features(points, "statements")
    assert isinstance(found, Ragged)
    numbers = np.bincount(found.segments, minlength=40)
    assert (numbers == np.where(points.sketch == 0, 1, 2)).all()
    totals = found.total(found.rows[:, 0])
    for n in (0, 39):
        alone = space.features(points[n], "statements")
        assert totals[n] == pytest.approx(alone.rows[:, 0].sum())


def test_trees_come_by_sketch() -> None:
    space = mixed()
    points = space.sample(40, np.random.default_rng(2))
    seen = []
    for rows, tree in space.features(points, "tree"):
        assert tree.features.shape == (len(rows), len(tree), schema("tree").width)
        seen.extend(rows.tolist())
    assert sorted(seen) == list(range(40))


def test_a_tree_knows_children_and_levels() -> None:
    tree = extractor(SKETCHES["tailed_matmul"]().program, "tree")({"rows": [2], "lanes": [4]})  # type: ignore[arg-type]
    assert NODE_KINDS[tree.kinds[0]] == "root" and tree.parents[0] == -1
    assert all(tree.parents[c] == n for n, found in enumerate(tree.children) for c in found)
    done: set[int] = set()
    for level in tree.levels:
        assert all(set(tree.children[n]) <= done for n in level.tolist())
        done |= set(level.tolist())
    assert len(done) == len(tree)


def test_the_target_decides_what_fits() -> None:
    sketch = SKETCHES["tiled_matmul"]()
    values = {s: v[:1] for s, v in sketch.values(sketch.draw(4, np.random.default_rng(0))).items()}
    at = {c: n for n, c in enumerate(schema("summary").columns)}
    target = parse_target("x86-64-v4")
    plain, wide = (extractor(sketch.program, "summary", t)(values)[0] for t in (None, target))  # type: ignore[arg-type]
    assert wide[at["main_tile_registers"]] < plain[at["main_tile_registers"]]
    reference = Reference(sketch.substitute({s: int(v[0]) for s, v in values.items()}), target, "C")
    got = extractor(sketch.program, "summary", target)(values, dtype=np.float64)  # type: ignore[arg-type]
    assert_same(got, in_columns([reference.summary()], "summary"), "summary")


@pytest.mark.parametrize("name", SKETCHES)
def test_the_main_statement_computes_most(name: str) -> None:
    assert main(Nest(SKETCHES[name]().program)).block.name == MAIN[name]  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1, 3, 17, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
def test_blocks_do_not_show(count: int) -> None:
    sketch = SKETCHES["tiled_matmul"]()
    values = sketch.values(sketch.draw(2 * BLOCK + 5, np.random.default_rng(3)))
    extract = extractor(sketch.program, "summary")  # type: ignore[arg-type]
    whole = extract(values)
    np.testing.assert_array_equal(extract({s: v[:count] for s, v in values.items()}), whole[:count])


def test_extractors_are_pickled_and_shared_by_threads() -> None:
    sketch = SKETCHES["padded_conv"]()
    values = sketch.values(sketch.draw(300, np.random.default_rng(4)))
    extract = extractor(sketch.program, "statements")  # type: ignore[arg-type]
    wanted = extract(values)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(extract))(values), wanted)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(extract, [values] * 16):
            np.testing.assert_array_equal(found, wanted)


def test_a_program_without_symbols_has_features_too() -> None:
    program = parse("softmax:rows=4,cols=8").program
    got = extractor(program, "statements")({}, dtype=np.float64)
    assert_same(got[0], in_columns(Reference(program).statements(), "statements"), "statements")


def test_iterations_that_a_tile_is_too_large_for_are_counted() -> None:
    s = Schedule(parse("matmul:m=8,n=8,k=8").program)
    s.split(s.loops("C")[0], [None, knob("t")], tail=True)
    found = extractor(s.program, "summary")({"t": np.array([1, 3, 8])})
    surplus = schema("summary").columns.index("all_surplus_iterations")
    assert found[:, surplus].tolist() == pytest.approx([0, np.log2(1 + 64), 0])


def test_products_beyond_64_bits_do_not_wrap() -> None:
    s = Schedule(parse("matmul:m=8,n=8,k=8").program)
    for loop in s.loops("C"):
        s.split(loop, [None, knob(f"t_{loop}")], tail=True)
    found = extractor(s.program, "summary")(dict.fromkeys(s.program.knobs, np.array([2**40])))
    assert found[0, schema("summary").columns.index("all_iterations")] == pytest.approx(120)


def _cycles(program: Program) -> float:
    return float(np.exp2(extractor(program, "estimate", parse_target("x86-64-v3"))({}, dtype=np.float64)[0, 0]) - 1)


def test_the_estimate_counts_a_call_as_what_it_states() -> None:
    w = byte_product(96, 96, 96)
    called = tiled(w, "avx2_u8s8_8x4", 8)
    loops = Schedule(w.program)
    i, j, k = loops.loops("C")
    i0, i1 = loops.split(i, [None, 4])
    j0, j1, j2 = loops.split(j, [None, 2, 8])
    loops.reorder(j0, i0, k, i1, j1, j2)
    loops.unroll(i1, j1)
    loops.vectorize(j2)
    count = 96**3 / 32
    assert 3.0 * count <= _cycles(called.program) < 3.3 * count  # three cycles each, and some for memory
    assert _cycles(called.program) < _cycles(loops.program)
    assert _cycles(tiled(w, "vnni_u8s8_8x4", 8).program) < 0.3 * _cycles(loops.program)


def test_calls_beyond_the_domain_do_not_count() -> None:
    w = byte_product(96, 96, 96)
    exact, rounded = tiled(w, "avx2_u8s8_8x4", 8), tiled(w, "avx2_u8s8_8x4", 8)
    exact.split("i_0", [None, 24])
    rounded.split("i_0", [None, 128], tail=True)  # one tile of rows that is five times too large
    calls = schema("summary").columns.index("all_calls")
    found = [extractor(s.program, "summary")({}, dtype=np.float64)[0, calls] for s in (exact, rounded)]
    assert found == [pytest.approx(np.log2(1 + 96**3 / 32))] * 2
    assert _cycles(rounded.program) == pytest.approx(_cycles(exact.program), rel=0.1)


@cache
def random_programs() -> list[Program]:
    rng = np.random.default_rng(5)
    found = [random_schedule(parse(str(rng.choice(WORKLOADS))).program, rng, 6) for _ in range(30)]
    return [p for p in found if all(value_of(lp.extent) is not None for lp in p.loops.values())]


@pytest.mark.parametrize("view", VIEWS)
def test_random_schedules(view: str) -> None:
    """Exact where indices are sums; where they hold quotients and rests, no box is too small."""
    for program in random_programs():
        got = extractor(program, view)({}, dtype=np.float64)
        rows = got.features[0] if view == "tree" else np.atleast_2d(got[0])
        reference = Reference(program, main=main(Nest(program)).block.name)
        wanted = in_columns(expected(reference, view), view)
        if not any(op in str(program) for op in ("//", "%")):
            assert_same(rows, wanted, view)
        sizes = [n for n, c in enumerate(schema(view).columns) if c.endswith("unique_bytes")]
        assert (rows[:, sizes] >= wanted[:, sizes] - 1e-9).all()


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_an_unknown_view_is_refused() -> None:
    with pytest.raises(
        IRError, match="unknown view 'trees'; known: statements, loops, curves, tree, summary, estimate"
    ):
        schema("trees")


def test_missing_and_ragged_values_are_refused() -> None:
    extract = extractor(SKETCHES["tailed_matmul"]().program, "summary")  # type: ignore[arg-type]
    with pytest.raises(IRError, match="no values for lanes; given: rows"):
        extract({"rows": np.array([1])})
    with pytest.raises(IRError, match=r"as many for all; got rows \(1,\), lanes \(2,\)"):
        extract({"rows": np.array([1]), "lanes": np.array([1, 2])})


def test_a_recorded_space_has_knobs_only() -> None:
    space = RecordedSpace.of([menu("a", [1, 2])], np.array([[0], [1]], np.int32))
    assert space.features(space.points(), "knobs").shape == (2, 1)
    with pytest.raises(SpaceError, match="has no program: its points have knobs only, as view 'knobs'"):
        space.features(space.points(), "summary")
