"""What every space keeps: uniform samples, moves that stay inside, stable keys, clean ends."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import searchlab as sl
from searchlab.ir import Program, knob
from searchlab.search import Points, RecordedSpace, Sketch, Space, SpaceError, category, menu, split_knob
from searchlab.search import parts as parts_module
from searchlab.search.knob import Ints

ROOT = Path(__file__).resolve().parents[2]


def free() -> Space:
    return Space([Sketch("s", (menu("a", [1, 2, 4]), category("c", ["x", "y"]), split_knob("i", 12, 2)))], "free")


def tied() -> Space:
    """Two parts: three knobs tied by conditions, one on its own."""
    knobs = (split_knob("i", 16, 2), menu("a", [1, 2, 4]), split_knob("j", 8, 2), menu("u", [0, 4]))
    return Space([Sketch("s", knobs, (knob("i1") * knob("j1") <= 16, knob("a") <= knob("j1")))], "tied")


def several() -> Space:
    plain = Sketch("plain", (split_knob("i", 12, 2), menu("u", [1, 2, 3])), (knob("i1") <= 6,))
    packed = Sketch("packed", (split_knob("i", 12, 2), menu("u", [1, 2, 3]), category("w", ["a", "b"])))
    narrow = Sketch("narrow", (menu("t", [1, 2, 3]),), (knob("t") >= 3,))
    return Space([plain, packed, narrow], "several")


def recorded() -> Space:
    grid = [r for r in itertools.product(range(4), range(3), range(2)) if (r[0] + 2 * r[1] + r[2]) % 3]
    knobs = (menu("a", [1, 2, 4, 8]), menu("b", [0, 1, 2]), category("c", ["x", "y"]))
    return RecordedSpace.of(knobs, np.array(grid, dtype=np.int32)[::-1], "rows")


def matmul_program() -> Program:
    s = sl.Schedule(sl.workload("matmul", m=24, n=16, k=8).program)
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, [None, sl.knob("i1")])
    j0, j1 = s.split(j, [None, sl.knob("j1")])
    s.reorder(i0, j0, k, i1, j1)
    s.vectorize(j1)
    return s.program


def programs() -> Space:
    """Menus, so that what the schedule assumes about divisors decides what is valid."""
    knobs = (menu("rows", range(1, 9), "i1"), menu("columns", [2, 3, 4, 6, 8], "j1"))
    return Space([Sketch("matmul", knobs, program=matmul_program())], "programs")


SPACES = [free, tied, several, recorded, programs]


@pytest.fixture(params=SPACES, ids=lambda f: f.__name__)
def space(request: pytest.FixtureRequest) -> Space:
    made: Space = request.param()
    return made


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- the conformance suite --------------------------------------------------------------------------------------------


def test_enumeration_is_what_is_valid(space: Space) -> None:
    everything = space.at(range(space.size.cartesian))
    found = space.enumerate()
    assert found == everything[space.valid(everything)]
    assert space.size.exact
    assert space.size.valid == len(found)
    assert space.index(everything) == list(range(space.size.cartesian))


def test_samples_are_uniform(space: Space) -> None:
    everything = space.enumerate()
    count = 200 * len(everything)
    place = {i: n for n, i in enumerate(space.index(everything))}
    drawn = np.bincount([place[i] for i in space.index(space.sample(count, rng()))], minlength=len(everything))
    chi2 = float(((drawn - 200.0) ** 2 / 200.0).sum())
    freedom = len(everything) - 1
    assert abs(chi2 - freedom) < 4 * np.sqrt(2 * freedom)  # four standard deviations


def test_moves_stay_inside(space: Space) -> None:
    points = space.sample(500, rng(1))
    others = space.sample(500, rng(2))
    for local in (0.5, 1.0):
        moved = space.mutate(points, rng(3), local, structure=0)
        assert space.valid(moved).all()
        assert (moved.sketch == points.sketch).all()
        assert ((moved.options != points.options).sum(axis=1) <= 1).all()
    children = space.crossover(points, others, rng(4))
    assert space.valid(children).all()
    assert ((children.options == points.options) | (children.options == others.options)).all()


def test_mutation_may_change_the_structure_and_keeps_shared_knobs() -> None:
    shared, own = split_knob("i", 24, 2), menu("u", [1, 2, 4])
    space = Space([Sketch("plain", (shared,)), Sketch("unrolled", (own, shared))])
    points = space.sample(400, rng(1))
    moved = space.mutate(points, rng(2), structure=1.0)
    assert space.valid(moved).all() and (moved.sketch != points.sketch).all()
    assert (space.values(moved)["i0"] == space.values(points)["i0"]).all()
    assert (space.mutate(points, rng(2), structure=0.0).sketch == points.sketch).all()


def test_a_point_is_described_and_found_again(space: Space) -> None:
    for point in space.sample(20, rng(9)):
        assert space.chosen(json.loads(json.dumps(space.choice(point)))) == point
        assert space.read(space.text(point)) == point
        assert space.read(str(space.index(point)[0])) == point


def test_names_of_sketches_may_hold_brackets() -> None:
    named = [Sketch(name, (menu("a", [1, 2]),)) for name in ("cut", "cut(Y)", "cut(Y)/cut(Z)")]
    space = Space(named)
    for point in space.enumerate():
        assert space.read(space.text(point)) == point


def test_a_wrong_description_is_refused() -> None:
    space = Space([Sketch("plain", (split_knob("i", 24, 2),))])
    for choice, message in [
        ({"sketch": "plian"}, "no sketch 'plian'; did you mean 'plain'?"),
        ({"sketch": "plain", "knobs": {}}, "no value for knob 'i'"),
        ({"sketch": "plain", "knobs": {"i": [5, 5]}}, "knob 'i' has no option"),
        ({"sketch": "plain", "knobs": {"i": [4, 6], "j": 1}}, "unknown knob 'j'"),
    ]:
        with pytest.raises(SpaceError) as e:
            space.chosen(choice)
        assert message in str(e.value)


def test_mutation_changes_what_can_change(space: Space) -> None:
    points = space.enumerate()
    moved = space.mutate(points, rng(5), structure=0)
    for point, new in zip(points, moved, strict=True):
        assert (point == new) == (len(space.neighbours(point, adjacent=False)) == 0)


@pytest.mark.parametrize("adjacent", [True, False])
def test_neighbours_are_symmetric(space: Space, adjacent: bool) -> None:
    points = space.enumerate()
    near = {k: space.key(space.neighbours(p, adjacent)).tolist() for k, p in zip(space.key(points).tolist(), points)}
    for key, found in near.items():
        assert key not in found
        assert len(set(found)) == len(found)
        assert all(key in near[other] for other in found)


def test_any_neighbour_includes_the_adjacent_ones(space: Space) -> None:
    for point in space.sample(10, rng()):
        near, every = (set(space.key(space.neighbours(point, a)).tolist()) for a in (True, False))
        assert near <= every


def test_keys_tell_points_apart(space: Space) -> None:
    keys = space.key(space.enumerate())
    assert keys.dtype == np.uint64
    assert len(np.unique(keys)) == len(keys)


def test_encoding(space: Space) -> None:
    points = space.enumerate()
    x = space.encode(points)
    assert x.shape == (len(points), len(space.columns))
    assert np.isfinite(x).all()
    assert len(np.unique(x, axis=0)) == len(points)


def test_the_same_seed_gives_the_same_points(space: Space) -> None:
    def trace(seed: int) -> Points:
        r = rng(seed)
        a = space.sample(64, r)
        return Points.concat([a, space.mutate(a, r), space.crossover(a, a[::-1], r), space.sample_new(5, r).points])

    assert trace(7) == trace(7)
    assert trace(7) != trace(8)


def test_new_points_until_there_are_none(space: Space) -> None:
    seen: set[int] = set()
    r = rng()
    while True:
        sample = space.sample_new(7, r, seen)
        keys = space.key(sample.points).tolist()
        assert not seen & set(keys)
        assert len(set(keys)) == len(keys)
        assert space.valid(sample.points).all()
        seen |= set(keys)
        if sample.exhausted:
            break
        assert len(keys) == 7
    assert seen == set(space.key(space.enumerate()).tolist())
    assert "exhausted" in sample.reason
    again = space.sample_new(1, r, space.key(space.enumerate()))
    assert again.exhausted
    assert len(again.points) == 0


def test_values_are_the_options(space: Space) -> None:
    points = space.sample(50, rng())
    values = space.values(points)
    for n, point in enumerate(points):
        sketch = space.sketches[int(point.sketch[0])]
        for k, option in zip(sketch.knobs, point.options[0].tolist()):
            assert [int(values[s][n]) for s in k.symbols] == k.options[option].tolist()
        assert all(int(v[n]) == -1 for s, v in values.items() if s not in sketch.symbols)
        assert space.text(point).startswith(sketch.name + "(")


# --- keys and hashes in other processes -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [several, programs], ids=lambda f: f.__name__)
def test_keys_are_the_same_in_another_process(make: Callable[[], Space]) -> None:
    code = (
        f"import runpy; s = runpy.run_path({__file__!r})[{make.__name__!r}]();"
        "print(s.hash, *s.key(s.enumerate()).tolist())"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    space = make()
    assert run.stdout.split() == [space.hash, *map(str, space.key(space.enumerate()).tolist())]


def test_keys_survive_more_options() -> None:
    small = Space([Sketch("s", (menu("a", [2, 4]), category("c", ["x", "y"])))])
    large = Space([Sketch("s", (menu("a", [1, 2, 4, 8]), category("c", ["w", "x", "y"])))])
    assert set(small.key(small.enumerate()).tolist()) < set(large.key(large.enumerate()).tolist())
    assert small.hash != large.hash


# --- parts ------------------------------------------------------------------------------------------------------------


def test_constraints_split_a_sketch_into_parts() -> None:
    parts = tied().sketches[0].parts
    assert [(type(p).__name__, p.at) for p in parts] == [("Listed", (0, 1, 2)), ("Free", (3,))]


def test_conditions_that_always_hold_cost_nothing() -> None:
    knobs = (split_knob("i", 24, 2), split_knob("j", 16, 2))
    sketch = Sketch("matmul", knobs, program=matmul_program())
    assert len(sketch.conditions) == 2
    assert [type(p).__name__ for p in sketch.parts] == ["Free", "Free"]


def test_parts_too_large_to_list_are_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = tied()
    listed = {tuple(r) for r in exact.enumerate().rows()}
    monkeypatch.setattr(parts_module, "MOST_LISTED", 4)
    space = tied()
    assert not space.size.exact
    assert space.size.valid == pytest.approx(len(listed), rel=0.05)
    drawn = space.sample(4000, rng())
    assert {tuple(r) for r in drawn.rows()} == listed
    assert space.valid(space.mutate(drawn, rng(1))).all()
    assert space.valid(space.crossover(drawn, drawn[::-1], rng(1))).all()
    with pytest.raises(SpaceError, match="too large to be listed: about"):
        space.enumerate()
    rest = space.sample_new(5, rng(), exact.key(exact.enumerate()))
    assert rest.exhausted
    assert len(rest.points) == 0
    assert "bounded number of draws" in rest.reason


def test_large_spaces_have_exact_sizes_and_indices() -> None:
    knobs = [split_knob(f"x{n}_", 4096, 4) for n in range(9)]
    space = Space([Sketch("s", tuple(knobs), (knob("x0_3") <= 64,)), Sketch("t", (menu("a", [1, 2]),))])
    assert space.size.exact
    assert space.size.cartesian > 1 << 63
    points = space.sample(100, rng())
    assert space.at(space.index(points)) == points
    assert len(set(space.key(points).tolist())) == 100
    assert not space.sample_new(100, rng(), space.key(points)).exhausted


# --- nothing to find --------------------------------------------------------------------------------------------------


def test_an_empty_space_says_why() -> None:
    space = Space([Sketch("s", (menu("a", [1, 2]), menu("b", [1, 2])), (knob("a") + knob("b") <= 1,))], "none")
    assert space.size.valid == 0
    with pytest.raises(SpaceError, match="space 'none' has no valid point: nothing meets a \\+ b <= 1"):
        space.sample(1, rng())
    sample = space.sample_new(3, rng())
    assert (len(sample.points), sample.exhausted) == (0, True)
    assert len(space.enumerate()) == 0
    assert not space.valid(space.at([0, 1, 2, 3])).any()


def test_a_space_too_thin_to_draw_from_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "MOST_LISTED", 4)
    monkeypatch.setattr(parts_module, "MOST_DRAWS", 1 << 12)
    wide = tuple(menu(c, range(1, 1001)) for c in "abc")
    space = Space([Sketch("s", wide, (knob("a") + knob("b") + knob("c") <= 3,))])
    with pytest.raises(SpaceError, match="0 of 2 points found"):
        space.sample(2, rng())
    assert space.sample_new(2, rng()).exhausted


def test_one_point_has_nowhere_to_go() -> None:
    space = Space([Sketch("s", (menu("a", [4]), split_knob("i", 1, 2)))])
    (point,) = space.enumerate()
    assert space.mutate(point, rng()) == point
    assert space.crossover(point, point, rng()) == point
    assert len(space.neighbours(point)) == 0


def test_empty_batches_are_fine(space: Space) -> None:
    none = space.sample(0, rng())
    assert len(space.mutate(none, rng())) == len(space.crossover(none, none, rng())) == len(space.key(none)) == 0
    assert space.encode(none).shape == (0, len(space.columns))


# --- programs ---------------------------------------------------------------------------------------------------------


def test_every_point_becomes_a_program() -> None:
    space = programs()
    points = space.enumerate()
    assert {(int(i), int(j)) for i, j in zip(*space.values(points).values())} == {
        (i, j) for i in (1, 2, 3, 4, 6, 8) for j in (2, 4, 8)
    }
    for point in points[::5]:
        assert space.program(point).symbols == ()


def test_outer_factors_may_be_left_to_the_schedule() -> None:
    space = Space([Sketch("m", (split_knob("i", 24, 2), split_knob("j", 16, 2)), program=matmul_program())])
    point = space.sample(1, rng())
    assert space.program(point).symbols == ()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sketch("s", (menu("i1", [2]),), program=matmul_program()), "no knob gives j1 of the program"),
        (lambda: Sketch("s", (menu("a", [2]), menu("a", [3], "b"))), "two knobs 'a'"),
        (lambda: Sketch("s", (menu("a", [2]), menu("b", [3], "a"))), "two symbols 'a'"),
        (lambda: Sketch("s", (menu("a", [2]),), (knob("b") <= 2,)), "no knob gives 'b'"),
        (lambda: Sketch("s", (menu("a", [2]),), (knob("a") + 2,)), "is not a condition"),
        (lambda: Sketch("s", ()), "has no knobs"),
        (lambda: Space([]), "has no sketches"),
        (lambda: Space([Sketch("s", (menu("a", [2]),))] * 2), "two sketches have the same name"),
        (lambda: free().at([10**6]), "no index 1000000"),
        (lambda: free().program(free().sample(1, rng())), "has no program"),
        (lambda: free().neighbours(free().sample(2, rng())), "expected one valid point"),
        (lambda: free().key(Points.of([[0, 1]])), "points of 3 options, not 1"),
        (lambda: RecordedSpace([Sketch("s", (menu("a", [2]),))]), "every sketch of a recorded space has rows"),
        (lambda: RecordedSpace.of([menu("a", [2, 3])], np.array([[0], [0]], np.int32)), "listed twice"),
        (lambda: RecordedSpace.of([menu("a", [2, 3])], np.array([[2]], np.int32)), "not one option for each"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        make()


# --- recorded spaces --------------------------------------------------------------------------------------------------


def test_rows_of_a_recorded_space() -> None:
    space = recorded()
    assert isinstance(space, RecordedSpace)
    points = space.points()
    assert space.row(points).tolist() == list(range(len(points)))
    assert space.points([3, 1]) == points[[3, 1]]
    every = space.at(range(space.size.cartesian))
    assert ((space.row(every) >= 0) == space.valid(every)).all()
    assert space.row(Points.of([[0, 9, 9, 9], [5, 0, 0, 0]])).tolist() == [-1, -1]


def test_a_recorded_space_of_several_sketches() -> None:
    live = several()
    sketches = [
        Sketch(s.name, s.knobs, rows=live.enumerate()[live.enumerate().sketch == n].options[:, : len(s.knobs)])
        for n, s in enumerate(live.sketches)
    ]
    space = RecordedSpace(sketches, "again")
    assert space.enumerate() == live.enumerate()
    assert (space.key(space.points()) == live.key(live.enumerate())).all()
    assert space.row(space.points()).tolist() == list(range(space.size.valid))


# --- completing -------------------------------------------------------------------------------------------------------


def beginnings(space: Space, n: int, seed: int) -> tuple[Points, Points, Ints]:
    """Valid points, the same with random options after the first few, and how many those are."""
    rng = np.random.default_rng(seed)
    points = space.sample(n, rng)
    knobs = np.array([len(s.knobs) for s in space.sketches])[points.sketch]
    lengths = (rng.random(n) * (knobs + 1)).astype(np.int64)
    other = points.options.copy()
    for row, (sketch, length) in enumerate(zip(points.sketch.tolist(), lengths.tolist(), strict=True)):
        sizes = space.sketches[sketch].sizes
        other[row, length : len(sizes)] = rng.integers(sizes)[length:]
    return points, Points(points.sketch, other), lengths


@pytest.mark.parametrize("make", SPACES)
@pytest.mark.parametrize("listed", [True, False])
def test_completions_keep_the_beginning(
    make: Callable[[], Space], listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not listed:
        monkeypatch.setattr(parts_module, "MOST_LISTED", 4)
    space = make()
    points, begun, lengths = beginnings(space, 300, 7)
    done, found = space.continued(begun, lengths, np.random.default_rng(8))
    assert found.all() and space.valid(done).all() and (done.sketch == points.sketch).all()
    for before, after, length in zip(points.options, done.options, lengths.tolist(), strict=True):
        assert (before[:length] == after[:length]).all()
    again, _ = space.continued(begun, lengths, np.random.default_rng(8))
    assert again == done


@pytest.mark.parametrize("make", [tied, recorded])
def test_completions_are_equally_likely(make: Callable[[], Space]) -> None:
    space = make()
    first = space.enumerate()[[0] * 4000]
    done, _ = space.continued(first, np.ones(4000, np.int64), np.random.default_rng(9))
    all_points = space.enumerate()
    possible = all_points[all_points.options[:, 0] == first.options[0, 0]]
    counts = np.unique(space.key(done), return_counts=True)[1]
    assert len(counts) == len(possible) and counts.min() > 0.6 * 4000 / len(possible)


def test_a_beginning_that_leads_nowhere_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (1 << 22, 4):
        monkeypatch.setattr(parts_module, "MOST_LISTED", limit)
        begun = Points.of([[0, 0, 2, 0, 0], [0, 0, 0, 0, 0]])  # 1x16 leaves 8x1 for j, and no a but 1
        assert tied().continued(begun, np.array([2, 2]), np.random.default_rng(0))[1].tolist() == [False, True]
    missing = Points.of([[0, 0, 0, 0], [0, 0, 0, 1]])
    assert recorded().continued(missing, np.array([3, 3]), np.random.default_rng(0))[1].tolist() == [False, True]
