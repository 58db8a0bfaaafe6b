"""Lowering: what each pass makes of a schedule, and that plain loops touch nothing they should not."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from checked_run import AccessError, run_checked

from searchlab.backend import compile
from searchlab.errors import BuildError
from searchlab.ir import Builder, Loop, Store, knob, total
from searchlab.ir.expr import Select
from searchlab.ir.program import Program
from searchlab.ir.stmt import Alloc, If, Stmt
from searchlab.ir.walk import walk
from searchlab.lower.passes import Lowered, lower
from searchlab.schedule import Schedule
from searchlab.targets import detect
from searchlab.workloads import Workload, parse

ONE = detect(1)
TWO = detect(min(2, detect().cores))


def scheduled(spec: str, write: Callable[[Schedule], None]) -> tuple[Workload, Program]:
    w = parse(spec)
    s = Schedule(w.program)
    write(s)
    return w, s.program


def plain(program: Program) -> str:
    return str(lower(program, ONE)).partition("\n")[2]


def parts(s: Stmt, kind: type) -> list:
    return ([s] if isinstance(s, kind) else []) + [x for c in s.children() for x in parts(c, kind)]


def assert_right(w: Workload, program: Program) -> None:
    """In plain loops with all accesses checked, and compiled for one thread and for two."""
    inputs = w.inputs()
    assert w.check(run_checked(lower(program, ONE), program, inputs), inputs) is None
    for target in (ONE, TWO):
        assert w.check(compile(program, target)(*(inputs[n] for n in program.inputs)), inputs) is None


# --- conditions -------------------------------------------------------------------------------------------------------


def test_the_main_part_of_a_tail_has_no_condition():
    _, program = scheduled("elementwise:rows=3,cols=21,ops=exp", lambda s: s.split("j", [None, 8], tail=True))
    assert plain(program) == (
        "  for i in 3:\n"
        "    for j_0 in 2:\n"
        "      for j_1 in 8:\n"
        "        Y[i, j_0*8 + j_1] = exp(X[i, j_0*8 + j_1])\n"
        "    for j_1 in 5:\n"
        "      Y[i, j_1 + 16] = exp(X[i, j_1 + 16])\n"
    )


def test_padding_is_cut_into_border_and_middle():
    lowered = lower(parse("conv1d:ci=2,co=3,w=9,k=3,padding=1").program, ONE)
    stores = parts(lowered.body, Store)
    assert not parts(lowered.body, If)
    assert not any(isinstance(e, Select) for s in stores for e in walk(s.value))


@pytest.mark.parametrize("factors", [[None, 4], [5, 3], [2, 3, 4]])
def test_no_condition_is_left_of_a_tail(factors):
    _, program = scheduled("matmul:m=7,n=11,k=5", lambda s: s.split("i", factors, tail=True))
    assert not parts(lower(program, ONE).body, If)


def test_iterations_that_a_condition_excludes_do_not_run():
    _, program = scheduled("elementwise:rows=3,cols=5,ops=exp", lambda s: s.split("i", [4, 2], tail=True))
    assert "if" not in plain(program)
    assert [str(lp.extent) for lp in parts(lower(program, ONE).body, Loop) if lp.name == "i_1"] == ["2"]


# --- storage ----------------------------------------------------------------------------------------------------------


def sizes(lowered: Lowered) -> dict[str, str]:
    return {a.buffer.name: "x".join(map(str, a.buffer.shape)) for a in parts(lowered.body, Alloc)}


def test_a_buffer_is_as_large_as_one_iteration_needs():
    _, program = scheduled("conv2d:ci=3,co=4,h=8,w=9,padding=1", lambda s: s.compute_at("P", "Y_h"))
    assert sizes(lower(program, ONE))["P"] == "1x3x3x11"


def test_a_buffer_of_a_whole_stage_is_whole():
    assert sizes(lower(parse("conv2d:ci=3,co=4,h=8,w=9,padding=1").program, ONE))["P"] == "1x3x10x11"


def test_lanes_share_one_buffer():
    def write(s: Schedule) -> None:
        s.compute_at("T1", "Y_j")
        s.vectorize("Y_j")

    w, program = scheduled("elementwise:rows=3,cols=16,ops=exp,neg", write)
    assert sizes(lower(program, ONE)) == {"T1": "1x16"}
    assert_right(w, program)


# --- reductions -------------------------------------------------------------------------------------------------------


def test_a_tile_of_unrolled_and_vectorised_loops_stays_in_registers():
    def write(s: Schedule) -> None:
        i0, i1 = s.split("i", [None, 2])
        j0, j1 = s.split("j", [None, 16])
        s.reorder(i0, j0, "k", i1, j1)
        s.unroll(i1)
        s.vectorize(j1)

    w, program = scheduled("matmul:m=4,n=32,k=5", write)
    lowered = lower(program, ONE)
    assert sizes(lowered) == {"C.r0": "2x16"}
    (inner,) = [lp for lp in parts(lowered.body, Loop) if lp.name == "k"]
    assert {s.buffer for s in parts(inner, Store)} == {"C.r0"}
    assert_right(w, program)


def test_a_reduction_is_begun_before_the_loop_that_carries_it():
    _, program = scheduled("matmul:m=3,n=5,k=4", lambda s: s.reorder("k", "i", "j"))
    assert plain(program) == (
        "  for i in 3:\n"
        "    for j in 5:\n"
        "      C[i, j] = 0.0\n"
        "  for k in 4:\n"
        "    for i in 3:\n"
        "      for j in 5:\n"
        "        C[i, j] = C[i, j] + A[i, k] * B[k, j]\n"
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "float32"])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 7, 8, 9, 16, 20, 31, 32, 33, 64, 100])
def test_lanes_are_added_up(k, dtype):
    """Byte products added over lanes are what dot product instructions are for; LLVM 22 makes wrong ones of halves."""
    w, program = scheduled(f"matmul:m=3,n=2,k={k},dtype={dtype}", lambda s: s.vectorize("k"))
    inputs = w.inputs()
    assert w.check(compile(program, ONE)(inputs["A"], inputs["B"]), inputs) is None


# --- what random schedules found --------------------------------------------------------------------------------------


def tail_inside_a_tail(s: Schedule) -> None:
    """A condition that the loop over k does not change must also guard what comes before and after that loop."""
    s.split("j", [5, None], tail=True)
    s.split("j_1", [6, 2], tail=True)


def tail_inside_a_tail_unrolled(s: Schedule) -> None:
    s.annotate("C", "unroll_up_to", 16)
    s.split("j", [6, 1, None], tail=True)
    s.split("j_0", [5, None, 3], tail=True)
    s.split("j_0_2", [1, 5], tail=True)


def block_with_a_condition(s: Schedule) -> None:
    s.blockize("j")
    s.split("i", [3, 2, None], tail=True)
    s.split("i_0", [4, None], tail=True)


def fused_loop_in_lanes(s: Schedule) -> None:
    """Lanes that are not a constant step apart: two chunks may begin at one element and go on differently."""
    s.fuse("i", "j")
    s.vectorize("i_j")


def lanes_that_meet_in_one_element(s: Schedule) -> None:
    s.fuse("i", "j", "k")
    s.split("i_j_k", [None, 4], tail=True)
    s.vectorize("i_j_k_1")


MATMUL = [
    tail_inside_a_tail,
    tail_inside_a_tail_unrolled,
    block_with_a_condition,
    fused_loop_in_lanes,
    lanes_that_meet_in_one_element,
]


@pytest.mark.parametrize("spec", ["matmul:m=5,n=17,k=7", "matmul:m=4,n=9,k=6,dtype=int8"])
@pytest.mark.parametrize("write", MATMUL)
def test_matmul(write, spec):
    assert_right(*scheduled(spec, write))


def padded_rows_of_a_tail(s: Schedule) -> None:
    """The bounds of inner loops follow from those of outer ones, and may be negative."""
    s.split("Y_h", [5, 3, None], tail=True)
    s.compute_at("P", "Y_w")


def sum_over_rows_that_change_with_it(s: Schedule) -> None:
    """Loops whose extents change while the sum runs cannot be used to begin it."""
    s.reorder("kh", "Y_w", "kw", "Y_h")
    s.compute_at("P", "Y_h")
    s.split("Y_h", [4, 1, 2], tail=True)


@pytest.mark.parametrize("write", [padded_rows_of_a_tail, sum_over_rows_that_change_with_it])
def test_depthwise_convolution(write):
    assert_right(*scheduled("depthwise_conv2d:c=3,h=7,w=9,stride=2,padding=1", write))


def test_parallel_after_a_loop_that_may_not_run():
    """The variables of loops that are over have no value to pass to the threads."""
    w = parse("matmul:m=?,n=5,k=4")
    s = Schedule(w.program)
    s.cache_write("C")
    s.parallel("C_store_0")
    inputs = w.inputs(m=6)
    assert w.check(compile(s.program, TWO)(inputs["A"], inputs["B"]), inputs) is None


def test_a_parallel_loop_of_one_iteration_leaves_the_threads_to_the_loop_inside():
    """A sketch with padding inside its tiles shares the loop over images, too, of which there is often one."""

    def write(s: Schedule) -> None:
        s.parallel("Y_c")
        s.parallel("Y_n")

    w, program = scheduled("depthwise_conv2d:c=3,h=5,w=5,padding=1", write)
    shared = [lp.name for lp in parts(lower(program, TWO).body, Loop) if lp.kind == "parallel"]
    assert shared == ["Y_c"]
    assert_right(w, program)


def test_layer_norm_of_a_fused_vectorised_loop():
    def write(s: Schedule) -> None:
        s.vectorize(s.fuse("Y_i", "j"))

    assert_right(*scheduled("layer_norm:rows=5,cols=17", write))


def test_nested_tails_compile_in_bounded_time():
    """Cuts at cuts at cuts: their bounds would grow to a megabyte of text."""

    def write(s: Schedule) -> None:
        for loop in ("Y_w", "Y_h"):
            for _ in range(3):
                loop = s.split(loop, [2, None, 2], tail=True)[0]
        s.compute_at("P", "Y_c")
        for loop in ("P_h", "P_w"):
            for _ in range(3):
                loop = s.split(loop, [2, None, 3], tail=True)[0]

    w, program = scheduled("conv2d:ci=2,co=2,h=5,w=7,k=3,padding=1", write)
    assert len(plain(program)) < 200_000
    inputs = w.inputs()
    assert w.check(compile(program, ONE)(inputs["X"], inputs["W"]), inputs) is None


def test_llvm_survives_a_fused_loop_of_a_run_time_size():
    """LLVM's newgvn did not: it failed an assertion."""
    w = parse("conv2d:ci=?,co=3,h=?,w=5,k=3,stride=2,padding=1")
    s = Schedule(w.program)
    s.compute_at("P", "kh")
    s.fuse("Y_n", "Y_c", "Y_h")
    s.vectorize("P_w")
    s.split("kw", [None, 4], tail=True)
    s.cache_read("P", "X")
    s.split("ci", [None, 7], tail=True)
    s.split("P_c", [2, 1], tail=True)
    s.decompose_reduction("Y", "Y_n_Y_c_Y_h")
    inputs = w.inputs(ci=3, h=4)
    assert w.check(compile(s.program, ONE)(inputs["X"], inputs["W"]), inputs) is None


