"""A schedule with symbols, then integers in their place, is the schedule with those integers from the start."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.backend import compile
from searchlab.errors import ConstraintError, IRError
from searchlab.ir import Program, interpret, knob, verify
from searchlab.ir.statement_tree import swap
from searchlab.schedule import Schedule
from searchlab.targets import detect
from searchlab.workloads import Workload, parse

Numbers = dict[str, int]


def packed_matmul(s: Schedule, mi: Any, nj: Any, ku: Any) -> None:
    """Tiles of C, panels of B packed where they are used, an unrolled reduction."""
    panels = s.cache_read("C", "B")
    s.transform_layout(panels, lambda k, j: (j // nj, k, j % nj))
    i0, i1 = s.split("i", [None, mi])
    j0, j1 = s.split("j", [None, nj])
    k0, k1 = s.split("k", [None, ku])
    s.reorder(j0, i0, k0, k1, i1, j1)
    s.compute_at(panels, j0)
    s.parallel(j0)
    s.unroll(i1)
    s.unroll(k1)
    s.vectorize(j1)


def tailed_matmul(s: Schedule, mi: Any, nj: Any, ku: Any) -> None:
    """Tiles that need not divide, a local accumulator, fused outer loops."""
    i0, i1 = s.split("i", [None, mi], tail=True)
    j0, j1 = s.split("j", [None, nj], tail=True)
    k0, k1 = s.split("k", [None, ku], tail=True)
    s.reorder(i0, j0, k0, k1, i1, j1)
    s.cache_write("C")
    s.reverse_compute_at("C_store", j0)
    s.parallel(s.fuse(i0, j0))
    s.vectorize(j1)
    s.annotate("C", "unroll_up_to", mi)


def tiled_conv(s: Schedule, co: Any, w: Any) -> None:
    block = next(b.name for b in s.program.blocks.values() if b.reduces)
    loops = s.loops(block)
    o0, o1 = s.split(loops[1], [None, co])
    w0, w1 = s.split(loops[3], [None, w], tail=True)
    s.reorder(o0, loops[2], w0, *loops[4:], o1, w1)
    s.cache_read(block, s.program.inputs[1])
    s.compute_at(f"{s.program.inputs[1]}_local", o0)
    s.parallel(o0)
    s.vectorize(w1)


def rows_of_softmax(s: Schedule, rows: Any) -> None:
    """All stages computed in one loop over blocks of rows."""
    *before, last = s.program.blocks
    i0, i1 = s.split(s.loops(last)[0], [None, rows], tail=True)
    for block in reversed(before):
        if block in s.program.blocks:
            s.compute_at(block, i0)
    s.parallel(i0)


def partial_sums(s: Schedule, lanes: Any) -> None:
    block = next(b.name for b in s.program.blocks.values() if b.reduces)
    r0, r1 = s.split(s.loops(block)[-1], [None, lanes])
    s.rfactor(r1, axis=1)
    s.vectorize(r1)


def partial_sums_with_tail(s: Schedule, lanes: Any) -> None:
    block = next(b.name for b in s.program.blocks.values() if b.reduces)
    r0, r1 = s.split(s.loops(block)[-1], [None, lanes], tail=True)
    s.rfactor(r1)


def padded_matmul(s: Schedule, mi: Any, ku: Any) -> None:
    s.pad("C", {"vi": mi, "vk": ku})
    i0, i1 = s.split("i", [None, mi])
    s.reorder(i0, "k", i1, "j")
    s.decompose_reduction("C", "k")


def matmul_with_prefetch(s: Schedule, mi: Any, near: Any, far: Any) -> None:
    """The next elements of B along the sum, and the next rows of A."""
    i0, i1 = s.split("i", [None, mi], tail=True)
    s.reorder(i0, "k", i1, "j")
    s.unroll(i1)
    s.vectorize("j")
    s.prefetch("C", "B", "k", near)
    s.prefetch("C", "A", i0, far)


def padded_product(s: Schedule, x: Any, k: Any) -> None:
    """A convolution as a matrix product, padded to multiples, tiled, and its sums without their padding again."""
    for operand in ("P", "W", "Y"):
        s.reindex("Y", operand)
    s.transform_block_layout("Y", lambda n, c, w, ci, kw: (n * 5 + w, c, ci * 3 + kw), names=["x", "y", "k"])
    s.transform_layout("P_reindex", lambda n, w, ci, kw: (n * 5 + w, ci * 3 + kw))
    s.transform_layout("W_reindex", lambda c, ci, kw: (c, ci * 3 + kw))
    s.transform_layout("Y_reindex", lambda n, c, w: (n * 5 + w, c))
    s.pad("Y", {"vx": x, "vk": k})
    x0, x1 = s.split("x", [None, x])
    k0, k1 = s.split("k", [None, k])
    s.reorder(x0, "y", k0, x1, k1)


def digits_of_a_block(s: Schedule, t: Any) -> None:
    s.transform_block_layout("C", lambda i, j, k: (j // t, i, k, j % t), names=["jo", "io", "ko", "ji"])


def padding_apart(s: Schedule, t: Any) -> None:
    s.decompose_padding("P", "h")
    w0, w1 = s.split("w", [None, t], tail=True)


KINDS = ["serial", "unrolled", "vectorized"]


def matmul_of_any_kinds(s: Schedule, outer: Any, inner: Any, sum: Any) -> None:
    """Kinds chosen by symbols, also of the loop that is summed over."""
    s.reorder("i", "k", "j")
    s.choose_kind("i", ["serial", "parallel", "unrolled"], outer)
    s.choose_kind("j", KINDS, inner)
    s.choose_kind("k", KINDS, sum)


def digits(s: Schedule, t: Any) -> None:
    s.transform_layout("M", lambda i: (i // t, i % t))


CASES: dict[str, tuple[str, Callable[..., None], list[Numbers]]] = {
    "packed matmul": (
        "matmul:m=12,n=16,k=6",
        packed_matmul,
        [{"mi": 3, "nj": 8, "ku": 2}, {"mi": 12, "nj": 4, "ku": 6}, {"mi": 1, "nj": 2, "ku": 1}],
    ),
    "matmul with tails": (
        "matmul:m=7,n=11,k=5",
        tailed_matmul,
        [{"mi": 2, "nj": 4, "ku": 3}, {"mi": 7, "nj": 11, "ku": 5}, {"mi": 9, "nj": 16, "ku": 1}],
    ),
    "conv2d": ("conv2d:ci=3,co=8,h=5,w=9,k=3,padding=1", tiled_conv, [{"co": 4, "w": 4}, {"co": 8, "w": 3}]),
    "depthwise conv2d": ("depthwise_conv2d:c=8,h=5,w=7,padding=1", tiled_conv, [{"co": 2, "w": 4}, {"co": 8, "w": 7}]),
    "softmax": ("softmax:rows=6,cols=9", rows_of_softmax, [{"rows": 1}, {"rows": 2}, {"rows": 4}, {"rows": 6}]),
    "rfactor": ("reduce:shape=5x24,op=sum", partial_sums, [{"lanes": 1}, {"lanes": 8}, {"lanes": 24}]),
    "rfactor with tail": ("reduce:shape=5x13,op=max", partial_sums_with_tail, [{"lanes": 4}, {"lanes": 13}]),
    "padded matmul": ("matmul:m=7,n=5,k=6", padded_matmul, [{"mi": 4, "ku": 4}, {"mi": 6, "ku": 5}]),
    "prefetch": (
        "matmul:m=7,n=35,k=9",
        matmul_with_prefetch,
        [{"mi": 3, "near": 4, "far": 1}, {"mi": 2, "near": 0, "far": 100}, {"mi": 1, "near": 8, "far": 0}],
    ),
    "kinds": (
        "matmul:m=5,n=19,k=6",
        matmul_of_any_kinds,
        [{"outer": o, "inner": i, "sum": k} for o, i, k in ((1, 2, 1), (0, 0, 0), (2, 1, 2), (0, 2, 2), (1, 1, 0))],
    ),
    "matrix product": (
        "conv1d:n=2,ci=2,co=3,w=9,k=3,stride=2,padding=1",
        padded_product,
        [{"x": 4, "k": 4}, {"x": 3, "k": 5}],
    ),
    "digits of a block": ("matmul:m=3,n=12,k=4", digits_of_a_block, [{"t": 4}, {"t": 2}, {"t": 6}]),
    "padding apart": ("conv2d:ci=2,co=3,h=5,w=6,padding=1", padding_apart, [{"t": 4}, {"t": 3}]),
    "reduction in digits": ("softmax:rows=4,cols=6", digits, [{"t": 2}, {"t": 3}, {"t": 4}]),
}
EACH = [pytest.param(name, n, id=f"{name}-{n}") for name, case in CASES.items() for n in case[2]]


@cache
def symbolic(name: str) -> Program:
    spec, steps, numbers = CASES[name]
    s = Schedule(parse(spec).program)
    steps(s, **{k: knob(k) for k in numbers[0]})
    return s.program


def concrete(name: str, numbers: Numbers) -> Program:
    spec, steps, _ = CASES[name]
    s = Schedule(parse(spec).program)
    steps(s, **numbers)
    return s.program


def workload_of(name: str) -> Workload:
    return parse(CASES[name][0])


@pytest.mark.parametrize(("name", "numbers"), EACH)
def test_substituting_is_scheduling_with_numbers(name: str, numbers: Numbers) -> None:
    found = symbolic(name).substitute(numbers)
    verify(found)
    assert not found.symbols and not found.assumptions
    assert str(found) == str(concrete(name, numbers)) and found.hash == concrete(name, numbers).hash


@pytest.mark.parametrize(("name", "numbers"), EACH)
def test_substituted_programs_compute_the_same(name: str, numbers: Numbers) -> None:
    w = workload_of(name)
    inputs = w.inputs(seed=3)
    assert w.check(interpret(symbolic(name).substitute(numbers), inputs), inputs) is None


@pytest.mark.parametrize("name", CASES)
def test_substituted_programs_compile_to_the_same(name: str) -> None:
    w, target = workload_of(name), detect(threads=1)
    inputs = w.inputs(seed=4)
    numbers = CASES[name][2][0]
    a = compile(symbolic(name).substitute(numbers), target)(*inputs.values())
    b = compile(concrete(name, numbers), target)(*inputs.values())
    assert np.array_equal(a, b) and w.check(a, inputs) is None


def divisors(n: int) -> st.SearchStrategy[int]:
    return st.sampled_from([d for d in range(1, n + 1) if n % d == 0])


@settings(max_examples=20)
@given(st.fixed_dictionaries({"mi": divisors(12), "nj": divisors(16), "ku": divisors(6)}))
def test_every_dividing_tile_gives_the_right_values(numbers: Numbers) -> None:
    w = workload_of("packed matmul")
    inputs = w.inputs()
    found = symbolic("packed matmul").substitute(numbers)
    assert w.check(interpret(found, inputs), inputs) is None
    if 1 < numbers["nj"] < 16:  # at the ends a loop has one iteration, which may be written in several ways
        assert str(found) == str(concrete("packed matmul", numbers))


@settings(max_examples=20)
@given(st.fixed_dictionaries({"mi": st.integers(1, 9), "nj": st.integers(1, 14), "ku": st.integers(1, 7)}))
def test_every_tile_with_a_tail_gives_the_right_values(numbers: Numbers) -> None:
    w = workload_of("matmul with tails")
    inputs = w.inputs()
    found = symbolic("matmul with tails").substitute(numbers)
    assert w.check(interpret(found, inputs), inputs) is None
    assert found.hash == concrete("matmul with tails", numbers).hash


@settings(max_examples=10)
@given(st.fixed_dictionaries({"mi": st.integers(1, 9), "nj": st.integers(1, 14), "ku": st.integers(1, 7)}))
def test_every_tile_with_a_tail_compiles_to_the_right_values(numbers: Numbers) -> None:
    w = workload_of("matmul with tails")
    inputs = w.inputs(seed=5)
    kernel = compile(symbolic("matmul with tails").substitute(numbers), detect(threads=1))
    assert w.check(kernel(*inputs.values()), inputs) is None


def test_symbols_may_be_replaced_one_by_one() -> None:
    p = symbolic("packed matmul")
    stepwise = p.substitute({"nj": 8}).substitute({"mi": 3})
    assert stepwise.knobs == ("ku",)
    assert stepwise.substitute({"ku": 2}).hash == p.substitute({"mi": 3, "nj": 8, "ku": 2}).hash


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"mi": 5, "nj": 8, "ku": 2}, ["mi=5", "12 % mi == 0"]),
        ({"mi": 3, "nj": 3, "ku": 2}, ["nj=3", "16 % nj == 0"]),
        ({"ku": 4}, ["ku=4", "6 % ku == 0"]),
    ],
)
def test_numbers_that_break_an_assumption_are_refused(numbers: Numbers, words: list[str]) -> None:
    with pytest.raises(ConstraintError) as caught:
        symbolic("packed matmul").substitute(numbers)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("name", "numbers"), [("packed matmul", {"mi": 4, "nj": 16, "ku": 3}), ("padded matmul", {"mi": 7, "ku": 3})]
)
def test_numbers_that_leave_one_tile_give_the_same_values(name: str, numbers: Numbers) -> None:
    w, target = workload_of(name), detect(threads=1)
    inputs = w.inputs(seed=6)
    for program in (symbolic(name).substitute(numbers), concrete(name, numbers)):
        assert w.check(interpret(program, inputs), inputs) is None
        assert w.check(compile(program, target)(*inputs.values()), inputs) is None


def test_a_choice_beyond_the_kinds_is_refused() -> None:
    p = symbolic("kinds")
    with pytest.raises(ConstraintError, match="inner=3 breaks 'inner < 3'"):
        p.substitute({"outer": 0, "inner": 3, "sum": 0})
    with pytest.raises(IRError, match="'inner' takes an integer >= 0, got -1"):
        p.substitute({"inner": -1})


@pytest.mark.parametrize("threads", [1, 2])
def test_all_choices_compute_the_same(threads: int) -> None:
    w = workload_of("kinds")
    inputs = w.inputs(seed=7)
    for outer, inner, sum in itertools.product(range(3), repeat=3):
        p = symbolic("kinds").substitute({"outer": outer, "inner": inner, "sum": sum})
        assert w.check(compile(p, detect(threads=threads))(*inputs.values()), inputs) is None


def test_a_choice_may_be_shared_and_computed() -> None:
    s = Schedule(parse("matmul:m=6,n=8,k=4").program)
    s.choose_kind("i", ["serial", "unrolled"], knob("c") - 1)
    s.choose_kind("j", ["vectorized", "unrolled"], knob("c") - 1)
    p = s.program.substitute({"c": 2})
    assert [lp.kind for lp in p.loops.values()] == ["unrolled", "unrolled", "serial"]
    with pytest.raises(ConstraintError, match="c=3 breaks"):
        s.program.substitute({"c": 3})
    with pytest.raises(ConstraintError, match="c=0 breaks"):
        s.program.substitute({"c": 0})


def test_what_may_be_parallel_takes_no_reduction() -> None:
    """A sum moved below a loop that may be parallel is refused where the loop would carry it."""
    s = Schedule(parse("matmul:m=6,n=8,k=4").program)
    s.choose_kind("i", ["serial", "parallel"], knob("c"))
    loop = s.program.loops["i"]
    block = s.program.blocks["C"]
    bent = replace(block, bindings=(block.bindings[0], block.bindings[1], loop.var % 4))
    swapped = s.program.with_body(swap(s.program.body, block, bent))
    with pytest.raises(IRError, match="bound to parallel loop 'i'"):
        verify(swapped)


def test_factors_must_make_the_extent() -> None:
    s = Schedule(parse("matmul:m=12,n=16,k=6").program)
    s.split("i", [knob("a"), knob("b")])
    s.split("j", [knob("c"), knob("d")], tail=True)
    ok = s.program.substitute({"a": 3, "b": 4, "c": 3, "d": 6})
    verify(ok)
    with pytest.raises(ConstraintError, match=r"a=3, b=5 breaks 'a\*b == 12'"):
        s.program.substitute({"a": 3, "b": 5})
    with pytest.raises(ConstraintError, match=r"c=3, d=5 breaks '16 <= c\*d'"):
        s.program.substitute({"c": 3, "d": 5})
