"""Kernels: what they accept and refuse, where results go, constants, other processes, other threads."""

import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from searchlab.backend import build, compile, load
from searchlab.defaults import default_schedule
from searchlab.errors import BuildError, KernelError
from searchlab.ir import Builder, Program, call, knob, size, total
from searchlab.runtime.kernel import CpuKernel
from searchlab.schedule import Schedule
from searchlab.targets import detect
from searchlab.workloads import parse, workload

ONE = detect(threads=1)
TWO = detect(threads=min(2, detect().cores))
RNG = np.random.default_rng(0)
A, B = RNG.random((4, 6), np.float32), RNG.random((6, 8), np.float32)


@pytest.fixture(scope="module")
def matmul() -> CpuKernel:
    return compile(parse("matmul:m=4,n=8,k=6").program, ONE)


@pytest.fixture(scope="module")
def sized() -> CpuKernel:
    """A matmul whose sizes are known only when it is called."""
    return compile(workload("matmul", m="?", n="?", k="?").program, ONE)


def statistics() -> Program:
    """Two outputs: the sums of rows, and the rows divided by them."""
    b = Builder("statistics")
    X = b.input("X", (5, 7))
    r = b.axis("r", 7)
    S = b.compute("S", (5,), lambda i: total(X[i, r], r))
    return b.program(S, b.compute("Y", (5, 7), lambda i, j: X[i, j] / S[i]))


# --- bad input --------------------------------------------------------------------------------------------------------


def _read_only(shape: tuple[int, ...]) -> np.ndarray:
    x = np.zeros(shape, np.float32)
    x.flags.writeable = False
    return x


def _unaligned(x: np.ndarray) -> np.ndarray:
    raw = np.zeros(x.nbytes + 1, np.uint8)
    return raw[1:].view(x.dtype).reshape(x.shape)


SQUARE = np.zeros((8, 8), np.float32)

BAD: dict[str, tuple[tuple[Any, ...], Any, list[str]]] = {
    "too few": ((A,), None, ["takes 2 inputs", "A: float32[4, 6], B: float32[6, 8]", "got 1"]),
    "too many": ((A, B, B), None, ["takes 2 inputs", "got 3"]),
    "shape": ((A, B.T.copy()), None, ["input 'B'", "(8, 6)", "B: float32[6, 8]"]),
    "rank": ((A[0], B), None, ["input 'A'", "(6,)", "A: float32[4, 6]"]),
    "dtype": ((A, B.astype(np.float64)), None, ["input 'B'", "float64", "expected float32"]),
    "byte order": ((A, B.astype(">f4")), None, ["input 'B'", ">f4", "expected float32"]),
    "strides": ((A, np.asfortranarray(B)), None, ["input 'B'", "strides", "contiguous", "ascontiguousarray"]),
    "strided view": ((np.zeros((4, 12), np.float32)[:, ::2], B), None, ["input 'A'", "strides"]),
    "alignment": ((_unaligned(A), B), None, ["input 'A'", "multiple of its element size"]),
    "list": ((A.tolist(), B), None, ["input 'A'", "numpy array", "list"]),
    "none": ((None, B), None, ["input 'A'", "NoneType"]),
    "number": ((3.0, B), None, ["input 'A'", "float"]),
    "out shape": ((A, B), np.zeros((8, 4), np.float32), ["output 'C'", "(8, 4)", "C: float32[4, 8]"]),
    "out dtype": ((A, B), np.zeros((4, 8)), ["output 'C'", "float64", "float32"]),
    "out strides": ((A, B), np.zeros((8, 4), np.float32).T, ["output 'C'", "strides"]),
    "out read-only": ((A, B), _read_only((4, 8)), ["output 'C'", "read-only"]),
    "out list": ((A, B), "C", ["output 'C'", "str"]),
    "two outs": ((A, B), [np.zeros((4, 8), np.float32)] * 2, ["1 outputs", "`out` has 2"]),
    "no outs": ((A, B), [], ["1 outputs", "`out` has 0"]),
    "gradient": ((torch.zeros(4, 6, requires_grad=True), B), None, ["input 'A'", "dlpack"]),
    "torch strides": ((torch.zeros(6, 4).T, B), None, ["input 'A'", "strides"]),
    "torch dtype": ((torch.zeros(4, 6, dtype=torch.float64), B), None, ["input 'A'", "float64"]),
}


@pytest.mark.parametrize("kind", BAD)
def test_refused(kind: str, matmul: CpuKernel) -> None:
    arrays, out, words = BAD[kind]
    with pytest.raises(KernelError) as caught:
        matmul(*arrays, out=out)
    for word in ("matmul", *words):
        assert word in str(caught.value)


