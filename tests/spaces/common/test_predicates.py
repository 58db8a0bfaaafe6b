"""What predicates say about stages that the papers name."""

import pytest

import searchlab as sl
from searchlab.errors import SpaceError
from searchlab.ir import Builder, Program, call, total
from searchlab.workloads import Workload
from spaces import common


def conv(**more: object) -> Workload:
    return sl.workload("conv2d", **({"ci": 4, "co": 6, "h": 8, "w": 8, "k": 3, "padding": 1} | more))


def chain() -> Program:
    """Cheap and dear elementwise stages, and one that transposes."""
    b = Builder("chain")
    X, R = b.input("X", (6, 8), "float32"), b.input("R", (8,), "float32")
    T = b.compute("T", (6, 8), lambda i, j: X[i, j] * 2.0 + R[j])
    E = b.compute("E", (6, 8), lambda i, j: call("exp", T[i, j]))
    U = b.compute("U", (8, 6), lambda i, j: E[j, i] + 1.0)
    Y = b.compute("Y", (8, 6), lambda i, j: U[i, j] - 1.0)
    return b.program(Y)


def test_what_is_always_inlined() -> None:
    found = {n: common.strictly_inlinable(chain(), n) for n in "TEUY"}
    assert found == {"T": True, "E": False, "U": False, "Y": False}  # dear, out of order, an output
    assert not common.strictly_inlinable(conv().program, "P")  # padding is a branch


@pytest.mark.parametrize(
    ("workload", "block", "tiled"),
    [
        (sl.workload("matmul", m=4, n=4, k=4), "C", True),
        (conv(), "Y", True),
        (conv(), "P", False),
        (sl.workload("depthwise_conv2d", c=4, h=8, w=8), "Y", True),
        (sl.workload("softmax", rows=4, cols=8), "S", False),
        (sl.workload("max_pool2d", c=4, h=8, w=8), "Y", False),
        (sl.workload("layer_norm", rows=4, cols=8), "Y", False),
        (sl.workload("conv2d_bn_relu", ci=4, co=4, h=6, w=6), "Y", False),
    ],
    ids=lambda x: str(x),
)
def test_what_is_tiled(workload: Workload, block: str, tiled: bool) -> None:
    assert common.needs_tiling(workload.program, block) is tiled


def test_an_outer_product_is_tiled() -> None:
    b = Builder("outer")
    A, B = b.input("A", (6,), "float32"), b.input("B", (8,), "float32")
    assert common.needs_tiling(b.program(b.compute("C", (6, 8), lambda i, j: A[i] * B[j])), "C")


def test_the_reader_that_may_be_fused() -> None:
    assert common.fusible_consumer(sl.workload("dense", m=4, n=4, k=4).program, "C") == "Y"
    assert common.fusible_consumer(sl.workload("matmul", m=4, n=4, k=4).program, "C") is None
    softmax = sl.workload("softmax", rows=4, cols=8).program
    assert common.fusible_consumer(softmax, "E") is None  # two readers
    assert common.fusible_consumer(softmax, "M") is None  # read along rows


def test_two_reductions_are_not_fused() -> None:
    b = Builder("two")
    X = b.input("X", (4, 8), "float32")
    r, q = b.axis("r", 8), b.axis("q", 4)
    S = b.compute("S", (4,), lambda i: total(X[i, r], r))
    T = b.compute("T", (4,), lambda i: total(S[i] * X[i, q], q))
    assert common.fusible_consumer(b.program(T), "S") is None


@pytest.mark.parametrize(
    ("workload", "block", "wanted"),
    [
        (sl.workload("l2_norm", batch=1, rows=16, cols=16), "S", True),
        (sl.workload("matmul", m=4, n=4, k=256), "C", True),
        (sl.workload("matmul", m=16, n=16, k=255), "C", False),  # more space than reduction
        (sl.workload("matmul", m=8, n=8, k=256), "C", False),  # enough space for 2 cores
        (sl.workload("softmax", rows=64, cols=8), "S", True),
        (sl.workload("reduce", shape="64x2", axis=1), "Y", False),  # not more than cores
        (sl.workload("softmax", rows=4, cols=8), "Y", False),
    ],
    ids=lambda x: str(x),
)
def test_what_is_factored(workload: Workload, block: str, wanted: bool) -> None:
    assert common.wants_rfactor(workload.program, block, threads=2) is wanted


def test_what_only_moves_data() -> None:
    program = conv().program
    assert common.only_moves_data(program.blocks["P"]) and not common.only_moves_data(program.blocks["Y"])


def test_a_place_where_elements_are_computed_again() -> None:
    program = sl.workload("softmax", rows=4, cols=8).program
    assert common.would_repeat(program, "S", "Y_j") and not common.would_repeat(program, "S", "Y_i")


def test_run_time_sizes_are_refused() -> None:
    with pytest.raises(SpaceError, match="run-time size m"):
        common.points(sl.workload("matmul", m="?", n=4, k=4).program.blocks["C"].iters)
