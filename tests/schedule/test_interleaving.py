"""reverse_compute_at for a consumer that interleaves: it reads the quotient and the remainder of its index."""

import numpy as np
import pytest
from checked_run import run_checked
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.errors import ScheduleError
from searchlab.ir import Builder, interpret, total
from searchlab.ir.program import Program
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule
from searchlab.targets import parse

TARGET = parse("x86-64-v3")


def interleaved(base: int, places: int, length: int) -> Program:
    """C[p, i] = a sum; Y[j] = C[j % base, j // base]."""
    b = Builder("interleaved")
    X = b.input("X", (base, places, 3))
    r = b.axis("r", 3)
    C = b.compute("C", (base, places), lambda p, i: total(X[p, i, r], r))
    Y = b.compute("Y", (length,), lambda j: C[j % base, j // base] + 1.0)
    return b.program(Y)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4), st.integers(1, 6), st.data())
def test_every_element_is_written_once_its_digits_are_known(base, places, data):
    length = data.draw(st.integers(max(1, base * places - base), base * places))
    plain = interleaved(base, places, length)
    s = Schedule(plain)
    phase = s.split("p", [None, data.draw(st.integers(1, base + 1))], tail=True)
    place = s.split("i", [None, data.draw(st.integers(1, places + 1))], tail=True)
    orders = ([phase[0], place[0], phase[1], place[1]], [place[0], phase[0], place[1], phase[1]])
    order = data.draw(st.sampled_from(orders))
    s.reorder(*order, "r")
    s.reverse_compute_at("Y", order[data.draw(st.integers(0, 3))])
    inputs = {"X": np.random.default_rng(length).integers(-9, 10, (base, places, 3)).astype("float32")}
    expected = interpret(plain, inputs)["Y"]
    assert np.array_equal(interpret(s.program, inputs)["Y"], expected)
    assert np.array_equal(run_checked(lower(s.program, TARGET), s.program, inputs)["Y"], expected)


def test_whole_phases_are_written_one_element_after_the_other():
    s = Schedule(interleaved(2, 8, 16))
    outer, inner = s.split("i", [None, 4])
    s.reorder(outer, "p", inner)
    s.reverse_compute_at("Y", outer)
    (at,) = s.program.blocks["Y"].bindings
    assert str(at) == f"Y_j + {outer}*8" or str(at) == f"{outer}*8 + Y_j", at


def test_digits_of_different_bases_do_not_belong_together():
    b = Builder("bases")
    X = b.input("X", (3, 4))
    C = b.compute("C", (3, 4), lambda p, i: X[p, i] * 2.0)
    Y = b.compute("Y", (8,), lambda j: C[j % 3, j // 2])
    s = Schedule(b.program(Y))
    with pytest.raises(ScheduleError, match="not one element per iteration"):
        s.reverse_compute_at("Y", "p")
