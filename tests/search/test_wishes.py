"""Wishes: the nearest valid point, whatever options and conditions there are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.ir.expr import compare, knob
from searchlab.search import Knob, Points, Sketch, Space, category, menu, split_knob
from searchlab.search.parts import MOST_LISTED, Tested
from searchlab.search.wishes import Wish, nearest


def chosen(space: Space, *wishes: Wish, most: int = 8) -> list[dict[str, object]]:
    return [space.choice(p)["knobs"] for p in nearest(space, wishes, most)]


def test_a_wish_that_can_be_met_is_met() -> None:
    space = Space(
        [Sketch("tile", (split_knob("i", 64, 3), menu("unroll", [1, 16, 64]), category("order", ["a", "b"])))]
    )
    wish = Wish("tile", {"i": (None, 2, 8), "unroll": 16, "order": "b"})
    assert chosen(space, wish) == [{"i": [4, 2, 8], "unroll": 16, "order": "b"}]


def test_what_is_not_wished_for_is_small_and_the_rest_of_a_split_outermost() -> None:
    space = Space([Sketch("tile", (split_knob("i", 64, 3), menu("unroll", [64, 16, 1])))])
    assert chosen(space, Wish("tile", {})) == [{"i": [64, 1, 1], "unroll": 1}]
    assert chosen(space, Wish("tile", {"i": 4})) == [{"i": [16, 1, 4], "unroll": 1}]


def test_a_tile_that_is_too_large_is_worse_than_one_that_is_too_small() -> None:
    space = Space([Sketch("tile", (split_knob("i", 64, 2),))])
    assert chosen(space, Wish("tile", {"i": 14})) == [{"i": [8, 8]}]


def test_more_options_come_nearer() -> None:
    rows = np.concatenate([split_knob("i", 509, 2).options, [[85, 6], [8, 64]]])
    space = Space([Sketch("tile", (Knob("i", "split", ("i0", "i1"), rows),))])
    assert chosen(space, Wish("tile", {"i": 6}), Wish("tile", {"i": (8, 64)})) == [{"i": [85, 6]}, {"i": [8, 64]}]


def test_the_first_structure_that_matches_counts_and_unknown_ones_are_left_out() -> None:
    one = (menu("a", [1, 2]),)
    space = Space([Sketch("pack", one), Sketch("pack/B@C0", one), Sketch("pack/B@C1", one)])
    found = nearest(space, [Wish("none", {}), Wish("pack/*", {"a": 2}), Wish("pack*", {}), Wish("*", {})], 8)
    assert [space.text(p) for p in found] == ["pack/B@C0(a=2)", "pack(a=1)"]
    assert len(nearest(space, [Wish("*", {"a": 1}), Wish("*", {"a": 2})], 1)) == 1


wished = st.fixed_dictionaries({"a": st.integers(1, 70), "b": st.integers(1, 70)})


@given(wished, st.integers(1, 300))
@settings(max_examples=40)
def test_conditions_hold_and_nothing_valid_is_nearer(values: dict[str, int], most: int) -> None:
    options = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64]
    sketch = Sketch("s", (menu("a", options), menu("b", options)), (compare("le", knob("a") * knob("b"), most),))
    space = Space([sketch])
    point = nearest(space, [Wish("s", values)], 1)
    assert space.valid(point).all()

    def cost(choice: dict[str, int]) -> float:
        ratios = [np.log((choice[k] + 1) / (values[k] + 1)) for k in "ab"]
        return float(sum(6 * r if r > 0 else -r for r in ratios))

    every = [space.choice(p)["knobs"] for p in space.enumerate()]
    assert cost(space.choice(point)["knobs"]) == pytest.approx(min(map(cost, every)))


def test_conditions_that_cannot_be_listed_are_met() -> None:
    knobs = tuple(menu(n, list(range(1, 101))) for n in "abcd")
    total = knob("a") + knob("b") + knob("c") + knob("d")
    sketch = Sketch("s", knobs, (compare("le", total, 120),))
    assert sketch.cartesian > MOST_LISTED and isinstance(sketch.parts[0], Tested)
    space = Space([sketch])
    point = nearest(space, [Wish("s", dict.fromkeys("abcd", 30))], 1)
    assert [space.choice(point)["knobs"][n] for n in "abcd"] == [30, 30, 30, 30]
    tight = nearest(space, [Wish("s", dict.fromkeys("abcd", 60))], 1)
    assert space.valid(tight).all() and tight == nearest(space, [Wish("s", dict.fromkeys("abcd", 60))], 1)


def test_a_structure_without_valid_points_is_left_out() -> None:
    space = Space([Sketch("s", (menu("a", [2, 3]),), (compare("le", knob("a"), 1),)), Sketch("t", (menu("a", [1]),))])
    assert nearest(space, [Wish("s", {"a": 2}), Wish("t", {})], 4) == Points.of([[1, 0]], space.width)
