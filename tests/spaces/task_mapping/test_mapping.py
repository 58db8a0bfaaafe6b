"""The laws of task mappings, on shapes that are not symmetric."""

from collections import Counter
from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.errors import SpaceError
from searchlab.ir.expr import knob, value_of
from spaces.task_mapping import TaskMapping, auto_map, call, custom, projection, repeat, spatial

few = settings(max_examples=60, deadline=None)


@st.composite
def atoms(draw: st.DrawFn, rank: int) -> TaskMapping:
    shape = draw(st.lists(st.integers(1, 5 - rank), min_size=rank, max_size=rank))
    ranks = draw(st.permutations(range(rank)))
    return draw(st.sampled_from([repeat, spatial]))(*shape, ranks=ranks)


@st.composite
def chains(draw: st.DrawFn, count: int) -> list[TaskMapping]:
    rank = draw(st.integers(1, 3))
    return [draw(atoms(rank)) for _ in range(count)]


def workers(m: TaskMapping) -> int:
    count = value_of(m.num_workers)
    assert count is not None
    return count


def shape(m: TaskMapping) -> tuple[int, ...]:
    return tuple(value_of(e) or 0 for e in m.task_shape)


@few
@given(chains(3))
def test_composition_is_associative(abc: list[TaskMapping]) -> None:
    a, b, c = abc
    assert (a * b) * c == a * (b * c)
    left, right = (a * b) * c, a * (b * c)
    assert [left(w) for w in range(workers(left))] == [right(w) for w in range(workers(right))]


