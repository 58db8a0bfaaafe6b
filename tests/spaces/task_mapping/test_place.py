"""Mappings put on stages, and convolutions rewritten to one axis of pixels."""

import pytest

import searchlab as sl
from searchlab.errors import SpaceError
from searchlab.ir.compute import Builder, total
from searchlab.ir.expr import knob
from searchlab.schedule import Schedule
from searchlab.workloads import Workload
from spaces.task_mapping import auto_map, projection, repeat, spatial
from spaces.task_mapping.anchor import anchor, views
from spaces.task_mapping.pixels import as_columns
from spaces.task_mapping.place import place, share


def right(workload: Workload, schedule: Schedule) -> None:
    inputs = workload.inputs(seed=0)
    assert workload.check(sl.compile(schedule.program, sl.detect())(*inputs.values()), inputs) is None


def test_the_loops_follow_the_mapping() -> None:
    w = sl.workload("matmul", m=13, n=37, k=11)
    s = Schedule(w.program)
    mapping = (
        spatial(3, 2, 1)
        * repeat(1, 1, 11)
        * repeat(5, 1, 1, kind="unrolled")
        * spatial(1, 20, 1)
    )  # fmt: skip
    loops = place(s, "C", mapping)
    share(s, loops[0], threads=2)
    kinds = [(lp.kind, str(lp.extent)) for lp in s.program.loops.values()]
    assert kinds == [("parallel", "6"), ("serial", "11"), ("unrolled", "5"), ("vectorized", "20")]
    right(w, s)


def test_ranks_order_the_loops() -> None:
    w = sl.workload("matmul", m=6, n=8, k=5)
    s = Schedule(w.program)
    assert place(s, "C", repeat(6, 8, 5, ranks=(2, 0, 1))) == [["j", "k", "i"]]
    right(w, s)


def test_symbols() -> None:
    w = sl.workload("matmul", m=13, n=37, k=11)
    s = Schedule(w.program)
    place(s, "C", spatial(knob("a"), 1, 1) * repeat(1, 37, 11) * repeat(knob("rows"), 1, 1, kind="unrolled"))
    assert s.program.knobs == ("rows",)  # how many blocks there are follows
    right(w, Schedule(s.program.substitute({"rows": 4})))


def test_refusals() -> None:
    s = Schedule(sl.workload("matmul", m=6, n=8, k=5).program)
    with pytest.raises(SpaceError, match="repeat, spatial and call only"):
        place(s, "C", projection(auto_map((6, 8, 5), 2), {0: 0}))
    with pytest.raises(SpaceError, match="rank 2 does not fit the loops i, j, k"):
        place(s, "C", repeat(6, 8))


@pytest.mark.parametrize(
    ("op", "params"),
    [
        ("conv1d", {"ci": 3, "co": 5, "w": 9, "k": 3}),
        ("conv2d", {"ci": 3, "co": 5, "h": 5, "w": 7, "k": 3, "stride": 2, "padding": 1}),
        ("conv2d_bn_relu", {"ci": 3, "co": 5, "h": 5, "w": 7, "k": 2, "dilation": 2}),
        ("conv3d", {"ci": 3, "co": 5, "d": 3, "h": 4, "w": 5, "k": 2}),
    ],
)
def test_columns_of_pixels(op: str, params: dict[str, int]) -> None:
    w = sl.workload(op, **params)
    b = anchor(w.program)
    assert b is not None
    made = as_columns(w.program, next(v for v in views(b, 0) if v.contiguous))
    assert made is not None
    program, view = made
    space = [it for it in program.blocks[view.block].iters if it.kind == "space"]
    assert len(space) == 3 and view.plain and view.operand.indices[-1] == space[-1].var
    right(w, Schedule(program))


def test_columns_need_followers_in_the_same_order() -> None:
    b = Builder("turned")
    X, W = b.input("X", (3, 9)), b.input("W", (5, 3, 2))
    i, k = b.axis("i", 3), b.axis("k", 2)
    C = b.compute("C", (5, 8), lambda c, x: total(X[i, x + k] * W[c, i, k], i, k))
    program = b.program(b.compute("Y", (8, 5), lambda x, c: C[c, x] + 1.0))
    view = next(v for v in views(program.blocks["C"], 0) if v.contiguous)
    assert as_columns(program, view) is None
