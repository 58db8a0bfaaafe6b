"""Stages computed in parts that overlap, run backwards or wrap around: right in compiled code, or refused."""

from collections.abc import Callable

import numpy as np
import pytest
from checked_run import run_checked

from searchlab.backend import compile
from searchlab.errors import ScheduleError
from searchlab.ir import Builder, interpret, knob, select, total
from searchlab.ir.compute import Tensor
from searchlab.ir.expr import Expr
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Store
from searchlab.ir.walk import variables
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule
from searchlab.targets import parse

TARGET = parse("x86-64-v2")


def sums(reader: Callable[[Tensor, Expr], Expr], rows: int, length: int) -> Program:
    """S[i] = the sum of a row of I; Y[j] = what the reader makes of S."""
    b = Builder("sums")
    I = b.input("I", (rows, 4))
    r = b.axis("r", 4)
    S = b.compute("S", (rows,), lambda i: total(I[i, r], r))
    Y = b.compute("Y", (length,), lambda j: reader(S, j))
    return b.program(Y)


def assert_same(plain: Program, scheduled: Program) -> None:
    """What the plain program computes, interpreted, in plain loops with all accesses checked, and compiled."""
    shapes = {n: [int(str(e)) for e in plain.buffers[n].shape] for n in plain.inputs}
    rng = np.random.default_rng(3)
    inputs = {n: rng.integers(-9, 10, shape).astype("float32") for n, shape in shapes.items()}
    expected = interpret(plain, inputs)
    (output,) = expected
    assert np.array_equal(interpret(scheduled, inputs)[output], expected[output])
    lowered = lower(scheduled, TARGET)
    assert np.array_equal(run_checked(lowered, scheduled, inputs)[output], expected[output])
    assert np.array_equal(compile(scheduled, TARGET)(*inputs.values()), expected[output])


# --- sums that begin outside loops ------------------------------------------------------------------------------------


def test_a_sum_does_not_begin_outside_loops_that_come_back_to_it():
    """S[2] is computed for Y[0] and again for Y[2]: begun once, it would be summed twice."""
    s = Schedule(sums(lambda S, j: S[j] + S[j + 2], 8, 6))
    j0, j1 = s.split("j", [None, 2])
    s.compute_at("S", j1)
    for outer in (j0, j1):
        with pytest.raises(ScheduleError, match="^decompose_reduction: loop .* may come to elements of 'S' again"):
            s.decompose_reduction("S", outer)
    s.decompose_reduction("S", "S_i")
    assert_same(sums(lambda S, j: S[j] + S[j + 2], 8, 6), s.program)


@pytest.mark.parametrize(
    ("reader", "rows", "length"),
    [
        (lambda S, j: S[2 * j] + S[2 * j + 1], 12, 6),
        (lambda S, j: S[5 - j], 6, 6),
        (lambda S, j: S[3 * j + 2], 18, 6),
    ],
)
def test_a_sum_may_begin_outside_loops_that_do_not_come_back(reader, rows, length):
    plain = sums(reader, rows, length)
    s = Schedule(plain)
    j0, j1 = s.split("j", [None, 2])
    s.compute_at("S", j1)
    s.decompose_reduction("S", j0)
    assert_same(plain, s.program)


def test_a_sum_may_begin_outside_loops_whose_tails_are_cut_off():
    """The tiles of i_0 would reach into each other, were it not for the condition on the loops inside."""
    plain = sums(lambda S, j: S[j], 11, 11)
    s = Schedule(plain)
    s.split("i", [None, 4], tail=True)
    s.split("i_1", [None, 3], tail=True)
    s.decompose_reduction("S", "i_0")
    assert_same(plain, s.program)


def test_a_sum_may_begin_outside_fused_loops():
    b = Builder("fused")
    I = b.input("I", (5, 6, 3))
    r = b.axis("r", 3)
    plain = b.program(b.compute("Y", (5, 6), lambda i, j: total(I[i, j, r], r)))
    s = Schedule(plain)
    s.split(s.fuse("i", "j"), [None, 4], tail=True)
    s.decompose_reduction("Y", "i_j_0")
    assert_same(plain, s.program)


def test_a_sum_may_begin_outside_loops_of_any_size():
    plain = sums(lambda S, j: S[j], 12, 12)
    s = Schedule(plain)
    s.split("i", [None, knob("a"), knob("b")])
    s.decompose_reduction("S", "i_0")
    assert_same(plain, s.program.substitute({"a": 2, "b": 3}))


