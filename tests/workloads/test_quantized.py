"""Quantised operators are exact: the formula with zero points, extreme bytes, ties, and compiled code bit for bit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.backend import compile
from searchlab.defaults import default_schedule
from searchlab.errors import WorkloadError
from searchlab.ir import interpret
from searchlab.schedule import Schedule
from searchlab.targets import detect
from searchlab.workloads import Workload, parse, suite, workload
from searchlab.workloads.quantized import offset_of

TARGET = detect(threads=1)


def everywhere(w: Workload, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The result of reference, interpreter and compiled code with and without a schedule, which are all the same."""
    (want,) = w.reference(inputs).values()
    (found,) = interpret(w.program, inputs).values()
    plain = Schedule(w.program)
    plain.vectorize(plain.loops("Y")[-1 if "C" in w.program.blocks else 1])
    kernels = [compile(p, TARGET) for p in (w.program, plain.program, default_schedule(w.program, TARGET))]
    for got in (found, *(kernel(*inputs.values()) for kernel in kernels)):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    return want


@pytest.mark.parametrize("zeros", ["", "zero=128", "zero=7,weight_zero=-3,out_zero=99", "weight_zero=127,out_zero=255"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_formula_with_zero_points(zeros: str, bias: bool) -> None:
    w = parse(f"qdense:m=5,n=19,k=33,bias={str(bias).lower()}{',' * bool(zeros)}{zeros}")
    p, x = dict(w.params), w.inputs(seed=4)
    X, W = x["X"].astype(np.int64), x["W"].astype(np.int64)
    sums = (X - p["zero"]) @ (W - p["weight_zero"])
    if "offset" in x:
        sums += x["offset"] - offset_of(x["W"], (0,), p["zero"], p["weight_zero"])
    scaled = np.rint(sums.astype(np.int32).astype(np.float32) * x["scale"]) + p["out_zero"]
    np.testing.assert_array_equal(everywhere(w, x), np.clip(scaled, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_padding_stands_for_nothing(groups: int) -> None:
    """Padded with the zero point: the same as exact numbers padded with zeros."""
    shape = {"ci": 4, "co": 8, "h": 5, "w": 6, "k": 3, "padding": 1, "groups": groups}
    w = workload("qconv2d", **shape, bias=False, zero=128, weight_zero=2, out="int32")
    x = w.inputs(seed=1)
    plain = workload("conv2d", **shape, dtype="float64")
    given = {"X": x["X"] - 128.0, "W": x["W"] - 2.0}
    np.testing.assert_array_equal(everywhere(w, x), plain.reference(given)["Y"])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("out", ["uint8", "int8", "int32"])
@pytest.mark.parametrize("name", ["qmatmul", "qdense", "qconv2d", "qdepthwise_conv2d"])
def test_bytes_at_the_ends_of_their_ranges(name: str, out: str, dtype: str) -> None:
    sizes = {"qmatmul": "m=3,n=17,k=40", "qdense": "m=3,n=17,k=40", "qconv2d": "ci=6,co=9,h=4,w=9"}
    zero = 255 if dtype == "uint8" else -128
    w = parse(f"{name}:{sizes.get(name, 'c=6,h=4,w=9')},dtype={dtype},out={out},zero={zero}")
    x = w.inputs()
    data, weights, *_ = x
    for a in (np.iinfo(dtype).min, np.iinfo(dtype).max):
        for b in (-128, 127):
            x[data][...], x[weights][...] = a, b
            everywhere(w, x)


def test_sums_wrap_around_at_32_bits() -> None:
    w = parse("qdense:m=2,n=9,k=8,out=int32")
    x = w.inputs()
    x["X"][...], x["W"][...], x["offset"][...] = 255, 127, 2**31 - 1
    assert (everywhere(w, x) == 255 * 127 * 8 - 2**31 - 1).all()


def test_ties_are_rounded_to_even_and_results_are_clamped() -> None:
    w = parse("qdense:m=1,n=11,k=1,out=int8,dtype=int8,out_zero=1")
    x = w.inputs()
    x["X"][...], x["W"][...] = 1, 0
    x["offset"][...] = [-5, -3, -1, 0, 1, 3, 5, 253, 255, 10**9, -(10**9)]
    x["scale"][...] = 0.5
    want = [-2 + 1, -2 + 1, 0 + 1, 1, 0 + 1, 2 + 1, 2 + 1, 126 + 1, 127, 127, -128]
    assert everywhere(w, x)[0].tolist() == want


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["uint8", "int8"]), st.integers(-128, 127), st.integers(0, 127))
def test_scales_and_offsets_of_every_size(seed: int, out: str, weight_zero: int, out_zero: int) -> None:
    """Products of any float32 and int32 are rounded the same way everywhere, also where both are large."""
    w = workload("qdense", m=3, n=37, k=5, zero=3, weight_zero=weight_zero, out=out, out_zero=out_zero)
    rng = np.random.default_rng(seed)
    x = w.inputs(seed)
    x["offset"] = rng.integers(-(2**31), 2**31, 37, dtype=np.int32) >> rng.integers(0, 31, 37, dtype=np.int32)
    x["scale"] = (127 / np.maximum(np.abs(x["offset"]), 1) * rng.random(37) * 2).astype(np.float32)
    everywhere(w, x)


@pytest.mark.parametrize("spec", ["qmatmul:m=64,n=32,k=300,zero=128,out_zero=128", "qconv2d:ci=16,h=9,w=9,out=int8"])
def test_random_inputs_use_the_range_of_the_result(spec: str) -> None:
    w = parse(spec)
    (y,) = w.reference(w.inputs()).values()
    limits = np.iinfo(y.dtype)
    clamped = np.mean((y == limits.min) | (y == limits.max))
    assert clamped < 0.2 and np.std(y.astype(float)) > 20


def test_stages_inputs_and_operations() -> None:
    plain = parse("qmatmul:m=3,n=5,k=7,out=int32")
    assert list(plain.program.blocks) == ["Y"] and plain.weights == ("B",) and plain.flops == 2 * 3 * 5 * 7
    whole = parse("qconv2d:ci=2,co=3,h=4,w=4,padding=1,weight_zero=1")
    assert list(whole.program.blocks) == ["P", "R", "C", "Y"] and whole.weights == ("W", "offset", "scale")
    outputs, taps = 3 * 4 * 4, 2 * 9
    assert (
        whole.flops == outputs * 2 * taps + 16 * taps + outputs * 8
    )  # + offset - R * zero, * scale, round, + and clamp
    grouped = parse("qconv2d:ci=4,co=6,h=4,w=4,groups=2,weight_zero=1").program
    assert [str(e) for e in grouped.buffers["R"].shape] == ["1", "2", "2", "2"]  # once for all channels of a group
    value = str(plain.program.blocks["Y"].store.value)
    assert "int32(A[vi, vk]) * int32(B[vk, vj])" in value  # nothing but the product of bytes


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("qmatmul:zero=256", "zero = 256 is not a number of type uint8, 0 to 255"),
        ("qmatmul:dtype=int8,zero=128", "zero = 128 is not a number of type int8, -128 to 127"),
        ("qdense:weight_zero=200", "weight_zero = 200 is not a number of type int8"),
        ("qconv2d:out=int8,out_zero=-129", "out_zero = -129 is not a number of type int8"),
        ("qdense:out=int32,out_zero=1", "out_zero = 1: sums (out = int32) have none"),
        ("qmatmul:dtype=int32", "dtype = 'int32' is unknown"),
        ("qconv2d:h=2,w=2,k=3", "the kernel spans 3 along h"),
        ("qconv2d:ci=6,co=4,groups=3", "groups = 3 does not divide co = 4"),
    ],
)
def test_impossible_parameters_are_refused(spec: str, complaint: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        parse(spec)
    assert complaint in str(caught.value)


def test_the_suite_has_plain_and_quantised_products() -> None:
    cases = dict(suite("int8-ops"))
    assert {w.name for w in cases.values()} == {"matmul", "qmatmul", "qdense", "qconv2d", "qdepthwise_conv2d"}
    assert math.isclose(cases["GMM-2"].flops, 2 * 1024**3)