def test_outputs_that_overlap_are_refused() -> None:
    kernel = compile(parse("matmul:m=8,n=8,k=8").program, ONE)
    x, y = SQUARE.copy(), SQUARE.copy()
    with pytest.raises(KernelError, match="output 'C' overlaps 'A'"):
        kernel(x, y, out=x)
    with pytest.raises(KernelError, match="output 'C' overlaps 'B'"):
        kernel(x, y, out=y)
    raw = np.zeros(100, np.float32)
    with pytest.raises(KernelError, match="output 'C' overlaps 'A'"):
        kernel(raw[:64].reshape(8, 8), y, out=raw[36:].reshape(8, 8))
    kernel(x, x, out=y)  # one array twice as an input is fine


def test_outputs_that_overlap_each_other_are_refused() -> None:
    kernel = compile(statistics(), ONE)
    raw = np.zeros(40, np.float32)
    with pytest.raises(KernelError, match="overlaps"):
        kernel(np.ones((5, 7), np.float32), out=(raw[:5], raw[4:39].reshape(5, 7)))


def test_a_refused_call_leaves_the_output_alone(matmul: CpuKernel) -> None:
    c = np.full((4, 8), 7, np.float32)
    with pytest.raises(KernelError):
        matmul(A, B.astype(np.float64), out=c)
    assert (c == 7).all()


# --- where results go -------------------------------------------------------------------------------------------------


def test_out_is_filled_and_returned(matmul: CpuKernel) -> None:
    c = np.empty((4, 8), np.float32)
    assert matmul(A, B, out=c) is c
    np.testing.assert_allclose(c, A @ B, rtol=1e-5)
    assert np.array_equal(matmul(A, B), c) and np.array_equal(matmul(A, B, out=[np.empty_like(c)]), c)


def test_several_outputs_come_as_a_tuple() -> None:
    kernel = compile(statistics(), ONE)
    x = RNG.random((5, 7), np.float32)
    s, y = kernel(x)
    np.testing.assert_allclose(s, x.sum(1), rtol=1e-5)
    np.testing.assert_allclose(y, x / x.sum(1)[:, None], rtol=1e-5)
    mine = (np.empty(5, np.float32), np.empty((5, 7), np.float32))
    got = kernel(x, out=mine)
    assert got[0] is mine[0] and got[1] is mine[1] and np.array_equal(mine[0], s) and np.array_equal(mine[1], y)
    with pytest.raises(KernelError, match="2 outputs, `out` has 1"):
        kernel(x, out=mine[0])


def test_prepare_runs_again_on_the_same_arrays(matmul: CpuKernel) -> None:
    a, b = A.copy(), B.copy()
    run, (c,) = matmul.prepare(a, b)
    run()
    np.testing.assert_allclose(c, A @ B, rtol=1e-5)
    a *= 2
    run()
    np.testing.assert_allclose(c, 2 * A @ B, rtol=1e-5)


def test_torch_tensors_are_read_and_written_in_place(matmul: CpuKernel) -> None:
    a, b, c = torch.from_numpy(A.copy()), torch.rand(6, 8), torch.zeros(4, 8)
    np.testing.assert_allclose(matmul(a, b), (a @ b).numpy(), rtol=1e-5)
    matmul(a, b.numpy(), out=c)
    torch.testing.assert_close(c, a @ b)


# --- constants --------------------------------------------------------------------------------------------------------