@pytest.mark.parametrize("turned", [False, True])
def test_a_sum_in_the_loops_of_what_it_adds_up_begins_with_its_first_term(turned):
    """In turned loops 10, which is the fifth of row 1, comes before 6, which is the first."""
    b = Builder("rows")
    I = b.input("I", (4, 6))
    r = b.axis("r", 6)
    T = b.compute("T", (4, 6), lambda i, j: I[i, j] * 2)
    plain = b.program(b.compute("Y", (4,), lambda i: total(T[i, r], r)))
    s = Schedule(plain)
    f0, f1 = s.split(s.fuse("i", "j"), [None, 10], tail=True)
    if turned:
        s.reorder(f1, f0)
        with pytest.raises(ScheduleError, match="^reverse_compute_at: loop 'i_j_1', 'i_j_0' would carry space and red"):
            s.reverse_compute_at("Y", f0)
    else:
        s.reverse_compute_at("Y", f1)
        assert_same(plain, s.program)


@pytest.mark.parametrize(("columns", "far", "begun"), [(16, 2, False), (15, 3, True)])
def test_lanes_that_come_to_the_same_element_do_not_add_up(columns, far, begun):
    """Lane j adds to S[j .. j + far] while its neighbours do, or after all lanes have set these elements."""
    b = Builder("lanes")
    I = b.input("I", (18, 3))
    r = b.axis("r", 3)
    S = b.compute("S", (18,), lambda i: total(I[i, r], r))
    plain = b.program(b.compute("Y", (2, columns), lambda i, j: S[j] + S[j + far]))
    s = Schedule(plain)
    s.compute_at("S", "j")
    if begun:
        s.decompose_reduction("S", "S_i")
        s.vectorize("S_r")
    else:
        s.reorder("S_r", "S_i")
    s.vectorize("j")
    assert_same(plain, s.program)


