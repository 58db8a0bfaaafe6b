"""What tactics do: each step gives a program that computes the same, of the structure it promises, or is refused."""

import pytest

import searchlab as sl
from searchlab import tactics
from searchlab.errors import ScheduleError
from searchlab.ir import Builder, call, interpret
from searchlab.ir.expr import knob, value_of
from searchlab.schedule import Schedule
from searchlab.workloads import Workload


def right(workload: Workload, s: Schedule) -> None:
    inputs = workload.inputs(seed=1)
    assert workload.check(interpret(s.program, inputs), inputs) is None


def kinds(s: Schedule, block: str) -> list[str]:
    return [s.program.loops[lp].kind for lp in s.loops(block)]


# --- attempts ---------------------------------------------------------------------------------------------------------


def test_a_refused_step_leaves_the_program_as_it_was() -> None:
    s = Schedule(sl.workload("softmax", rows=4, cols=8).program)
    before = s.program
    assert not tactics.attempt(s.compute_inline, "S") and s.program is before
    assert tactics.attempt(s.compute_at, "S", "Y_i") and s.program is not before


def test_other_errors_are_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        tactics.attempt(lambda: 1 // 0)


def test_as_many_loops_are_fused_as_can_be() -> None:
    w = sl.workload("matmul", m=4, n=6, k=8)
    s = Schedule(w.program)
    assert tactics.fuse_outer(s, ["i", "j"]) == s.loops("C")[0] and len(s.loops("C")) == 2
    right(w, s)
    s = Schedule(w.program)
    s.vectorize("j")
    assert tactics.fuse_outer(s, ["i", "j"]) == "i" and s.loops("C") == ["i", "j", "k"]  # a vector is not fused


# --- stages around a main one -----------------------------------------------------------------------------------------


def test_cheap_stages_are_inlined() -> None:
    b = Builder("chain")
    X = b.input("X", (4, 8), "float32")
    A = b.compute("A", (4, 8), lambda i, j: X[i, j] * 2.0)
    E = b.compute("E", (4, 8), lambda i, j: call("exp", A[i, j]))
    s = Schedule(b.program(b.compute("Y", (4, 8), lambda i, j: E[i, j] + 1.0)))
    tactics.inline_cheap(s)
    assert list(s.program.blocks) == ["E", "Y"]  # a function is not called where it is not asked to be


def test_rows_are_gathered() -> None:
    w = sl.workload("softmax", rows=4, cols=8)
    s = Schedule(w.program)
    assert tactics.gather_rows(s) == "Y_i"
    assert all(s.loops(name)[0] == "Y_i" for name in s.program.blocks)
    right(w, s)


def test_a_single_row_cannot_be_gathered() -> None:
    b = Builder("line")
    X = b.input("X", (8,), "float32")
    E = b.compute("E", (8,), lambda i: call("exp", X[i]))
    s = Schedule(b.program(b.compute("Y", (8,), lambda i: E[i] + 1.0)))
    before = s.program
    assert tactics.gather_rows(s) is None and s.program is before


def test_padding_is_computed_where_it_is_read() -> None:
    w = sl.workload("depthwise_conv2d", c=3, h=6, w=8, padding=1)
    s = Schedule(w.program)
    channel = s.loops("Y")[1]
    tactics.gather_inputs(s, channel)
    assert channel in s.loops("P") and kinds(s, "P")[-1] == "vectorized"
    right(w, s)


@pytest.mark.parametrize(("rows", "unrolled"), [(4, True), (32, False)])
def test_epilogues_join_the_tile(rows: int, unrolled: bool) -> None:
    w = sl.workload("dense", m=64, n=16, k=4)
    s = Schedule(w.program)
    tactics.inline_cheap(s)
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, [None, rows])
    s.reorder(i0, k, i1, j)
    tactics.join_epilogues(s, "C", i0)
    (last,) = w.program.outputs
    assert s.loops(last)[0] == i0 and kinds(s, last)[1:] == ["unrolled" if unrolled else "serial", "vectorized"]
    right(w, s)