def packed_matmul() -> Program:
    s = Schedule(parse("matmul:m=4,n=8,k=6").program)
    s.transform_layout("B", lambda k, j: (j // 3, k, j % 3))  # 3 does not divide 8: the last panel is padded
    return s.program


def test_an_input_with_a_layout_is_packed_on_every_call() -> None:
    kernel = compile(packed_matmul(), ONE)
    np.testing.assert_allclose(kernel(A, B), A @ B, rtol=1e-5)
    with pytest.raises(KernelError, match=r"input 'B' has shape \(3, 6, 3\), expected B: float32\[6, 8\]"):
        kernel(A, np.zeros((3, 6, 3), np.float32))


def test_bound_constants_are_packed_once() -> None:
    kernel = compile(packed_matmul(), ONE)
    weights = B.copy()
    bound = kernel.bind(B=weights)
    weights[:] = 0  # packed already
    np.testing.assert_allclose(bound(A), A @ B, rtol=1e-5)
    np.testing.assert_allclose(kernel(A, 2 * B), 2 * A @ B, rtol=1e-5)  # the unbound kernel still takes both
    with pytest.raises(KernelError, match="takes 1 inputs"):
        bound(A, B)


def test_constants_may_be_bound_one_after_the_other_and_replaced(matmul: CpuKernel) -> None:
    first = matmul.bind(B=B)
    np.testing.assert_allclose(first.bind(A=A)(), A @ B, rtol=1e-5)
    np.testing.assert_allclose(first.bind(B=3 * B)(A), 3 * A @ B, rtol=1e-5)
    np.testing.assert_allclose(matmul.bind(A=A)(B), A @ B, rtol=1e-5)


def test_bad_constants_are_refused(matmul: CpuKernel) -> None:
    with pytest.raises(KernelError, match="no input 'W'; inputs: A, B"):
        matmul.bind(W=B)
    with pytest.raises(KernelError, match=r"input 'B' has shape \(4, 6\)"):
        matmul.bind(B=A)


def test_an_output_over_a_constant_is_refused() -> None:
    x, y = SQUARE.copy(), SQUARE.copy()
    kernel = compile(parse("matmul:m=8,n=8,k=8").program, ONE).bind(B=x)
    with pytest.raises(KernelError, match="output 'C' overlaps 'B'"):
        kernel(y, out=x)


# --- run-time sizes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (4, 8, 6), (7, 3, 19), (33, 65, 2)])
def test_sizes_come_from_the_arrays(sized: CpuKernel, m: int, n: int, k: int) -> None:
    a, b = RNG.random((m, k), np.float32), RNG.random((k, n), np.float32)
    np.testing.assert_allclose(sized(a, b), a @ b, rtol=1e-5)


def test_sizes_that_do_not_fit_together_are_refused(sized: CpuKernel) -> None:
    with pytest.raises(KernelError) as caught:
        sized(np.zeros((4, 6), np.float32), np.zeros((5, 8), np.float32))
    for word in ("input 'B'", "(5, 8)", "B: float32[k, n]", "k=6"):
        assert word in str(caught.value)
    with pytest.raises(KernelError, match="output 'C'.*m=4"):
        sized(A, B, out=np.zeros((3, 8), np.float32))
    with pytest.raises(KernelError, match="at least 1"):
        sized(np.zeros((0, 6), np.float32), B)


def test_bound_constants_settle_sizes(sized: CpuKernel) -> None:
    bound = sized.bind(B=B)
    np.testing.assert_allclose(bound(A), A @ B, rtol=1e-5)
    with pytest.raises(KernelError, match="input 'A'.*k=6"):
        bound(np.zeros((4, 5), np.float32))


def test_an_input_of_run_time_size_may_have_a_layout() -> None:
    s = Schedule(workload("matmul", m="?", n="?", k="?").program)
    s.transform_layout("B", lambda k, j: (j // 4, k, j % 4))
    s.transform_layout("A", lambda i, k: (i * s.program.buffers["A"].shape[1] + k,))
    kernel = compile(s.program, ONE)
    for m, n, k in ((4, 8, 6), (3, 7, 5)):
        a, b = RNG.random((m, k), np.float32), RNG.random((k, n), np.float32)
        np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-5)
        np.testing.assert_allclose(kernel.bind(B=b)(a), a @ b, rtol=1e-5)


def test_sizes_that_no_input_has_must_come_with_out() -> None:
    b = Builder("repeat")
    X = b.input("X", (3,))
    kernel = compile(b.program(b.compute("Y", (3, size("n")), lambda i, j: X[i] * 2.0)), ONE)
    x, y = np.arange(3, dtype=np.float32), np.zeros((3, 4), np.float32)
    kernel(x, out=y)
    assert np.array_equal(y, np.repeat(2 * x[:, None], 4, 1))
    with pytest.raises(KernelError, match="do not determine n"):
        kernel(x)


# --- what is refused before there is code -----------------------------------------------------------------------------


def test_knobs_must_have_become_numbers() -> None:
    s = Schedule(parse("matmul:m=4,n=8,k=6").program)
    s.split("i", [None, knob("rows")])
    s.split("j", [None, knob("columns")])
    with pytest.raises(BuildError, match=r"matmul still has knobs: columns, rows; .*substitute"):
        compile(s.program, ONE)


def test_knobs_in_annotations_must_have_become_numbers() -> None:
    s = Schedule(parse("matmul:m=4,n=8,k=6").program)
    s.annotate("C", "unroll_up_to", knob("step"))
    with pytest.raises(BuildError, match="still has knobs: step"):
        compile(s.program, ONE)
    np.testing.assert_allclose(compile(s.program.substitute({"step": 8}), ONE)(A, B), A @ B, rtol=1e-5)


def test_loops_of_gpu_threads_are_refused() -> None:
    s = Schedule(parse("matmul:m=4,n=8,k=6").program)
    s.bind("j", "threadIdx.x")
    with pytest.raises(BuildError, match=f"loop 'j' is bound to threadIdx.x, which target {ONE.cpu} does not have"):
        compile(s.program, ONE)


def test_assumptions_about_run_time_sizes_are_refused() -> None:
    s = Schedule(workload("matmul", m="?", n=8, k=6).program)
    s.split("i", [None, 4])
    with pytest.raises(BuildError, match="assumes m % 4 == 0"):
        compile(s.program, ONE)


def test_division_of_integers_is_refused() -> None:
    b = Builder("halves")
    X = b.input("X", (4,), "int32")
    with pytest.raises(BuildError, match="division of int32"):
        compile(b.program(b.compute("Y", (4,), lambda i: X[i] / 2)), ONE)


# --- what it is made of -----------------------------------------------------------------------------------------------


def test_a_kernel_shows_what_it_is_made_of(matmul: CpuKernel) -> None:
    assert matmul.program.name == "matmul" and "matmul" in repr(matmul) and "1 thread>" in repr(matmul)
    assert "block" not in str(matmul.lowered) and str(matmul.lowered).startswith("lowered matmul(A: float32[4, 6]")
    assert re.search(r"define .*@\w+\(", matmul.llvm_ir) and re.search(r"\bfmul\b|\bfma\b|fmuladd", matmul.llvm_ir)
    assert "ret" in matmul.assembly and matmul.artifact.entry in matmul.assembly
    assert len(matmul.assembly.splitlines()) > 20


def _apply(function: str) -> Callable[[Any], Program]:
    def program(dtype: str) -> Program:
        b = Builder(function)
        X = b.input("X", (9, 37), dtype)
        return b.program(b.compute("Y", (9, 37), lambda i, j: call(function, X[i, j])))

    return program


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", ["exp", "tanh", "erf", "sigmoid", "sqrt", "rsqrt", "log", "abs", "floor", "round"])
def test_functions_call_no_library(function: str, dtype: str) -> None:
    kernel = compile(default_schedule(_apply(function)(dtype), ONE), ONE)
    called = set(re.findall(r"^\s*(?:callq?|jmpq?|bl|b)\s+([A-Za-z_][\w@]*)\s*$", kernel.assembly, re.MULTILINE))
    defined = set(re.findall(r"^(\w+):", kernel.assembly, re.MULTILINE))
    assert called <= defined
    declared = re.findall(r"^declare .*@([\w.]+)\(", kernel.llvm_ir, re.MULTILINE)
    assert all(name.startswith("llvm.") for name in declared)


# --- other processes and threads --------------------------------------------------------------------------------------


ELSEWHERE = """
import pickle, sys
import numpy as np
from searchlab.backend import load
artifact, inputs = pickle.load(open(sys.argv[1], "rb"))
np.save(sys.argv[2], load(artifact)(*inputs))
"""


def test_an_artifact_runs_in_another_process(tmp_path: Path) -> None:
    w = parse("conv2d_bn_relu:ci=3,co=5,h=6,w=7,padding=1")
    artifact = build(default_schedule(w.program, TWO, w.weights), TWO)
    inputs = w.inputs()
    here = load(artifact)(*inputs.values())
    assert w.check(here, inputs) is None
    (tmp_path / "sent").write_bytes(pickle.dumps((artifact, list(inputs.values()))))
    subprocess.run([sys.executable, "-c", ELSEWHERE, tmp_path / "sent", tmp_path / "back.npy"], check=True)
    assert np.array_equal(here, np.load(tmp_path / "back.npy"))


@pytest.mark.parametrize("target", [ONE, TWO], ids=["one thread", "two threads"])
def test_several_threads_may_call_one_kernel(target: Any) -> None:
    s = Schedule(parse("matmul:m=16,n=24,k=12").program)
    i0, i1 = s.split("i", [None, 4])
    s.cache_read("C", "B")
    s.transform_layout("B_local", lambda k, j: (j // 8, k, j % 8))  # scratch memory that calls must not share
    s.parallel(i0)
    kernel = compile(s.program, target)
    cases = [(RNG.random((16, 12), np.float32), RNG.random((12, 24), np.float32)) for _ in range(6)]
    expected = [kernel(a, b) for a, b in cases]
    for (a, b), c in zip(cases, expected):
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)

    def work(number: int) -> bool:
        a, b = cases[number]
        return all(np.array_equal(kernel(a, b), expected[number]) for _ in range(100))

    with ThreadPoolExecutor(len(cases)) as pool:
        assert all(pool.map(work, range(len(cases))))
