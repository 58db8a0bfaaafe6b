"""Turns: everyone once in every round, in the order asked for; failures leave gaps, not wrong pairs."""

import math

import pytest

from searchlab.timing.protocol import figure_of
from searchlab.timing.turns import Turns, alternating, as_given, noise, take_turns


@pytest.mark.parametrize(("order", "expected"), [(as_given, "abcabcabc"), (alternating, "abccbaabc")])
def test_everyone_has_a_turn_in_every_round(order, expected) -> None:  # type: ignore[no-untyped-def]
    seen: list[str] = []

    def sample(name: str) -> tuple[float, ...]:
        seen.append(name)
        return (float(len(seen)), 2.0 * len(seen))

    turns = take_turns("abc", sample, lambda turns: turns.count < 3, order)
    assert "".join(seen) == expected and turns.count == 3
    assert {len(rounds) for rounds in turns.samples.values()} == {3}


def test_rounds_are_complete_before_anybody_decides() -> None:
    """A contender that fails still meets the others of its round."""
    failed: list[str] = []

    def sample(name: str) -> tuple[float, ...]:
        if name == "a":
            failed.append(name)
            return ()
        return (1.0,)

    turns = take_turns(["a", "b"], sample, lambda turns: not failed)
    assert turns.count == 1 and turns.samples == {"a": [()], "b": [(1.0,)]}


def test_pairs_are_of_rounds_in_which_both_have_a_time() -> None:
    turns = Turns(["a", "b"])
    turns.samples = {"a": [(3.0, 1.0, 2.0), (), (5.0,)], "b": [(4.0, 6.0, 6.0), (7.0,), (8.0,)]}
    assert turns.pairs("a", "b") == [(1.0, 4.0), (5.0, 8.0)]
    assert turns.pairs("a", "b", "median") == [(2.0, 6.0), (5.0, 8.0)]


def test_noise_is_that_of_even_and_odd_rounds() -> None:
    turns = Turns(["a", "b"])
    turns.samples = {"a": [(1.0,), (1.1,), (3.0,)], "b": [(2.0,), (2.0,), (2.0,)]}
    assert turns.noise == pytest.approx(0.1) == noise([t.spread for t in turns.times().values()])


def test_figures() -> None:
    assert figure_of((3.0, 1.0, 2.0, 9.0), "fastest") == 1.0 and figure_of((3.0, 1.0, 2.0, 9.0), "median") == 2.5
    assert math.isinf(figure_of((), "fastest"))
