"""Splits that round up: what their rows are, which extents have them, and how they lie beside each other."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.search import Knob, SpaceError, check_tails, split_knob, tile_knob
from searchlab.search.rounding import SIZES, SMALL_WASTE, WASTE, divides_well, rounding_knob

EXTENTS = st.integers(1, 600) | st.sampled_from([1021, 2039, 4099])
PARTS = st.integers(2, 4)
LIMITS = st.sampled_from([None, 1, 7, 16, 64])


def rows(knob: Knob) -> set[tuple[int, ...]]:
    return {tuple(row) for row in knob.options.tolist()}


def near(knob: Knob, option: int) -> set[int]:
    first, flat = knob.neighbours
    return set(flat[first[option] : first[option + 1]].tolist())


@settings(max_examples=25)
@given(EXTENTS, PARTS, LIMITS)
def test_every_row_covers_the_extent_and_wastes_little(extent: int, parts: int, most: int | None) -> None:
    knob, exact = rounding_knob("i", extent, parts, most), split_knob("i", extent, parts, most)
    assert rows(exact) <= rows(knob) and len(knob) <= len(exact) + 8192
    for row in rows(knob) - rows(exact):
        assert row[0] == math.ceil(extent / math.prod(row[1:])), "the outermost loop is no longer than it must be"
        assert extent < math.prod(row) <= extent + max(SMALL_WASTE, extent // WASTE)
        assert row[-1] in SIZES and row[-1] <= (most or extent)
        for n, factor in enumerate(row):
            assert (factor - 1) * math.prod(row[n + 1 :]) < extent, "a smaller factor would do as well"
    assert knob.covers == (extent if len(knob) > len(exact) else None)


@settings(max_examples=25)
@given(EXTENTS, PARTS, LIMITS)
def test_only_extents_with_few_divisors_are_rounded_up(extent: int, parts: int, most: int | None) -> None:
    exact = split_knob("i", extent, parts, most)
    auto = tile_knob("i", extent, parts, most, "auto")
    assert tile_knob("i", extent, parts, most, "never").same_options(exact)
    assert rows(auto) <= rows(tile_knob("i", extent, parts, most, "always"))
    if divides_well(extent, parts, most):
        assert auto.same_options(exact) and auto.covers is None


@pytest.mark.parametrize("extent", [1, 3, 7, 8, 14, 16, 24, 28, 32, 56, 64, 96, 100, 112, 224, 512, 768, 1000, 3072])
@pytest.mark.parametrize("parts", [2, 3, 4])
def test_extents_that_divide_well(extent: int, parts: int) -> None:
    assert divides_well(extent, parts, 64)


@pytest.mark.parametrize("extent", [17, 26, 29, 49, 55, 77, 127, 509, 1018, 2036])
def test_extents_that_do_not(extent: int) -> None:
    assert not divides_well(extent, 4, 64)


@pytest.mark.parametrize(("extent", "well"), [(58, True), (29, True), (77, True), (127, False), (226, False)])
def test_vectors_need_any_divisor(extent: int, well: bool) -> None:
    assert divides_well(extent, 2, 64) is well


def test_a_prime_is_tiled_like_the_power_of_two_above_it() -> None:
    found = rows(tile_knob("i", 509, 4, 64))
    assert {r for r in rows(split_knob("i", 512, 4, 64)) if r[-1] >= 4} <= found
    assert {(37, 1, 1, 14), (1, 11, 1, 48), (1, 509, 1, 1)} <= found


@settings(max_examples=25)
@given(EXTENTS, PARTS, LIMITS)
def test_neighbours(extent: int, parts: int, most: int | None) -> None:
    knob = rounding_knob("i", extent, parts, most)
    table = knob.options.tolist()
    for option in np.random.default_rng(0).integers(len(knob), size=8).tolist():
        found = near(knob, option)
        assert option not in found and all(option in near(knob, n) for n in found)
        for n in found:
            changed = [s for s in range(1, parts) if table[option][s] != table[n][s]]
            same = math.prod(table[option]) == math.prod(table[n])
            assert len(changed) == 1 or (len(changed) == 2 and same), (table[option], table[n])


def test_every_row_is_reached_from_every_other() -> None:
    knob = rounding_knob("i", 127, 4, 64)
    reached, left = {0}, [0]
    while left:
        new = near(knob, left.pop()) - reached
        reached |= new
        left += new
    assert len(reached) == len(knob)


def test_a_step_goes_to_the_next_size() -> None:
    knob = rounding_knob("i", 509, 2, 64)
    sizes = sorted(knob.options[:, 1].tolist())
    inner = knob.options[:, 1].tolist()
    steps = {frozenset((inner[o], inner[n])) for o in range(len(knob)) for n in near(knob, o)}
    assert {frozenset(pair) for pair in itertools.pairwise(sizes)} <= steps


@settings(max_examples=25)
@given(EXTENTS, PARTS)
def test_records_and_keys(extent: int, parts: int) -> None:
    knob, exact = rounding_knob("i", extent, parts, 64), split_knob("i", extent, parts, 64)
    again = Knob.from_json(knob.to_json())
    assert again.same_options(knob) and again.covers == knob.covers
    assert all(a.tolist() == b.tolist() for a, b in zip(again.neighbours, knob.neighbours, strict=True))
    assert "covers" not in exact.to_json()
    assert all(knob.option(knob.value(n)) == n for n in range(0, len(knob), 7))
    hashes = dict(zip(map(knob.label, range(len(knob))), knob.hashes.tolist(), strict=True))
    assert all(hashes[exact.label(n)] == h for n, h in enumerate(exact.hashes.tolist())), "keys of old points stay"
    assert len(np.unique(knob.encoding, axis=0)) == len(knob)


def test_a_word_that_is_none_is_refused() -> None:
    with pytest.raises(SpaceError, match="tails = 'sometimes': accepted are auto, always, never"):
        check_tails("sometimes")
