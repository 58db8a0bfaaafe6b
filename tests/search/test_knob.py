"""Knobs: their options against brute force, their neighbourhoods, how they look to models and records."""

import itertools
import math

import numpy as np
import pytest

from searchlab.search import Knob, SpaceError, category, menu, split_knob
from searchlab.search.knob import factorize


def by_force(extent: int, parts: int, max_inner: int | None = None) -> list[tuple[int, ...]]:
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    found = (f for f in itertools.product(divisors, repeat=parts) if math.prod(f) == extent)
    return sorted(f for f in found if max_inner is None or f[-1] <= max_inner)


@pytest.mark.parametrize("extent", [1, 2, 7, 12, 36, 56, 97, 120, 128])
@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_a_split_lists_every_factorisation(extent: int, parts: int) -> None:
    assert [tuple(row) for row in split_knob("i", extent, parts).options.tolist()] == by_force(extent, parts)


@pytest.mark.parametrize(("extent", "parts", "inner"), [(36, 3, 4), (512, 4, 16), (97, 2, 8), (12, 1, 12)])
def test_the_innermost_factor_can_be_limited(extent: int, parts: int, inner: int) -> None:
    table = split_knob("i", extent, parts, inner).options.tolist()
    assert [tuple(row) for row in table] == by_force(extent, parts, inner)


@pytest.mark.parametrize(("extent", "parts", "count"), [(512, 4, 220), (512, 2, 10), (3136, 4, 840), (97, 3, 3)])
def test_the_number_of_splits(extent: int, parts: int, count: int) -> None:
    assert len(split_knob("i", extent, parts)) == count


def neighbours(knob: Knob) -> dict[int, set[int]]:
    first, flat = knob.neighbours
    return {o: set(flat[first[o] : first[o + 1]].tolist()) for o in range(len(knob))}


@pytest.mark.parametrize(("extent", "parts", "inner"), [(36, 3, None), (64, 4, None), (210, 2, None), (96, 3, 8)])
def test_neighbouring_splits_differ_by_one_prime_factor(extent: int, parts: int, inner: int | None) -> None:
    knob = split_knob("i", extent, parts, inner)
    rows = [tuple(r) for r in knob.options.tolist()]
    for o, found in neighbours(knob).items():
        expected = set()
        for give, take in itertools.permutations(range(parts), 2):
            for prime in factorize(rows[o][give]):
                moved = list(rows[o])
                moved[give] //= prime
                moved[take] *= prime
                if tuple(moved) in rows:
                    expected.add(rows.index(tuple(moved)))
        assert found == expected


KNOBS = [
    split_knob("i", 96, 3), split_knob("i", 96, 3, 4), split_knob("i", 7, 1), menu("u", [0, 1, 4, 16]), menu("u", [3]),
    category("c", ["a", "b", "c"]), category("c", [5, 2]), menu("f", [0.5, 1.0, 1.5]), menu("n", [-2, 0, 3]),
]  # fmt: skip


@pytest.mark.parametrize("knob", KNOBS, ids=repr)
def test_what_every_knob_keeps(knob: Knob) -> None:
    near = neighbours(knob)
    assert all(o not in found for o, found in near.items())
    assert all(o in near[other] for o, found in near.items() for other in found)
    assert knob.encoding.shape == (len(knob), len(knob.columns))
    assert np.isfinite(knob.encoding).all()
    assert len(np.unique(knob.encoding, axis=0)) == len(knob)
    assert len(set(knob.hashes.tolist())) == len(knob)
    again = Knob.from_json(knob.to_json())
    assert again.to_json() == knob.to_json()
    assert [again.label(n) for n in range(len(knob))] == [knob.label(n) for n in range(len(knob))]


def test_neighbours_of_menus_and_categories() -> None:
    assert neighbours(menu("u", [0, 1, 4])) == {0: {1}, 1: {0, 2}, 2: {1}}
    assert neighbours(category("c", ["x", "y", "z"])) == {0: {1, 2}, 1: {0, 2}, 2: {0, 1}}


def test_encodings() -> None:
    assert menu("t", [1, 2, 8]).encoding.ravel().tolist() == [0, 1, 3]
    assert menu("u", [0, 1, 3]).encoding.ravel().tolist() == [0, 1, 2]
    assert menu("f", [0.5, 1.0]).encoding.ravel().tolist() == [-1, 0]
    assert category("c", ["x", "y"]).columns == ("c=x", "c=y")
    assert split_knob("i", 8, 2).encoding[1].tolist() == [1, 2]


def test_options_are_found_by_value() -> None:
    assert split_knob("i", 8, 2).find([(2, 4), (3, 3)]).tolist() == [1, -1]
    assert category("c", ["x", "y"]).find([("y",), ("z",)]).tolist() == [1, -1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: menu("u", []), "'u' has no options"),
        (lambda: menu("u", [1, 2, 1]), "'u' lists an option twice"),
        (lambda: category("c", ["x", "x"]), "'c' lists an option twice"),
        (lambda: split_knob("i", 0, 2), "cannot split 0 into 2 parts"),
        (lambda: split_knob("i", 2**60, 6), "too many to be listed"),
        (lambda: Knob("k", "menu", ("a", "b"), np.array([[1], [2]])), "for the symbols a, b"),
        (lambda: Knob("k", "list", ("a",), np.array([[1]])), "unknown kind 'list'"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(make: object, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        make()  # type: ignore[operator]