# --- refusals, and the checker itself ---------------------------------------------------------------------------------


def test_knobs_and_assumptions_are_refused():
    _, program = scheduled("matmul:m=8,n=8,k=8", lambda s: s.split("i", [None, knob("t")]))
    with pytest.raises(BuildError, match="matmul still has knobs: t"):
        lower(program, ONE)
    w = parse("matmul:m=?,n=8,k=8")
    s = Schedule(w.program)
    s.split("i", [None, 4])
    with pytest.raises(BuildError, match=r"matmul assumes m % 4 == 0 of run-time sizes"):
        lower(s.program, ONE)


def test_the_checker_sees_wild_accesses_races_and_gaps():
    b = Builder("rows")
    X = b.input("X", (4, 3))
    r = b.axis("r", 3)
    program = b.program(b.compute("Y", (4,), lambda i: total(X[i, r], r)))
    inputs = {"X": np.ones((4, 3), np.float32)}
    lowered = lower(program, ONE)
    assert (run_checked(lowered, program, inputs)["Y"] == 3).all()

    def broken(change: Callable[[Loop], Stmt]) -> Lowered:
        assert isinstance(lowered.body, Loop)
        return replace(lowered, body=change(lowered.body))

    with pytest.raises(AccessError, match=r"X\[4, 0\] is outside its shape \(4, 3\)"):
        run_checked(broken(lambda lp: replace(lp, extent=lp.extent + 1)), program, inputs)
    with pytest.raises(AccessError, match="output Y is not written completely"):
        run_checked(broken(lambda lp: replace(lp, extent=lp.extent - 1)), program, inputs)
    race = Loop(knob("t"), lowered.body.extent, lowered.body, "parallel")
    with pytest.raises(AccessError, match=r"Y\[\d\] is used by two iterations of a parallel loop"):
        run_checked(replace(lowered, body=race), program, inputs)


