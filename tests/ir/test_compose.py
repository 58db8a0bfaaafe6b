"""Programs joined into one compute what they compute one after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import random_inputs, random_program

from searchlab.backend import compile
from searchlab.errors import IRError
from searchlab.ir import Builder, Expr, Program, interpret, knob, maximum, size, total
from searchlab.ir.compose import compose
from searchlab.ir.compute import Tensor
from searchlab.schedule import Schedule
from searchlab.targets import detect


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 100_000))
def test_composed_programs_compute_one_after_the_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = random_program(rng)
    fed = a.outputs[int(rng.integers(len(a.outputs)))]
    b = random_program(rng, Tensor(a.buffers[fed]))
    both = compose("both", [a, b], {(1, "I0"): (0, fed)})
    first, second = random_inputs(a, rng), random_inputs(b, rng)
    one = interpret(a, first)
    two = interpret(b, {**second, "I0": one[fed]})
    given = [*first.values(), *(x for n, x in second.items() if n != "I0")]
    found = interpret(both, dict(zip(both.inputs, given, strict=True)))
    expected = [*(x for n, x in one.items() if n != fed), *two.values()]
    assert len(found) == len(expected)
    for x, y in zip(found.values(), expected, strict=True):
        np.testing.assert_array_equal(x, y)


def product(m: Expr | int, n: Expr | int, k: Expr | int) -> Program:
    b = Builder("product")
    x, w = b.input("X", (m, k)), b.input("W", (k, n))
    r = b.axis("k", k)
    return b.program(b.compute("Y", (m, n), lambda i, j: total(x[i, r] * w[r, j], r)))


def relu(m: Expr | int, n: Expr | int) -> Program:
    b = Builder("relu")
    x = b.input("X", (m, n))
    return b.program(b.compute("Y", (m, n), lambda i, j: maximum(x[i, j], 0)))


FEEDS = {(1, "X"): (0, "Y"), (2, "X"): (1, "Y")}


def test_a_chain_of_layers() -> None:
    whole = compose("mlp", [product(4, 8, 6), relu(4, 8), product(4, 5, 8)], FEEDS)
    assert whole.inputs == ("X", "W", "W_2") and whole.outputs == ("Y_3",)
    assert list(whole.blocks) == ["Y", "Y_2", "Y_3"] and len(whole.loops) == 3 + 2 + 3
    rng = np.random.default_rng(0)
    x, v, w = (rng.standard_normal(s).astype(np.float32) for s in ((4, 6), (6, 8), (8, 5)))
    expected = np.maximum(x @ v, 0) @ w
    np.testing.assert_allclose(interpret(whole, {"X": x, "W": v, "W_2": w})["Y_3"], expected, rtol=1e-4, atol=1e-5)
    s = Schedule(whole)
    s.compute_inline("Y_2")
    s.vectorize("j_3")
    np.testing.assert_allclose(compile(s.program, detect(1))(x, v, w), expected, rtol=1e-4, atol=1e-5)


def test_sizes_become_what_is_fed() -> None:
    whole = compose("mlp", [product(size("rows"), 8, 6), relu(size("m"), size("n")), product(size("m"), 5, 8)], FEEDS)
    assert whole.sizes == ("rows",) and str(whole.buffers["Y_3"].shape[0]) == "rows"
    rng = np.random.default_rng(0)
    x, v, w = (rng.standard_normal(s).astype(np.float32) for s in ((3, 6), (6, 8), (8, 5)))
    found = interpret(whole, {"X": x, "W": v, "W_2": w}, {"rows": 3})["Y_3"]
    np.testing.assert_allclose(found, np.maximum(x @ v, 0) @ w, rtol=1e-4, atol=1e-5)


def test_knobs_are_kept_apart() -> None:
    def tiled() -> Program:
        s = Schedule(relu(8, 8))
        s.split("i", [None, knob("t")])
        return s.program

    whole = compose("twice", [tiled(), tiled()], {(1, "X"): (0, "Y")})
    assert whole.knobs == ("t", "t_2")
    assert [str(a) for a in whole.assumptions] == ["8 % t == 0", "8 % t_2 == 0"]
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    found = interpret(whole.substitute({"t": 2, "t_2": 4}), {"X": x})
    np.testing.assert_array_equal(found["Y_2"], np.maximum(x, 0))


def test_chosen_outputs_and_an_output_that_feeds_two() -> None:
    feeds = {(1, "X"): (0, "Y"), (2, "X"): (0, "Y")}
    whole = compose("fork", [relu(4, 4), relu(4, 4), relu(4, 4)], feeds, [(2, "Y"), (0, "Y")])
    assert whole.outputs == ("Y_3", "Y") and whole.inputs == ("X",)
    assert compose("fork", [relu(4, 4), relu(4, 4), relu(4, 4)], feeds).outputs == ("Y_2", "Y_3")


def added(m: int, n: int) -> Program:
    b = Builder("added")
    x, y = b.input("X", (4, 4)), b.input("Z", (m, n))
    return b.program(b.compute("Y", (4, 4), lambda i, j: x[i, j] + y[i, j]))


def test_one_output_is_two_inputs_of_one_program() -> None:
    feeds = {(1, "X"): (0, "Y"), (1, "Z"): (0, "Y")}
    whole = compose("doubled", [relu(4, 4), added(4, 4)], feeds)
    x = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    assert whole.inputs == ("X",)
    np.testing.assert_array_equal(interpret(whole, {"X": x})["Y_2"], 2 * np.maximum(x, 0))
    with pytest.raises(IRError, match=r"float32\[4, 9\] of added is fed with float32\[4, 4\]"):
        compose("doubled", [relu(4, 4), added(4, 9)], feeds)


@pytest.mark.parametrize(
    ("programs", "feeds", "words"),
    [
        ([relu(4, 4), relu(4, 5)], {(1, "X"): (0, "Y")}, r"input float32\[4, 5\] of relu is fed with float32\[4, 4\]"),
        ([relu(4, 4), relu(4, knob("t"))], {(1, "X"): (0, "Y")}, r"input float32\[4, t\] of relu"),
        ([relu(4, 5), relu(size("m"), size("m"))], {(1, "X"): (0, "Y")}, r"is fed with float32\[4, 5\]"),
        ([relu(4, 4), relu(4, 4)], {(1, "Z"): (0, "Y")}, "program 1 has no input 'Z'"),
        ([relu(4, 4), relu(4, 4)], {(1, "X"): (0, "Z")}, "program 0 has no output 'Z'"),
        ([relu(4, 4), relu(4, 4)], {(0, "X"): (1, "Y")}, "input 'X' of program 0 cannot be fed by program 1"),
        ([relu(4, 4), relu(4, 4)], {(2, "X"): (1, "Y")}, "program 2 has no input 'X'"),
    ],
)
def test_what_does_not_fit_is_refused(programs: list[Program], feeds: dict, words: str) -> None:
    with pytest.raises(IRError, match=f"compose: .*{words}"):
        compose("whole", programs, feeds)


def test_inputs_that_are_one() -> None:
    """Two programs read the same input, one of them twice; a size that is shared keeps its name and its meaning."""
    n = size("n")
    b = Builder("square")
    x, y = b.input("X", (2 * n, 3)), b.input("Y", (2 * n, 3))
    square = b.program(b.compute("Z", (2 * n, 3), lambda i, j: x[i, j] * y[i, j]))
    feeds = {(1, "X"): (0, "X"), (1, "Y"): (1, "X"), (2, "X"): (0, "Y"), (2, "Y"): (1, "Z")}
    whole = compose("all", [relu(2 * n, 3), square, square], feeds, shared={"n"})
    assert whole.inputs == ("X",) and whole.sizes == ("n",)
    given = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    found = interpret(whole, {"X": given}, {"n": 2})
    np.testing.assert_allclose(found["Z_2"], np.maximum(given, 0) * (given * given), rtol=1e-6)
