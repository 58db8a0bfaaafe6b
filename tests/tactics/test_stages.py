"""What tactics see in a stage: its axes, operands, vectors, and the ways to take it for a matrix product."""

import pytest

import searchlab as sl
from searchlab import tactics
from searchlab.ir import Builder, Program, total
from searchlab.schedule import Schedule
from searchlab.tactics import Panel
from searchlab.targets import parse
from searchlab.workloads import Workload


def conv(**more: object) -> Workload:
    return sl.workload("conv2d", **({"ci": 4, "co": 6, "h": 8, "w": 8, "k": 3, "padding": 1} | more))


def test_operands_are_listed_once_and_without_the_output() -> None:
    b = Builder("square")
    X = b.input("X", (4, 8), "float32")
    r = b.axis("r", 8)
    S = b.compute("S", (4,), lambda i: total(X[i, r] * X[i, r], r))
    block = b.program(S).blocks["S"]
    (load,) = tactics.operands(block)
    assert load.buffer == "X" and tactics.work(block) == 32
    assert [tactics.moves_with(load, it.var) for it in block.iters] == [True, True]
    assert len(tactics.space_axes(block)) == len(tactics.reduce_axes(block)) == 1 and tactics.stores_plainly(block)


def test_loops_of_a_stage_that_was_moved() -> None:
    s = Schedule(sl.workload("softmax", rows=4, cols=8).program)
    s.compute_at("S", "Y_i")
    row, i, r = s.loops("S")
    assert row == "Y_i" and tactics.axis_loops(s, "S") == ([i], [r]) and tactics.own_loops(s, "S") == [i, r]
    assert tactics.loops_inside(s, "Y", "Y_i") == ["Y_j"] and tactics.own_loops(s, "Y") == ["Y_j"]
    space, reduction = tactics.loops_by_kind(s, "S", s.loops("S"))
    assert "Y_i" in space and len(reduction) == 1


def test_extents_that_are_not_known_yet() -> None:
    s = Schedule(sl.workload("matmul", m="?", n=4, k=4).program)
    assert tactics.extent(s, "i") is None and tactics.extent(s, "j") == 4
    assert tactics.work(s.program.blocks["C"]) == 16


# --- products ---------------------------------------------------------------------------------------------------------


def test_a_matmul_is_two_products() -> None:
    program = sl.workload("matmul", m=4, n=6, k=8).program
    (block,) = tactics.products(program)
    rows, columns = tactics.product_views(block)
    assert (rows.vector, rows.row, rows.operand.buffer, rows.dimension, rows.contiguous) == (0, 1, "A", 0, False)
    assert (columns.vector, columns.row, columns.operand.buffer, columns.dimension) == (1, 0, "B", 1)
    assert columns.contiguous and columns.plain


def test_a_window_moves_its_operand_but_is_not_an_index_of_it() -> None:
    views = {v.vector: v for v in tactics.product_views(conv().program.blocks["Y"])}
    assert views[1].operand.buffer == "W" and views[1].plain and not views[1].contiguous
    assert views[3].operand.buffer == "P" and not views[3].plain and views[3].contiguous
    assert views[3].row == 1  # the only axis that the input does not depend on


def test_what_is_not_a_product() -> None:
    assert tactics.products(sl.workload("max_pool2d", c=4, h=8, w=8).program) == []  # one operand
    assert tactics.products(sl.workload("l2_norm", batch=2, rows=4, cols=4).program) == []
    depthwise = sl.workload("depthwise_conv2d", c=4, h=8, w=8).program
    assert all(not v.plain for b in tactics.products(depthwise) for v in tactics.product_views(b))


def test_the_operand_to_pack() -> None:
    assert tactics.panel(sl.workload("matmul", m=4, n=6, k=8).program, "C") == Panel("B", 1, 1)
    assert tactics.panel(conv().program, "Y") == Panel("W", 1, 0)
    assert tactics.panel(conv(groups=2).program, "Y") is None  # the input moves with output channels too
    assert tactics.panel(sl.workload("transpose_batch_matmul", seq=6, heads=2, dim=4).program, "C") == Panel("K", 3, 1)
    assert tactics.panel(sl.workload("softmax", rows=4, cols=8).program, "S") is None


# --- vectors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("axis", "outputs"), [(0, True), (1, False)])
def test_which_axis_lies_side_by_side(axis: int, outputs: bool) -> None:
    s = Schedule(sl.workload("reduce", shape="6x8", axis=axis).program)
    block = s.program.blocks["Y"]
    assert tactics.side_by_side(block) is outputs and tactics.reduces_along_rows(block) is not outputs
    _, reduction = tactics.axis_loops(s, "Y")
    assert tactics.contiguous_reduction(block, reduction) == (None if outputs else reduction[0])


def test_axes_of_one_iteration_do_not_count_for_rows() -> None:
    block = one_column().blocks["Y"]
    assert tactics.side_by_side(block)  # the last axis is there, short as it is
    assert not tactics.reduces_along_rows(block)  # rows have one element: nothing walks along them


def one_column() -> Program:
    b = Builder("column")
    X = b.input("X", (8, 1), "float32")
    r = b.axis("r", 8)
    return b.program(b.compute("Y", (1,), lambda j: total(X[r, j], r)))


def test_tiles_fit_the_registers() -> None:
    v3, v4 = parse("x86-64-v3"), parse("x86-64-v4")
    assert tactics.register_tile(v3, "float32", 100, 100, 2) == (6, 16)
    assert tactics.register_tile(v4, "float32", 100, 100, 4) == (6, 64)
    assert tactics.register_tile(v4, "float32", 3, 5, 4) == (3, 5)  # no larger than the problem
    for rows, vectors, fits in ((6, 2, True), (7, 2, False), (14, 1, True), (1, 8, False)):
        assert str(tactics.fits_registers(rows, vectors, 16)) == ("true" if fits else "false")