# --- what keeps compile time bounded ----------------------------------------------------------------------------------


def test_unrolling_beyond_the_limit_leaves_outer_loops():
    def write(s):
        for loop in s.loops("C"):
            s.unroll(loop)

    w, program = scheduled("matmul:m=16,n=16,k=16", write)
    kinds = {lp.name: lp.kind for lp in parts(lower(program, ONE).body, Loop)}
    assert kinds["k"] == kinds["j"] == "unrolled" and kinds["i"] == "serial"
    assert_right(w, program)


def test_tails_at_every_level_make_few_copies():
    """Where a condition is refuted nothing further is cut, however many conditions there are."""

    def write(s):
        for loop in s.loops("Y"):
            rest = loop
            for factor in (9, 4, 3):
                rest = s.split(rest, [None, factor], tail=True)[1]

    w, program = scheduled("conv2d:ci=5,co=7,h=6,w=7,k=3,padding=1", write)
    assert len(parts(lower(program, ONE).body, Store)) <= 300
    inputs = w.inputs()
    assert w.check(run_checked(lower(program, ONE), program, inputs), inputs) is None


def tiled_with_tails(s):
    parts = {"i": [None, 3, 4], "j": [None, 2, 16], "k": [None, 8]}
    (i0, i1, i2), (j0, j1, j2), (k0, k1) = (s.split(loop, f, tail=True) for loop, f in parts.items())
    s.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    s.unroll(i2)
    s.vectorize(j2)
    s.parallel(s.fuse(i0, j0))


