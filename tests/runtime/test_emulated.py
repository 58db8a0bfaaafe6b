"""Code for ARM computes the same as numpy and the interpreter; it runs under an emulator, where that is installed."""

import re
from pathlib import Path

import made_up_intrinsics
import numpy as np
import pytest
from emulated_arm import INSTALL, MISSING, EmulatedKernel, arm
from random_programs import random_inputs, random_program
from random_schedules import random_schedule
from tensorized_products import extreme, product, tiled

from searchlab.defaults import default_schedule
from searchlab.intrinsics import Intrinsic, find_intrinsic, known
from searchlab.ir import interpret
from searchlab.schedule import Schedule
from searchlab.testing.instructions import calls_in_a_row
from searchlab.workloads import operators, parse

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"no {' and no '.join(MISSING)}: {INSTALL}"),
]
BYTES = ("dotprod", "i8mm")
OURS = [x for x in known._shipped().values() if x.needs.arch == "aarch64"]


OPERATORS = (
    "matmul:m=33,n=50,k=17",
    "matmul:m=9,n=20,k=7,dtype=float64",
    "matmul:m=9,n=20,k=7,dtype=float16",
    "matmul:m=9,n=20,k=7,dtype=bfloat16",
    "matmul:m=9,n=20,k=7,dtype=int8",
    "batch_matmul:batch=3,m=7,n=9,k=5",
    "transpose_batch_matmul:seq=7,heads=3,dim=5",
    "dense:m=9,n=21,k=7",
    "conv1d:ci=3,co=5,w=17,k=3,padding=1",
    "conv2d:ci=5,co=7,h=9,w=11,k=3,padding=1,stride=2,then=bias,relu",
    "conv2d:ci=4,co=8,h=7,w=6,k=3,padding=1,groups=2",
    "conv2d_bn_relu:ci=3,co=5,h=6,w=7,k=3,padding=1",
    "conv3d:ci=3,co=4,d=4,h=5,w=6,k=3,padding=1",
    "capsule_conv2d:ci=2,co=3,h=5,w=6,k=3,capsule=2",
    "depthwise_conv2d:c=5,h=9,w=8,k=3,padding=1",
    "conv2d_transpose:ci=3,co=4,h=5,w=6",
    "softmax:rows=7,cols=33",
    "layer_norm:rows=5,cols=47",
    "l2_norm:batch=2,rows=5,cols=23",
    "reduce:shape=3x5x19,axis=-1,op=max",
    "elementwise:rows=9,cols=31,ops=add,gelu",
    "max_pool2d:c=3,h=9,w=9",
    "avg_pool2d:c=3,h=9,w=8",
    "global_avg_pool2d:c=5,h=7,w=7",
    "qmatmul:m=9,n=21,k=13,zero=3",
    "qdense:m=9,n=21,k=13,zero=3,weight_zero=2",
    "qconv2d:ci=5,co=7,h=6,w=7,k=3,padding=1,zero=3",
    "qdepthwise_conv2d:c=5,h=6,w=7,k=3,padding=1,zero=3",
)


def test_every_operator_is_among_them() -> None:
    assert {spec.partition(":")[0] for spec in OPERATORS} == set(operators())


@pytest.mark.parametrize("spec", OPERATORS)
def test_operators(spec: str, tmp_path: Path) -> None:
    w, target = parse(spec), arm()
    inputs = w.inputs(seed=1)
    program = default_schedule(w.program, target, w.weights)
    assert w.check(EmulatedKernel(program, target, tmp_path)(inputs), inputs) is None


@pytest.mark.parametrize("intrinsic", OURS, ids=lambda x: x.name)
@pytest.mark.parametrize("spread", [False, True])
def test_intrinsics_compute_what_they_describe(intrinsic: Intrinsic, spread: bool, tmp_path: Path) -> None:
    plain, rng = calls_in_a_row(intrinsic, 37, spread), np.random.default_rng(3)
    s = Schedule(plain)
    s.tensorize(next(n for n in plain.loops if n != "repeat"), intrinsic.name)
    inputs = {}
    for name in plain.inputs:
        shape, dtype = tuple(int(str(n)) for n in plain.buffers[name].shape), plain.buffers[name].dtype
        whole = dtype == "float32"
        inputs[name] = rng.standard_normal(shape).astype(dtype) if whole else extreme(dtype, shape, rng)
    kernel = EmulatedKernel(s.program, arm(*BYTES), tmp_path)
    word = intrinsic.name.partition("_")[0].replace("neon", "fmla")
    assert re.search(rf"\s{word}\s", kernel.code.assembly)
    expected = interpret(plain, inputs)["C"]
    found = kernel(inputs)["C"]
    used = tuple(slice(int(str(n))) for n in intrinsic.description.buffers["C"].shape)
    if intrinsic.promise.tolerance:
        sizes = interpret(plain, {n: np.abs(x) for n, x in inputs.items()})["C"][used]
        assert (np.abs(found[used] - expected[used]) <= 37 * intrinsic.promise.tolerance * sizes).all()
    else:
        np.testing.assert_array_equal(found[used], expected[used])


