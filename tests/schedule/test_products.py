"""Reindexed operands, transformed blocks and padding together: operators become matrix products, with any sizes."""

import numpy as np
import pytest

from searchlab.backend import compile
from searchlab.errors import ScheduleError
from searchlab.ir import Builder, Program, interpret, select, size, total
from searchlab.ir.affine import Need, iteration_map, validated
from searchlab.ir.alpha import same_up_to_names
from searchlab.schedule import Schedule, replay, trace_json
from searchlab.targets import parse as target_of
from searchlab.workloads import parse


def product(s: Schedule) -> None:
    """A 2D convolution, as rows of windows times columns of filters."""
    n, c, h, w, ci, kh, kw = (it.extent for it in s.program.blocks["Y"].iters)
    for operand in (s.program.blocks["Y"].store.buffer, "P", "W"):
        s.reindex("Y", operand)
    s.transform_block_layout(
        "Y", lambda n, c, y, x, r, p, q: ((n * h + y) * w + x, c, (r * kh + p) * kw + q), names=["x", "y", "k"]
    )
    s.transform_layout("P_reindex", lambda n, y, x, r, p, q: ((n * h + y) * w + x, (r * kh + p) * kw + q))
    s.transform_layout("W_reindex", lambda c, r, p, q: (c, (r * kh + p) * kw + q))
    s.transform_layout("Y_reindex", lambda n, c, y, x: ((n * h + y) * w + x, c))


def gemm(m: int, n: int, k: int) -> Program:
    """C = A B', both operands with the sum last."""
    b = Builder("gemm")
    A, B, r = b.input("A", (m, k)), b.input("B", (n, k)), b.axis("k", k)
    return b.program(b.compute("C", (m, n), lambda i, j: total(A[i, r] * B[j, r], r)))


@pytest.mark.parametrize("spec", ["ci=3,co=5,h=7,w=6,padding=1,stride=2", "n=2,ci=4,co=3,h=5,w=5,k=2x3,dilation=1x2"])
def test_a_convolution_is_a_matrix_product(spec: str) -> None:
    w = parse(f"conv2d:{spec}")
    if "P" not in w.program.blocks:
        w = parse(f"conv2d:{spec},padding=1")
    s = Schedule(w.program)
    product(s)
    block = s.program.blocks["Y"]
    whole = gemm(*(int(str(it.extent)) for it in block.iters))
    assert same_up_to_names(whole.loops["i"].body.body.body, s.program.loops["x"].body.body.body)
    s.pad("Y", {"vx": 4, "vy": 4, "vk": 4})
    x0, x1 = s.split("x", [None, 4])
    y0, y1 = s.split("y", [None, 4])
    k0, k1 = s.split("k", [None, 4])
    s.reorder(x0, y0, k0, x1, y1, k1)
    inputs = w.inputs(seed=1)
    assert w.check(interpret(s.program, inputs), inputs) is None
    kernel = compile(s.program, target_of("x86-64-v2"))
    assert w.check(kernel(*inputs.values()), inputs) is None
    assert replay(w.program, trace_json(s.program)) == s.program


def test_padding_that_was_not_needed_is_taken_back() -> None:
    """Pad, tile, and back: tiles with a mask, as a split with a tail would have made them."""
    plain = parse("matmul:m=7,n=5,k=3").program
    s, t = Schedule(plain), Schedule(plain)
    s.pad("C", {"vi": 4, "vj": 4})
    for x in (s, t):
        x.reorder(*x.split("i", [None, 4], tail=True), "j", "k")
        x.split("j", [None, 4], tail=True)
    s.unpad("C")
    assert str(s.program).splitlines()[1:] == str(t.program).splitlines()[1:]


def test_unpad_is_the_inverse_of_pad() -> None:
    for spec in ("matmul:m=7,n=5,k=3", "batch_matmul:batch=3,m=5,n=4,k=7,dtype=int8"):
        plain = parse(spec).program
        s = Schedule(plain)
        s.pad("C", {f"v{x}": 4 for x in "ijk"})
        assert str(s.program) != str(plain)
        s.unpad("C")
        assert str(s.program) == str(plain)