def test_lanes_that_share_a_wrapped_part_of_a_stage():
    """All of the program is one vectorised loop, whose lanes go through S[j % 8] in two dimensions."""
    b = Builder("wrapped")
    I = b.input("I", (8,))
    S = b.compute("S", (8,), lambda i: I[i] * 2)
    plain = b.program(b.compute("Y", (9,), lambda j: S[j % 8]))
    s = Schedule(plain)
    s.compute_at("S", "j")
    s.transform_layout("S", lambda x: (x // 2, x % 2))
    s.vectorize("j")
    assert_same(plain, s.program)


def test_a_sum_does_not_set_elements_beyond_its_end():
    """Of 18 times 3 iterations, 21 add to 7 elements; the loop is cut in two by the guard, and its end by the tail."""
    b = Builder("beyond")
    I = b.input("I", (5,))
    r = b.axis("r", 3)
    plain = b.program(b.compute("Y", (7,), lambda i: total(I[r] + select(i < 5, I[i], 0), r)))
    s = Schedule(plain)
    s.split(s.fuse("i", "r"), [1, 18, 3], tail=True)
    assert_same(plain, s.program)


# --- parts of a stage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reader", "rows", "length"),
    [
        (lambda S, j: S[19 - j] + S[j], 20, 20),
        (lambda S, j: S[19 - j] + S[j], 20, 10),
        (lambda S, j: S[(j + 2) % 3] + select(j - 2 >= 0, S[j - 2], 0), 8, 8),
        (lambda S, j: S[(j + 2) % 3] + select(j - 2 >= 0, S[j - 2], 0), 3, 3),
        (lambda S, j: S[j // 2] + S[j], 9, 9),
    ],
)
def test_a_part_between_two_readers_is_as_long_in_every_iteration(reader, rows, length):
    plain = sums(reader, rows, length)
    s = Schedule(plain)
    s.compute_at("S", "j")
    for name, loop in s.program.loops.items():
        assert not any(v.role == "iter" for v in variables(loop.extent)), name
    assert_same(plain, s.program)
    s.split("S_i", [None, 2], tail=True)
    s.reorder("S_r", "S_i_1")
    assert_same(plain, s.program)


@pytest.mark.parametrize("cached", [False, True])
def test_a_stage_that_nothing_reads_any_more_is_left_out(cached):
    """The guard is never true, so that S has no reader; its sum goes on inside and outside the loop through S."""
    plain = sums(lambda S, j: select(j - 9 >= 0, S[j - 9], 1.0), 8, 6)
    s = Schedule(plain)
    if cached:
        s.cache_write("S")
        s.compute_inline("S_store")
    s.split("r", [None, 2])
    s.reorder("r_0", "i", "r_1")
    assert_same(plain, s.program)
    assert {x.buffer for x in statements(lower(s.program, TARGET).body) if isinstance(x, Store)} == {"Y"}


@pytest.mark.parametrize(("tile", "factors"), [(3, (4, 1)), (4, (3, 2)), (6, (2, 4))])
def test_a_reader_leaves_out_iterations_that_write_nothing(tile, factors):
    """Of the tiles inside i_1 the last is cut off: its elements belong to the next iteration of i_0."""
    plain = sums(lambda S, j: S[j] * 2, 12, 12)
    s = Schedule(plain)
    s.split("i", [None, tile])
    s.split("i_1", factors, tail=True)
    home = "i_1_0"
    if factors[1] == 4:
        home, _ = s.split("i_1_1", [2, 2])
    s.reverse_compute_at("Y", home)
    assert_same(plain, s.program)


# --- padding and blocks -----------------------------------------------------------------------------------------------


def test_padding_is_zero_where_a_buffer_goes_on():
    """The sum takes 3 of 5 elements; padded to 4 of them, the fourth must not be added."""
    b = Builder("part")
    I = b.input("I", (2, 5))
    r = b.axis("r", 3)
    plain = b.program(b.compute("Y", (2,), lambda i: total(I[i, r], r)))
    s = Schedule(plain)
    s.pad("Y", {"vr": 4})
    assert_same(plain, s.program)


def test_padding_is_refused_for_one_of_two_places():
    b = Builder("places")
    I = b.input("I", (7,))
    r = b.axis("r", 3)
    s = Schedule(b.program(b.compute("Y", (4, 1), lambda i, j: total(I[j] + I[6 - r], r))))
    with pytest.raises(ScheduleError, match="^pad: 'I' is read at several places"):
        s.pad("Y", {"vj": 4})


def test_padding_is_refused_where_a_guard_has_been_relied_on():
    """In another layout I[i // 2 - 2] becomes I[-2], which is never read as long as i stays below 2."""
    b = Builder("guarded")
    I = b.input("I", (8,))
    s = Schedule(b.program(b.compute("Y", (2,), lambda i: select(i // 2 - 2 >= 0, I[i // 2 - 2], 0))))
    s.transform_layout("I", lambda x: (x,))
    with pytest.raises(ScheduleError, match=r"^pad: 'Y' reads 'I\[-2\]' under '0 <= \(vi // 2\) - 2'"):
        s.pad("Y", {"vi": 8})


def test_another_layout_of_what_is_added_to():
    """With its init taken out and its only axis factored out, the block reduces over nothing, and yet adds."""
    b = Builder("factored")
    I = b.input("I", (4, 3))
    r = b.axis("r", 3)
    plain = b.program(b.compute("Y", (4,), lambda i: total(I[i, r], r)))
    s = Schedule(plain)
    s.rfactor("r")
    s.decompose_reduction("Y_rf", "i")
    s.transform_layout("Y_rf", lambda x, y: (y, x))
    assert_same(plain, s.program)


def test_a_block_of_blocks_stays_in_its_domain():
    """Of 4 times 2 iterations the last is cut off: there the new block has no iteration either."""
    plain = sums(lambda S, j: S[j], 7, 7)
    s = Schedule(plain)
    s.split("i", [None, 2], tail=True)
    s.blockize("r")
    assert_same(plain, s.program)


def test_blocks_of_blocks_do_not_share_iteration_variables():
    """Both new blocks iterate over rows; the condition on those of the inner one speaks of the outer one's."""
    plain = sums(lambda S, j: S[j], 8, 8)
    s = Schedule(plain)
    s.split("i", [1, 8])
    s.blockize("i_1")
    s.split("i_1", [None, 5], tail=True)
    s.blockize("r")
    names = [it.var.name for b in s.program.blocks.values() if b.name.startswith("S_outer") for it in b.iters]
    assert names == ["vio", "vio2"]
    assert_same(plain, s.program)


def test_a_loop_may_be_called_like_an_iteration_variable():
    """The copy of I runs over v0, inside a loop of that name."""
    b = Builder("named")
    I = b.input("I", (4,))
    plain = b.program(b.compute("Y", (3,), lambda v0: I[v0 + 1] + I[0]))
    s = Schedule(plain)
    s.cache_read("Y", "I")
    s.compute_at("I_local", "v0")
    assert_same(plain, s.program)