@few
@given(chains(2))
def test_composition_follows_its_definition(ab: list[TaskMapping]) -> None:
    outer, inner = ab
    both, n, d = outer * inner, workers(inner), shape(inner)
    assert workers(both) == workers(outer) * n
    assert shape(both) == tuple(x * y for x, y in zip(shape(outer), d, strict=True))
    for w in range(workers(both)):
        expected = [
            tuple(o * s + i for o, s, i in zip(big, d, small, strict=True))
            for big in outer(w // n)
            for small in inner(w % n)
        ]
        assert both(w) == expected


@few
@given(chains(3))
def test_atoms_partition_the_tasks(abc: list[TaskMapping]) -> None:
    m = abc[0] * abc[1] * abc[2]
    lists = [m(w) for w in range(workers(m))]
    seen = Counter(t for tasks in lists for t in tasks)
    assert seen == Counter(product(*map(range, shape(m))))
    assert {len(tasks) for tasks in lists} == {prod(shape(m)) // workers(m)}


@few
@given(chains(1))
def test_identity(one: list[TaskMapping]) -> None:
    m = one[0]
    for identity in (repeat(*(1,) * m.rank), spatial(*(1,) * m.rank)):
        assert identity * m == m == m * identity


def test_composition_does_not_commute() -> None:
    assert repeat(2) * spatial(3) != spatial(3) * repeat(2)
    assert (repeat(2) * spatial(3))(0) == [(0,), (3,)]
    assert (spatial(3) * repeat(2))(0) == [(0,), (1,)]
    # the outer task is scaled by the inner shape: the other way round would give (0, 2), (0, 7) here
    assert (repeat(1, 2) * spatial(1, 5))(2) == [(0, 2), (0, 7)]
    assert (repeat(1, 5) * spatial(1, 2))(1) == [(0, 1), (0, 3), (0, 5), (0, 7), (0, 9)]


@few
@given(st.integers(1, 5), st.integers(1, 5))
def test_repeats_of_one_dimension_keep_the_order(a: int, b: int) -> None:
    assert repeat(a) * repeat(b) == repeat(a * b)


def test_repeats_of_two_dimensions_change_the_order() -> None:
    tiled, plain = repeat(2, 2) * repeat(2, 3), repeat(4, 6)
    assert tiled != plain and sorted(tiled(0)) == plain(0)
    assert tiled(0)[:4] == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_ranks() -> None:
    assert repeat(2, 3, ranks=(1, 0))(0) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    columns = spatial(2, 3, ranks=(1, 0))
    assert [columns(w)[0] for w in range(6)] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    rotated = spatial(2, 3, 4, ranks=(2, 0, 1))
    assert rotated(7) == [(1, 0, 3)]


def test_examples() -> None:
    load = repeat(4, 1) * spatial(16, 8)
    assert workers(load) == 128 and shape(load) == (64, 8) and load(9) == [(1, 1), (17, 1), (33, 1), (49, 1)]
    lanes = spatial(4, 8) * repeat(2, 2)
    assert workers(lanes) == 32 and lanes(9) == [(2, 2), (2, 3), (3, 2), (3, 3)]


def test_projection_shares_tasks() -> None:
    m = projection(spatial(2, 3), {0: 0})
    assert workers(m) == 6 and shape(m) == (1, 3)
    assert [m(w) for w in range(6)] == [[(0, j)] for j in (0, 1, 2, 0, 1, 2)]
    both = repeat(2, 1) * m
    assert shape(both) == (2, 3) and both(4) == [(0, 1), (1, 1)]


def test_custom() -> None:
    diagonal = custom((3, 3), 3, lambda w: [(w, w)])
    assert [diagonal(w) for w in range(3)] == [[(0, 0)], [(1, 1)], [(2, 2)]]
    assert (repeat(1, 2) * diagonal)(1) == [(1, 1), (1, 4)]


@few
@given(st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(1, 16))
def test_auto_map_gives_neighbours_to_neighbours(extents: list[int], count: int) -> None:
    try:
        m = auto_map(extents, count)
    except SpaceError:
        return
    assert workers(m) == count and shape(m) == tuple(extents)
    seen = Counter(t for w in range(count) for t in m(w))
    assert seen == Counter(product(*map(range, extents)))


def test_auto_map_example() -> None:
    assert auto_map((8, 96), 64) == repeat(4, 3) * spatial(2, 32)
    assert str(auto_map((8, 96), 64)) == "repeat(4, 3) * spatial(2, 32)"


def test_symbols() -> None:
    m = repeat(knob("a"), 1) * spatial(2, knob("b"))
    assert str(m) == "repeat(a, 1) * spatial(2, b)" and m == repeat(knob("a"), 1) * spatial(2, knob("b"))
    with pytest.raises(SpaceError, match="is a symbol: a list of tasks needs integers"):
        m(0)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: repeat(2) * repeat(2, 3), "ranks must be equal"),
        (lambda: repeat(2, 0), "below 1"),
        (lambda: repeat(), "at least one dimension"),
        (lambda: spatial(2, 3, ranks=(0, 2)), "each once"),
        (lambda: repeat(2, kind="fast"), "known: serial, unrolled, vectorized"),
        (lambda: spatial(3)(3), "no worker 3: the mapping has 3"),
        (lambda: projection(spatial(3), {1: 0}), "accepted: {dimension: 0}"),
        (lambda: projection(spatial(3), {0: 1}), "accepted: {dimension: 0}"),
        (lambda: auto_map((4, 6), 9), "cannot share 4x6 tasks evenly"),
        (lambda: custom((3, 3), 2, lambda w: [(w,)])(0), "2 indices of its task shape"),
        (lambda: repeat(3).on(), "inside `with Writer"),
    ],
)
def test_refusals(bad: object, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        bad()  # type: ignore[operator]


# --- calls ------------------------------------------------------------------------------------------------------------


def test_a_call_has_the_tasks_of_its_intrinsic() -> None:
    tile = repeat(2, 1, 3) * call("avx2_u8s8_8x4", (1, 2), rank=3)
    assert shape(tile) == (2, 8, 12) and workers(tile) == 1
    assert tile(0)[:5] == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 0)]
    assert sorted(tile(0)) == sorted(product(*map(range, shape(tile))))
    assert repr(tile) == "repeat(2, 1, 3) * call('avx2_u8s8_8x4', (1, 2), rank=3)"


def test_several_loops_of_a_call_along_one_dimension() -> None:
    groups = call("vnni_s8s8_16x16", (1, 0, 0), rank=2)  # columns, groups of the sum, four of each
    assert shape(groups) == (16, 16) and [e.value for e in groups.atoms[0].along(0)] == [4, 4]  # type: ignore[attr-defined]
    assert sorted(groups(0)) == sorted(product(range(16), range(16)))


def test_calls_that_are_refused() -> None:
    with pytest.raises(SpaceError, match="whose loops are 8 x 4; accepted: a dimension from 0 to 2 for each loop"):
        call("avx2_u8s8_8x4", (1,), rank=3)
    with pytest.raises(SpaceError, match="ends with a call, which has nothing inside"):
        call("avx2_u8s8_8x4", (0, 1), rank=2) * repeat(2, 2)
