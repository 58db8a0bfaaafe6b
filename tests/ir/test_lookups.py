"""Indices and extents that are looked up in buffers: builder, text, verifier, proofs, interpreter, native code."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import searchlab
from searchlab.analysis import extractor
from searchlab.analysis.extractor import VIEWS
from searchlab.errors import IRError, KernelError, ScheduleError
from searchlab.ir import Builder, Facts, Program, from_json, interpret, maximum, select, size, to_json, total, verify
from searchlab.ir.alpha import same_up_to_names
from searchlab.ir.expr import Load, Lookup, Var, lookup
from searchlab.ir.rename import Renaming, rename
from searchlab.schedule import Schedule
from searchlab.targets import parse

TARGETS = [parse("x86-64-v3").with_threads(1), parse("x86-64-v2").with_threads(1)]


def gathered(
    groups: int = 6, group: int = 3, inputs: int = 5, outputs: int = 8, expected: int | None = None
) -> Program:
    """Products of listed rows, added to listed rows of a state."""
    b = Builder("gathered")
    count = b.indices("count", (1,), groups + 1, expected)
    source, place = b.indices("source", (groups, group), 9), b.indices("place", (groups, group), 20)
    x, w = b.input("x", (9, inputs)), b.input("w", (inputs, outputs))
    y = b.state("y", (20, outputs))
    c = b.axis("c", inputs)
    p = b.compute("p", (count[0], group, outputs), lambda g, i, o: total(x[source[g, i], c] * w[c, o], c))
    b.put("add", y, (count[0], group, outputs), lambda g, i, o: ((place[g, i], o), y[place[g, i], o] + p[g, i, o]))
    return b.program(y)


def arrays(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    return {
        "count": np.array([count], "int32"),
        "source": rng.integers(0, 9, (6, 3)).astype("int32"),
        "place": rng.permutation(20)[:18].reshape(6, 3).astype("int32"),
        "x": rng.standard_normal((9, 5)).astype("float32"),
        "w": rng.standard_normal((5, 8)).astype("float32"),
        "y": rng.standard_normal((20, 8)).astype("float32"),
    }


def wanted(given: dict[str, np.ndarray]) -> np.ndarray:
    found = given["y"].copy()
    number = int(given["count"][0])
    rows = given["source"][:number].reshape(-1)
    found[given["place"][:number].reshape(-1)] += given["x"][rows] @ given["w"]
    return found


@st.composite
def schedules(draw: st.DrawFn) -> Program:
    """The program under a random schedule: splits with tails, places, orders, kinds of loops."""
    s = Schedule(gathered())
    g, i, o = s.loops("add")
    if draw(st.booleans()):
        g, *_ = s.split(g, [None, draw(st.integers(1, 4))], tail=True)
    o0, o1 = s.split(o, [None, draw(st.sampled_from([1, 3, 4, 8]))], tail=True)
    if draw(st.booleans()):
        s.compute_at("p", draw(st.sampled_from(s.loops("add")[:-1])))
        *_, own_o, own_c = s.loops("p")
        if draw(st.booleans()):
            s.reorder(own_c, own_o)
            s.vectorize(own_o)
    if draw(st.booleans()):
        s.parallel(s.loops("add")[0])
    if draw(st.booleans()):
        s.vectorize(o1)
    if draw(st.booleans()):
        s.unroll(i)
    return s.program


@settings(max_examples=40)
@given(program=schedules(), count=st.integers(0, 6), seed=st.integers(0, 999), target=st.sampled_from(TARGETS))
def test_scheduled_programs_compute_what_numpy_computes(program: Program, count: int, seed: int, target) -> None:
    given = arrays(np.random.default_rng(seed), count)
    assert from_json(to_json(program)) == program
    np.testing.assert_allclose(interpret(program, given)["y"], wanted(given), rtol=1e-4, atol=1e-5)
    y = given["y"].copy()
    searchlab.compile(program, target)(*(given[n] for n in program.inputs), out=y)
    np.testing.assert_allclose(y, wanted(given), rtol=1e-4, atol=1e-5)


@settings(max_examples=30)
@given(
    length=st.integers(0, 12), width=st.sampled_from([1, 3, 8, 17]), split=st.integers(1, 5), seed=st.integers(0, 99)
)
def test_sums_over_lists_may_be_empty(length: int, width: int, split: int, seed: int) -> None:
    """y[o] = sum over the first `length` listed rows; a sum of nothing is 0."""
    b = Builder("listed")
    number = b.indices("number", (1,), 13)
    row = b.indices("row", (12,), 7, dtype="int64")
    x = b.input("x", (7, width))
    k = b.axis("k", number[0])
    y = b.compute("y", (width,), lambda o: total(x[row[k], o], k))
    program = b.program(y)
    assert list(program.blocks) == ["y_init", "y"]
    s = Schedule(program)
    o, along = s.loops("y")
    s.reorder(along, o)
    s.vectorize(o)
    s.split(along, [None, split], tail=True)
    rng = np.random.default_rng(seed)
    given = [np.array([length], "int32"), rng.integers(0, 7, 12), rng.standard_normal((7, width)).astype("float32")]
    expected = given[2][given[1][:length]].sum(axis=0)
    named = dict(zip(program.inputs, given, strict=True))
    np.testing.assert_allclose(interpret(s.program, named)["y"], expected, rtol=1e-4, atol=1e-5)
    for target in TARGETS:
        np.testing.assert_allclose(searchlab.compile(s.program, target)(*given), expected, rtol=1e-4, atol=1e-5)


def test_lists_of_lists_and_lanes_that_look_up() -> None:
    """An index into an array of indices may be looked up itself, and every lane may look up another."""
    b = Builder("twice")
    n = size("n")
    first, second = b.indices("first", (n,), 5), b.indices("second", (5,), 4)
    x = b.input("x", (4,))
    y = b.compute("y", (n,), lambda i: maximum(select(first[i] > 2, x[second[first[i]]], x[0]), 0.0))
    s = Schedule(b.program(y))
    s.vectorize("i")
    rng = np.random.default_rng(0)
    first_, second_ = rng.integers(0, 5, 37).astype("int32"), rng.integers(0, 4, 5).astype("int32")
    x_ = rng.standard_normal(4).astype("float32")
    expected = np.maximum(np.where(first_ > 2, x_[second_[first_]], x_[0]), 0)
    for target in TARGETS:
        np.testing.assert_array_equal(searchlab.compile(s.program, target)(first_, second_, x_), expected)


def test_text() -> None:
    text = str(gathered(expected=2))
    assert "y: float32[20, 8] updated" in text
    assert "for g in at(count[0], 7, 2):" in text
    assert "y[at(place[vg, vi], 20, 10), vo] = y[at(place[vg, vi], 20, 10), vo] + p[vg, vi, vo]" in text
    assert str(gathered(expected=3)) != text  # programs that expect different things are different


def test_names_can_be_changed() -> None:
    program = gathered()
    other = rename(program, Renaming(buffers={"y": "z", "place": "where"}))
    assert other.updates == ("z",) and set(other.lookups) == {"count", "source", "where"}
    assert same_up_to_names(program, other)
    assert not same_up_to_names(program, replace(program, updates=()))


def test_bounds_are_proved_from_what_is_stated() -> None:
    i, n = Var("i"), size("n")
    found = lookup(Load("rows", (i,), "int32"), n)
    facts = Facts({i: lookup(Load("count", (Var("zero"),), "int32"), 9)})
    assert facts.proves(found < n) and facts.proves(i < 8) and not facts.proves(i < 7)
    assert facts.proves(found * 4 + 3 < n * 4) and not facts.proves(found < n - 1)
    assert facts.upper(found, {i: facts.extents[i]}) == n - 1


def test_what_is_refused() -> None:
    program = gathered()
    given = arrays(np.random.default_rng(0), 4)
    for bad in (-1, 9):
        wrong = {**given, "source": np.full((6, 3), bad, "int32")}
        with pytest.raises(IRError, match=f"'source' holds {bad}; indices from 0 to 8 are accepted"):
            interpret(program, wrong)
        with pytest.raises(KernelError, match="'source' holds"):
            searchlab.compile(program, TARGETS[0])(*(wrong[n] for n in program.inputs), out=given["y"])
    with pytest.raises(KernelError, match="updates y: pass all outputs"):
        searchlab.compile(program, TARGETS[0])(*(given[n] for n in program.inputs))
    with pytest.raises(IRError, match="not an element of a buffer of int32 or int64"):
        lookup(Load("x", (Var("i"),), "float32"), 3)
    with pytest.raises(IRError, match="'x' is no state"):
        b = Builder("b")
        b.put("p", b.input("x", (3,)), (3,), lambda i: ((i,), b.input("z", (3,))[i]))
    with pytest.raises(IRError, match="is updated, but no output"):
        verify(replace(program, updates=("x",)))
    with pytest.raises(ScheduleError, match="is no input"):
        Schedule(program).cache_read("add", "place")


def test_a_buffer_has_one_range() -> None:
    b = Builder("b")
    rows = b.indices("rows", (3,), 4)
    x = b.input("x", (9,))
    other = Load("rows", (Var("i"),), "int32")
    with pytest.raises(IRError, match="less than 9 here, and than 4 elsewhere"):
        b.program(b.compute("y", (3,), lambda i: x[rows[i]] + x[Lookup(other, *(lookup(other, 9).children()[1:]))]))


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_takes_such_programs(view: str) -> None:
    found = extractor(gathered(60), view)({})
    assert np.all(np.isfinite(getattr(found, "features", found)))


def test_features_know_how_much_is_expected() -> None:
    few, many = (extractor(gathered(60, expected=n), "estimate")({}, np.float64)[0] for n in (3, 30))
    assert few[0] < many[0]
    few, many = (extractor(gathered(60, expected=n), "summary")({}, np.float64)[0] for n in (3, 30))
    assert np.count_nonzero(few < many) > np.count_nonzero(few > many)
