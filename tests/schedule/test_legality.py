"""Illegal schedules that random testing once got past the primitives: each would change the result, and is refused."""

from collections.abc import Callable

import pytest
from checked_run import run_checked

from searchlab.backend import compile
from searchlab.errors import ScheduleError
from searchlab.ir import Builder, call, interpret, total
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule
from searchlab.targets import detect
from searchlab.workloads import parse


def schedule(spec: str) -> Schedule:
    return Schedule(parse(spec).program)


def moved_sum() -> None:
    """C_init would run after what it begins."""
    s = schedule("batch_matmul:batch=2,m=4,n=9,k=6")
    s.cache_read("C", "A")
    s.decompose_reduction("C", "k")
    s.reverse_compute_at("C", "A_local_0")


def moved_beginning() -> None:
    s = schedule("softmax:rows=5,cols=19")
    s.decompose_reduction("M", "r")
    s.compute_at("M_init", "j")


def reader_between_beginning_and_sum() -> None:
    s = schedule("softmax:rows=5,cols=19")
    s.decompose_reduction("S", "S_i")
    s.reverse_compute_at("Y", "S_init_S_i")


def pad_of_one_of_two() -> None:
    s = schedule("matmul:m=3,n=5,k=4")
    s.decompose_reduction("C", "j")
    s.pad("C_init", {"vi": 4})


def pad_of_what_adds() -> None:
    s = schedule("matmul:m=3,n=5,k=4")
    s.decompose_reduction("C", "i")
    s.pad("C", {"vi": 4})


def sum_begun_in_the_wrong_order() -> None:
    """vk = f % 12: after the reorder, other terms come before the one that begins the sum."""
    s = schedule("matmul:m=16,n=17,k=12")
    s.reorder("k", "j")
    s.fuse("i", "k")
    s.split("i_k", [None, 10], tail=True)
    s.reorder("i_k_1", "i_k_0")


def beginning_of_space_and_reduction_at_once() -> None:
    s = schedule("reduce:shape=11x13,axis=0")
    s.fuse("i0", "r")
    s.decompose_reduction("Y", "i0_r")


def beginning_outside_a_loop_that_repeats_the_sum() -> None:
    """S runs again for every column of Y; begun only once, it would add up."""
    s = schedule("softmax:rows=5,cols=19")
    s.compute_at("S", "Y_j")
    s.decompose_reduction("S", "Y_j")


def beginning_inside_a_blockized_reduction() -> None:
    s = schedule("matmul:m=3,n=5,k=8")
    s.split("k", [None, 4])
    s.blockize("k_1")
    s.decompose_reduction("C", "k_1")


def reader_of_tiles_that_interleave() -> None:
    """One iteration of i_1 writes rows 1, 5, 9, ..., not a tile."""
    s = schedule("matmul:m=12,n=5,k=4")
    s.cache_write("C")
    s.split("i", [None, 4])
    s.reorder("i_1", "i_0")
    s.reverse_compute_at("C_store", "i_1")


def reader_of_tiles_that_overlap() -> None:
    """i_1 is split with a tail, so that the tiles of i_0 seem to reach into each other."""
    s = schedule("matmul:m=12,n=5,k=4")
    s.cache_write("C")
    s.split("i", [None, 4])
    s.split("i_1", [None, 3], tail=True)
    s.reverse_compute_at("C_store", "i_0")


def reader_that_is_larger_than_what_it_reads() -> None:
    s = schedule("matmul:m=3,n=5,k=4")
    s.pad("C", {"vi": 4})
    s.cache_read("A_pad", "A")
    s.reverse_compute_at("A_pad", "A_local_0")


def reader_of_a_part() -> None:
    """Y_crop reads 3 of 4 rows: run where the rows are made, it would store the fourth outside Y."""
    s = schedule("elementwise:rows=3,cols=5,ops=exp")
    s.pad("Y", {"vi": 4})
    s.reverse_compute_inline("Y_crop")


def reader_that_adds() -> None:
    """What rfactor makes begins at every element, without a reduction of its own."""
    s = schedule("reduce:shape=3x9,axis=1")
    s.rfactor("r")
    s.cache_read("Y_rf", "X")
    s.reverse_compute_inline("Y_rf")


def reader_that_others_were_moved_to() -> None:
    """P stays behind in loops that no longer mean anything to it."""
    s = schedule("conv2d_bn_relu:ci=3,co=4,h=5,w=5,padding=1")
    s.compute_at("P", "C_h")
    s.compute_at("C", "Y_c")


def inlined_reader_that_others_were_moved_to() -> None:
    s = schedule("elementwise:rows=4,cols=5,ops=exp,abs,neg")
    s.compute_at("T1", "T2_j")
    s.compute_inline("T2")


def reader_of_something_half_made() -> None:
    """Y reads all of a row of M, of which the loop has made one element."""
    b = Builder("rows")
    X = b.input("X", (4, 6))
    r = b.axis("r", 6)
    S = b.compute("S", (4,), lambda i: total(X[i, r], r))
    E = b.compute("E", (4, 6), lambda i, j: call("exp", X[i, j] - S[i]))
    Y = b.compute("Y", (4, 6), lambda i, j: E[i, j] * S[i])
    s = Schedule(b.program(Y))
    s.reverse_compute_at("E", "i")
    s.reverse_compute_at("Y", "E_j")