def test_tiles_of_knobs_are_written_out_and_run_time_rows_are_not() -> None:
    for w, factor, kind in (
        (sl.workload("dense", m=64, n=16, k=4), knob("rows"), "unrolled"),
        (sl.workload("dense", m="?", n=16, k=4), None, "serial"),
    ):
        s = Schedule(w.program)
        tactics.inline_cheap(s)
        i, j, k = s.loops("C")
        home = s.split(i, [None, factor], tail=True)[0] if factor is not None else s.split(j, [None, 8])[0]
        inner = [lp for lp in s.loops("C") if lp not in (home, k)]
        s.reorder(home, k, *inner)
        tactics.join_epilogues(s, "C", home)
        assert kinds(s, w.program.outputs[0])[1:] == [kind, "vectorized"]


def test_a_reduction_does_not_join() -> None:
    s = Schedule(sl.workload("softmax", rows=4, cols=8).program)
    before = s.loops("S")
    tactics.join_epilogues(s, "E", s.loops("E")[0])
    assert s.loops("S") == before


def test_what_nothing_has_touched() -> None:
    s = Schedule(sl.workload("softmax", rows=4, cols=8).program)
    s.vectorize(s.loops("E")[-1])
    s.compute_at("S", "Y_i")
    assert list(tactics.fresh_stages(s)) == ["M", "Y"]  # E is in vectors, S stands inside a loop of Y


# --- panels -----------------------------------------------------------------------------------------------------------


def test_leading_dimensions_stay_in_front_of_the_panels() -> None:
    w = sl.workload("batch_matmul", batch=2, m=4, n=12, k=6)
    s = Schedule(w.program)
    copy = s.cache_read("C", "B")
    tactics.lay_in_panels(s, copy, 2, 4, leading=[0])
    assert [value_of(e) for e in s.program.buffers[copy].shape] == [2, 3, 6, 4]
    right(w, s)


def test_dimensions_are_joined() -> None:
    w = sl.workload("conv2d", ci=4, co=6, h=6, w=4, k=1)
    s = Schedule(w.program)
    copy = s.cache_read("Y", "X")
    tactics.join_trailing(s, copy, 2)
    assert [value_of(e) for e in s.program.buffers[copy].shape] == [1, 4, 24]
    right(w, s)


def test_results_that_are_an_output_are_copied_out() -> None:
    w = sl.workload("conv2d", ci=4, co=8, h=6, w=4, k=1)
    s = Schedule(w.program)
    results = tactics.intermediate_results(s, "Y")
    assert results not in s.program.outputs and len(s.program.blocks) == 2
    assert tactics.intermediate_results(s, "Y") == results and len(s.program.blocks) == 2
    tactics.lay_in_panels(s, results, 1, 4)
    right(w, s)


def test_packing_spreads_rows_over_panels() -> None:
    w = sl.workload("matmul", m=4, n=12, k=6)
    s = Schedule(w.program)
    panel = tactics.panel(w.program, "C")
    assert panel is not None
    copy = tactics.pack(s, "C", panel, 4, ahead=False)
    panels, rows, lanes = s.loops(copy)
    assert tactics.rows_first(s, copy, panel) == [rows, panels, lanes]
    tactics.spread_rows(s, [panels, rows])
    assert s.loops(copy) == [rows, panels, lanes]
    right(w, s)


# --- threads and vectors ----------------------------------------------------------------------------------------------


def test_threads_share_enough_iterations() -> None:
    w = sl.workload("matmul", m=4, n=6, k=8)
    s = Schedule(w.program)
    assert tactics.outermost(s, ["i", "j"], 4) == ["i"] and tactics.outermost(s, ["i", "j"], 5) == ["i", "j"]
    assert tactics.outermost(s, ["i", "j"], 100) == ["i", "j"]
    tactics.share(s, ["i", "j"], 5)
    assert len(s.loops("C")) == 2 and kinds(s, "C") == ["parallel", "serial"]
    right(w, s)