@pytest.mark.parametrize(("name", "dtype"), [("sdot_s8s8_4x4", "int8"), ("usdot_u8s8_4x4", "uint8")])
def test_products_of_bytes_with_tails(name: str, dtype: str, tmp_path: Path) -> None:
    w, rng = parse(f"matmul:m=11,n=21,k=30,dtype={dtype}"), np.random.default_rng(5)
    program = tiled(w, name, 4, rows=3, vectors=2).program
    inputs = {"A": extreme(dtype, (11, 30), rng), "B": extreme("int8", (30, 21), rng)}
    kernel = EmulatedKernel(program, arm(*BYTES), tmp_path)
    assert name.partition("_")[0] in kernel.code.assembly
    np.testing.assert_array_equal(kernel(inputs)["C"], product(inputs["A"], inputs["B"]))


@pytest.mark.parametrize("spec", ["dense:m=9,n=21,k=35,dtype=int8", "qconv2d:ci=5,co=9,h=6,w=7,k=3,padding=1"])
def test_default_schedules_call_dot_products(spec: str, tmp_path: Path) -> None:
    w, target = parse(spec), arm(*BYTES)
    program = default_schedule(w.program, target, w.weights)
    assert re.search(r"tensorized u?sdot_", str(program))
    inputs = w.inputs(seed=2)
    assert w.check(EmulatedKernel(program, target, tmp_path)(inputs), inputs) is None


@pytest.mark.parametrize("name", [x.name for x in OURS if x.name.startswith("neon_f32")])
def test_tiles_of_outer_products(name: str, tmp_path: Path) -> None:
    """A whole product: what is left over beside whole tiles runs as loops."""
    rows, columns = (int(n) for n in name.rpartition("_")[2].split("x"))
    w = parse(f"matmul:m={2 * rows + 3},n={2 * columns + 5},k=19")
    s = Schedule(w.program)
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, [None, rows], tail=True)
    j0, j1 = s.split(j, [None, columns], tail=True)
    k0, k1 = s.split(k, [None, 1])
    s.reorder(i0, j0, k0, i1, j1, k1)
    s.tensorize(i1, name)
    assert not find_intrinsic(name).needs.missing(arm())
    inputs = w.inputs(seed=4)
    assert w.check(EmulatedKernel(s.program, arm(), tmp_path)(inputs), inputs) is None


def test_threads(tmp_path: Path) -> None:
    w, target = parse("matmul:m=64,n=64,k=16"), arm(threads=3)
    kernel = EmulatedKernel(default_schedule(w.program, target, w.weights), target, tmp_path)
    assert kernel.code.parallel and kernel.code.threads == 3
    inputs = w.inputs(seed=5)
    assert w.check(kernel(inputs), inputs) is None


@pytest.mark.parametrize("seed", range(80))
def test_random_programs(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are small integers, so that all orders of sums agree."""
    rng, target = np.random.default_rng([17, seed]), arm(threads=1 + seed % 2)
    monkeypatch.setattr(known, "_added", dict(known._added))
    monkeypatch.setattr(made_up_intrinsics, "detect", lambda: target)  # what is made up is for its architecture
    plain = random_program(rng)
    inputs = random_inputs(plain, rng)
    program = random_schedule(plain, rng, int(rng.integers(1, 12)))
    found, expected = EmulatedKernel(program, target, tmp_path)(inputs), interpret(plain, inputs)
    for name, e in expected.items():
        largest = np.abs(e[np.isfinite(e)]).max(initial=1)
        np.testing.assert_allclose(found[name], e, rtol=0, atol=1e-6 * largest)