def parallel_inside_lanes() -> None:
    s = schedule("matmul:m=3,n=5,k=4")
    s.vectorize("i")
    s.parallel("j")


def parallel_moved_inside_lanes() -> None:
    s = schedule("matmul:m=3,n=5,k=4")
    s.parallel("i")
    s.vectorize("j")
    s.reorder("j", "i")


def partial_sums_under_a_taken_name() -> None:
    schedule("matmul:m=3,n=5,k=4").rfactor("k", name="A")


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (moved_sum, r"^reverse_compute_at: 'C' is written by 'C_init' too"),
        (moved_beginning, r"^compute_at: 'M' is written by 'M' too"),
        (reader_between_beginning_and_sum, r"^reverse_compute_at: 'S' still adds to 'S' after loop 'S_init_S_i'"),
        (pad_of_one_of_two, r"^pad: 'C_init' shares its nest with other statements; use pad before moving stages"),
        (pad_of_what_adds, r"^pad: block 'C' adds to 'C', which another block has set"),
        (sum_begun_in_the_wrong_order, r"^reorder: loop 'i_k_0', 'i_k_1' carries space and reduction of 'C' at once"),
        (beginning_of_space_and_reduction_at_once, r"^decompose_reduction: loop 'i0_r' carries space and reduction of"),
        (beginning_outside_a_loop_that_repeats_the_sum, r"^decompose_reduction: loop 'Y_j' repeats 'S' as a whole"),
        (beginning_inside_a_blockized_reduction, r"^decompose_reduction: loop 'k_0' outside 'k_1' carries the"),
        (reader_of_tiles_that_interleave, r"^reverse_compute_at: one iteration of loop 'i_1' does not write a"),
        (reader_of_tiles_that_overlap, r"^reverse_compute_at: one iteration of loop 'i_0' does not write a"),
        (reader_that_is_larger_than_what_it_reads, r"^reverse_compute_at: 'A_pad' runs over more than 'A_local' has"),
        (reader_of_a_part, r"^reverse_compute_inline: 'Y_crop' reads only a part of 'Y_pad'"),
        (reader_that_adds, r"^reverse_compute_inline: block 'Y_rf' is a reduction"),
        (reader_that_others_were_moved_to, r"^compute_at: 'P' in the nest of 'C' makes what it reads there"),
        (inlined_reader_that_others_were_moved_to, r"^compute_inline: 'T1' in the nest of 'T2' makes what it reads"),
        (reader_of_something_half_made, r"^reverse_compute_at: 'S', which 'Y' reads too, is made by 'S' in the same"),
        (parallel_inside_lanes, r"^parallel: loop 'j' is inside the vectorized loop 'i'"),
        (parallel_moved_inside_lanes, r"^reorder: the parallel loop 'i' would be inside the vectorized loop 'j'"),
        (partial_sums_under_a_taken_name, r"^rfactor: 'A' is not a free name"),
    ],
)
def test_refused(attempt: Callable[[], None], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        attempt()


# --- what looks like it, and is legal ---------------------------------------------------------------------------------


def reader_where_the_maker_has_a_tail(s: Schedule) -> None:
    """The iterations that write nothing must not be read either."""
    s.cache_write("C")
    s.split("i", [None, 5], tail=True)
    s.split("j", [None, 4, 3], tail=True)
    s.reverse_compute_at("C_store", "i_1")


def reader_of_a_fused_loop(s: Schedule) -> None:
    s.cache_write("C")
    s.fuse("i", "j")
    s.split("i_j", [None, 7], tail=True)
    s.reverse_compute_at("C_store", "i_j_1")


def reader_inside_a_block(s: Schedule) -> None:
    s.cache_write("C")
    s.split("j", [None, 4], tail=True)
    s.blockize("j_0")
    s.reverse_compute_at("C_store", "j_0")


def block_under_a_condition(s: Schedule) -> None:
    s.blockize("j")
    s.split("i", [5, 3], tail=True)


def reordered_beside_a_fused_loop(s: Schedule) -> None:
    s.reorder("i", "k", "j")
    s.fuse("i", "k")
    s.reorder("j", "i_k")


def sum_begun_early_and_split(s: Schedule) -> None:
    s.decompose_reduction("C", "j")
    s.split("k", [None, 3], tail=True)
    s.split("j", [None, 4], tail=True)


LEGAL = [
    reader_where_the_maker_has_a_tail,
    reader_of_a_fused_loop,
    reader_inside_a_block,
    block_under_a_condition,
    reordered_beside_a_fused_loop,
    sum_begun_early_and_split,
]


@pytest.mark.parametrize("write", LEGAL)
def test_legal(write: Callable[[Schedule], None]) -> None:
    w = parse("matmul:m=11,n=13,k=7")
    s = Schedule(w.program)
    write(s)
    inputs = w.inputs()
    assert w.check(interpret(s.program, inputs), inputs) is None
    assert w.check(run_checked(lower(s.program, detect(1)), s.program, inputs), inputs) is None
    assert w.check(compile(s.program, detect(1))(inputs["A"], inputs["B"]), inputs) is None