def test_sizes_known_at_run_time() -> None:
    n = size("n")
    b = Builder("windows")
    X, W, r = b.input("X", (n, 8)), b.input("W", (3,)), b.axis("r", 3)
    P = b.compute("P", (n, 10), lambda i, j: select((j >= 1) & (j < 9), X[i, j - 1], 0.0))
    plain = b.program(b.compute("Y", (n, 8), lambda i, j: total(P[i, j + r] * W[r], r)))
    s = Schedule(plain)
    s.decompose_padding("P", "i")
    s.reindex("Y", "P")
    s.reindex("Y", "Y")
    s.transform_block_layout("Y", lambda i, j, r: (i * 8 + j, r), names=["x", "k"])
    s.transform_layout("P_reindex", lambda i, j, r: (i * 8 + j, r))
    s.transform_layout("Y_reindex", lambda i, j: (i * 8 + j,))
    s.split("x", [None, 5], tail=True)
    assert validated(iteration_map(s.program.body, s.program.blocks["Y"]), Need.BIJECTIVE, s.program.facts)
    rng = np.random.default_rng(0)
    for rows in (1, 3):
        inputs = {
            "X": rng.integers(-4, 5, (rows, 8)).astype("float32"),
            "W": rng.integers(-4, 5, 3).astype("float32"),
        }
        expected = interpret(plain, inputs, {"n": rows})
        np.testing.assert_array_equal(interpret(s.program, inputs, {"n": rows})["Y"], expected["Y"])


# --- faults that random schedules found -------------------------------------------------------------------------------


def same_values(plain: Program, scheduled: Program) -> bool:
    rng = np.random.default_rng(1)
    shapes = {name: [int(str(e)) for e in plain.buffers[name].shape] for name in plain.inputs}
    inputs = {name: rng.integers(-4, 5, shape).astype(plain.buffers[name].dtype) for name, shape in shapes.items()}
    before, after = interpret(plain, inputs), interpret(scheduled, inputs)
    return all(np.array_equal(before[name], after[name]) for name in plain.outputs)


def test_a_layout_does_not_fill_what_a_stage_leaves_out() -> None:
    """The copy of the inside begins at 0, so that it looks like one of the whole buffer."""
    plain = parse("matmul:m=3,n=5,k=3").program
    s = Schedule(plain)
    s.pad("C", {"vj": 4})
    s.decompose_padding("B_pad", "B_pad_0")
    s.transform_layout("B_pad", lambda k, j: (j // 4, k, j % 4))
    assert same_values(plain, s.program)


def test_a_reader_does_not_lose_what_lies_behind_its_producer() -> None:
    """A layout rounds the buffer up; the padded copy reads beyond what is ever stored."""
    s = Schedule(parse("matmul:m=3,n=5,k=4").program)
    s.rfactor("k", axis=2)
    s.transform_layout("C_rf", lambda i, j, k: (i, j, k // 8, k % 8))
    s.pad("C", {"vk": 3})
    with pytest.raises(ScheduleError, match="'C_rf_pad' runs over more than 'C_rf' has"):
        s.reverse_compute_at("C_rf_pad", "i")


def test_an_init_stays_inside_where_a_split_goes_beyond() -> None:
    plain = parse("reduce:shape=9x4,axis=1,op=max").program
    s = Schedule(plain)
    fused = s.fuse(*s.loops("Y"))
    _, inner = s.split(fused, [17, 4], tail=True)
    s.decompose_reduction("Y", inner)
    assert same_values(plain, s.program)


def test_an_output_is_reindexed_without_variables_that_do_not_move() -> None:
    plain = parse("reduce:shape=6x4,axis=1,op=max").program
    s = Schedule(plain)
    s.transform_block_layout("Y", lambda i, r: (i * 0, i, r))
    s.reindex("Y", "Y")
    assert len(s.program.buffers["Y_reindex"].shape) == 1
    assert same_values(plain, s.program)