def test_tails_of_fused_parallel_loops_are_tiles_of_registers():
    """Whole tiles and what is left of them, along each axis: four kernels, and none of them asks for a condition."""
    w, program = scheduled("matmul:m=38,n=85,k=21", tiled_with_tails)
    body = lower(program, ONE).body
    kept = [a.buffer.shape for a in parts(body, Alloc) if a.buffer.scope == "register"]
    assert [tuple(e.value for e in shape) for shape in kept] == [(4, 16), (4, 5), (2, 16), (2, 5)]
    inner = [lp for lp in parts(body, Loop) if lp.kind == "vectorized"]
    assert inner and not any(parts(lp, If) for lp in inner)
    assert_right(w, program)


def test_a_sum_ends_where_it_ends():
    _, program = scheduled("matmul:m=4,n=16,k=21", tiled_with_tails)
    text = plain(program)
    assert "for k_0 in 3:" in text and "for k_1 in min(8, -k_0*8 + 21):" in text and text.count("for k_0") == 1


@pytest.mark.parametrize("count", [2, 3])
def test_digits_of_fused_loops(count):
    """A fused loop of two or three parts, with a tail in each of them."""
    b = Builder("copy")
    X = b.input("X", (5, 6, 7))
    s = Schedule(b.program(b.compute("Y", (5, 6, 7), lambda i, j, k: X[i, j, k] + 1.0)))
    loops = s.loops("Y")
    outer, inner = zip(*(s.split(x, [None, 4], tail=True) for x in loops[:count]), strict=True)
    s.reorder(*outer, *inner, *loops[count:])
    s.parallel(s.fuse(*outer))
    given = np.arange(210, dtype=np.float32).reshape(5, 6, 7)
    found = run_checked(lower(s.program, ONE), s.program, {"X": given})["Y"]
    assert (found == given + 1).all() and not parts(lower(s.program, ONE).body, Select)
    assert len(parts(lower(s.program, ONE).body, If)) <= 2 * count


def test_tiles_beyond_a_buffer_do_not_enlarge_it():
    def write(s):
        for loop in s.loops("Y"):
            s.split(loop, [None, 5, 4], tail=True)

    w, program = scheduled("conv2d:ci=2,co=3,h=6,w=7,k=3,padding=1", write)
    (padded,) = {a.buffer for a in parts(lower(program, ONE).body, Alloc) if a.buffer.name == "P"}
    assert padded.shape == program.buffers["P"].shape
    assert_right(w, program)