def test_run_time_sizes_count_as_the_caller_says() -> None:
    s = Schedule(sl.workload("matmul", m="?", n=6, k=8).program)
    assert tactics.outermost(s, ["i", "j"], 5) == ["i", "j"]
    assert tactics.outermost(s, ["i", "j"], 5, unknown=1 << 30) == ["i"]


def test_loops_around_several_stages_are_shared_once() -> None:
    w = sl.workload("softmax", rows=4, cols=8)
    s = Schedule(w.program)
    tactics.gather_rows(s)
    tactics.share_around(s, ["Y_i"], 2)
    assert s.program.loops["Y_i"].kind == "parallel"
    after = s.program
    tactics.share_around(s, ["Y_i"], 2)
    assert s.program is after
    right(w, s)


def test_a_carried_loop_is_not_shared() -> None:
    s = Schedule(sl.workload("matmul", m=4, n=6, k=8).program)
    with pytest.raises(ScheduleError, match="parallel"):
        tactics.fuse_parallel(s, ["k"])


def test_outputs_in_vectors_inside_the_sum() -> None:
    w = sl.workload("reduce", shape="6x10", axis=0)
    s = Schedule(w.program)
    (column,), reduction = tactics.axis_loops(s, "Y")
    outer = tactics.vectorize_outputs(s, column, reduction, 4)
    assert s.loops("Y")[0] == outer and s.loops("Y")[1] == reduction[0]
    assert kinds(s, "Y") == ["serial", "serial", "vectorized"]
    right(w, s)


# --- pixels and elements ----------------------------------------------------------------------------------------------


def test_stages_are_collapsed_with_what_follows_them() -> None:
    w = sl.workload("conv2d", ci=3, co=4, h=5, w=6, k=1, then="bias,add,sigmoid")
    s = Schedule(w.program)
    found = tactics.trailing(s.program, "C")
    assert found is not None and tactics.epilogues(s.program, "C") == ["Y"]
    tactics.collapse_stages(s, "C", found)
    assert [value_of(s.program.loops[lp].extent) for lp in s.loops("Y")] == [1, 4, 30]
    assert tuple(map(value_of, s.program.buffers["C"].shape)) == (1, 4, 30)  # an intermediate result, unlike Y
    right(w, s)


def test_what_reads_more_than_its_own_element_is_no_epilogue() -> None:
    softmax = sl.workload("softmax", rows=4, cols=8).program
    assert tactics.epilogues(softmax, "M") is None  # a value for a whole row
    b = Builder("twice")
    X = b.input("X", (4, 8), "float32")
    A = b.compute("A", (4, 8), lambda i, j: X[i, j] * 2.0)
    B = b.compute("B", (4, 8), lambda i, j: A[i, j] + 1.0)
    program = b.program(b.compute("Y", (4, 8), lambda i, j: A[i, j] * B[i, j]))
    assert tactics.epilogues(program, "A") is None and tactics.epilogues(program, "B") == ["Y"]


def test_where_stages_meet() -> None:
    def meets(name: str, **params: int | str) -> bool:
        return tactics.meets_only_at_elements(sl.workload(name, **params).program)

    assert meets("global_avg_pool2d", c=4, h=3, w=3)
    assert not meets("softmax", rows=4, cols=8)  # all of a row needs its sum
    assert not meets("reduce", shape="4x5x6", axis=1, op="mean")  # neighbouring sums read neighbouring elements
    assert not meets("elementwise", rows=4, cols=8, ops="relu")  # one stage


def test_reductions_that_run_through_memory_as_one() -> None:
    pool = sl.workload("global_avg_pool2d", c=4, h=3, w=5).program
    assert tactics.reduces_as_one(pool, pool.blocks["S"])
    windows = sl.workload("max_pool2d", c=4, h=8, w=8).program
    assert not tactics.reduces_as_one(windows, windows.blocks["Y"])  # rows of a window are not complete
