"""Products by calls of intrinsics: which are chosen, what they compute, on sizes that divide by nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorized_products import extreme, product

from searchlab import tactics
from searchlab.backend import compile
from searchlab.errors import WorkloadError
from searchlab.intrinsics import find_intrinsic, intrinsics
from searchlab.ir import Program, knob
from searchlab.ir.expr import Like
from searchlab.schedule import Schedule
from searchlab.targets import CpuTarget, cpu_of, detect
from searchlab.targets.target import parse as target_named
from searchlab.workloads import Workload, parse

V3 = cpu_of(target_named("x86-64-v3"))
V4 = cpu_of(target_named("x86-64-v4"))
RUNS_V3 = "avx2" in detect().enabled_features()


def vnni() -> CpuTarget:
    return replace(V4, features=V4.features + ",+avx512vnni")


def view_of(w: Workload, target: CpuTarget) -> tactics.IntrinsicView | None:
    block = max(tactics.products(w.program), key=tactics.work)
    return tactics.exact_view(w.program, block.name, target)


def called(w: Workload, view: tactics.IntrinsicView, rows: Like = 3, vectors: Like = 2, ahead: bool = True) -> Schedule:
    """The stage in tiles of calls, in the simplest order."""
    s = Schedule(w.program)
    tactics.lay_for_calls(s, view, ahead)
    loops = tactics.split_for_calls(s, view, rows, vectors)
    s.reorder(*loops.around, loops.columns, loops.rows, *loops.sums, loops.row, loops.vector, *loops.call)
    s.unroll(loops.row, loops.vector)
    if view.column != len(s.program.blocks[view.block].store.indices) - 1:
        results = tactics.intermediate_results(s, view.block)
        tactics.lay_in_panels(s, results, view.column, view.shape.columns)
    tactics.insert_calls(s, view, loops)
    return s


def check(w: Workload, program: Program, target: CpuTarget) -> None:
    inputs = w.inputs(seed=3)
    assert w.check(compile(program, target)(*inputs.values()), inputs) is None


@pytest.mark.parametrize(
    ("spec", "target", "name"),
    [
        ("matmul:m=8,n=64,k=64,dtype=uint8", V3, "avx2_s16s16_8x2"),
        ("matmul:m=8,n=64,k=64,dtype=int8", V3, "avx2_s16s16_8x2"),
        ("matmul:m=8,n=64,k=64,dtype=uint8", V4, "avx512bw_s16s16_16x2"),
        ("matmul:m=8,n=64,k=64,dtype=uint8", vnni(), "vnni_u8s8_16x4"),
        ("matmul:m=8,n=64,k=64,dtype=int8", vnni(), "vnni_s8s8_16x16"),
        ("matmul:m=8,n=64,k=9,dtype=int8", vnni(), "vnni_s8s8_16x4"),
        ("matmul:m=8,n=9,k=64,dtype=uint8", vnni(), "vnni_u8s8_8x4"),
        ("qconv2d:ci=8,co=64,h=9,w=9", vnni(), "vnni_u8s8_16x4"),
        ("batch_matmul:batch=2,m=8,n=64,k=64,dtype=uint8", V3, "avx2_s16s16_8x2"),
        ("matmul:m=8,n=3,k=64,dtype=uint8", V3, None),  # fewer columns than a vector has
        ("matmul:m=8,n=64,k=64", V3, None),  # an exact one for floats would have to round twice
        ("matmul:m=8,n=64,k=64,dtype=int32", V3, None),
        ("matmul:m=8,n=?,k=64,dtype=uint8", V3, None),
        ("qdepthwise_conv2d:c=16,h=9,w=9", V3, None),  # data and weights move with the channels
    ],
)
def test_the_best_intrinsic_of_a_target(spec: str, target: CpuTarget, name: str | None) -> None:
    view = view_of(parse(spec), target)
    assert (view and view.intrinsic.name) == name


BFLOATS = replace(V4, features=V4.features + ",+avx512bf16")


@pytest.mark.parametrize(
    ("spec", "target", "names"),
    [
        ("matmul:m=8,n=64,k=64,dtype=uint8", vnni(), ["vnni_u8s8_16x4"]),
        ("matmul:m=32,n=64,k=64", V3, ["avx2_f32_4x24", "avx2_f32_6x16", "avx2_f32_4x16", "avx2_f32_12x8"]),
        ("matmul:m=5,n=16,k=1", V3, ["avx2_f32_4x16"]),  # calls are not larger than the problem
        ("conv2d:ci=3,co=32,h=15,w=15", V4, ["avx512_f32_12x32"]),
        ("matmul:m=8,n=64,k=64,dtype=bfloat16", BFLOATS, ["avx512bf16_16x2"]),
        ("matmul:m=8,n=64,k=64,dtype=bfloat16", V4, []),
        ("depthwise_conv2d:c=16,h=9,w=9", V3, []),
    ],
)
def test_the_intrinsics_worth_searching(spec: str, target: CpuTarget, names: list[str]) -> None:
    w = parse(spec)
    block = max(tactics.products(w.program), key=tactics.work)
    assert [v.intrinsic.name for v in tactics.call_views(w.program, block.name, target)] == names


def test_shapes_of_the_shipped_intrinsics() -> None:
    shapes = {name: tactics.call_shape(x) for name, x in intrinsics().items() if name.count("_") <= 2}
    kept = {name: (x.rows, x.columns, x.depth) for name, x in shapes.items() if x is not None}
    assert kept["avx2_f32_6x16"] == (6, 16, 1) and kept["vnni_s8s8_16x16"] == (1, 16, 16)
    assert kept["amx_u8s8_16x16x64"] == (16, 16, 64) and kept["avx512bf16_16x2"] == (1, 16, 2)


def test_an_axis_that_both_operands_have_stays_outside() -> None:
    w = parse("batch_matmul:batch=3,m=5,n=24,k=9,dtype=uint8")
    view = view_of(w, V3)
    assert view is not None and (view.row, view.column, view.depth) == (1, 2, 0)


def test_tiles_may_be_symbols() -> None:
    w = parse("matmul:m=13,n=43,k=10,dtype=uint8")
    view = view_of(w, V3)
    assert view is not None
    for ahead in (True, False):
        s = called(w, view, knob("rows"), knob("vectors"), ahead)
        for rows, vectors in ((1, 1), (4, 2), (5, 3), (16, 8)):
            p = s.program.substitute({"rows": rows, "vectors": vectors})
            assert "tensorized avx2_s16s16_8x2" in str(p)
            if RUNS_V3:
                check(w, p, V3)


@pytest.mark.skipif(not RUNS_V3, reason="this CPU lacks AVX2")
@settings(max_examples=15)
@given(st.integers(1, 20), st.integers(8, 40), st.integers(1, 23), st.sampled_from(["uint8", "int8"]), st.booleans())
def test_products_of_any_size_are_exact(m: int, n: int, k: int, dtype: str, ahead: bool) -> None:
    w = parse(f"matmul:m={m},n={n},k={k},dtype={dtype}")
    rng = np.random.default_rng([m, n, k])
    a, b = extreme(dtype, (m, k), rng), extreme("int8", (k, n), rng)
    for target in (V3, detect(threads=1)):
        view = view_of(w, target)
        assert view is not None
        kernel = compile(called(w, view, ahead=ahead).program, target)
        np.testing.assert_array_equal(kernel(a, b), product(a, b))


@pytest.mark.skipif(not RUNS_V3, reason="this CPU lacks AVX2")
@pytest.mark.parametrize(
    "spec",
    [
        "qconv2d:ci=5,co=19,h=7,w=9,k=3,padding=1,zero=7",
        "qconv2d:n=2,ci=8,co=8,h=6,w=5,k=1,stride=2,weight_zero=3",
        "conv2d:ci=3,co=9,h=9,w=8,k=3,dilation=2,dtype=int8",
        "conv1d:ci=6,co=11,w=15,k=3,dtype=uint8",
        "qdense:m=3,n=11,k=17,zero=3,out_zero=128",
    ],
)
def test_convolutions_and_layers(spec: str) -> None:
    w = parse(spec)
    view = view_of(w, V3)
    assert view is not None
    for ahead in (True, False):
        check(w, called(w, view, 2, 2, ahead).program, V3)


@pytest.mark.skipif("fma" not in detect().enabled_features() or not RUNS_V3, reason="this CPU lacks AVX2")
def test_an_outer_product_is_a_tile_by_itself() -> None:
    w = parse("matmul:m=12,n=40,k=9")
    view = tactics.intrinsic_view(w.program, "C", find_intrinsic("avx2_f32_6x16"))
    assert view is not None and tactics.call_tile(V3, view, 12, 40) == (1, 1)
    check(w, called(w, view, 1, 1).program, V3)


def test_tiles_of_calls_fill_the_registers() -> None:
    w = parse("matmul:m=512,n=512,k=512,dtype=uint8")
    for target, most in ((V3, 16), (vnni(), 32)):
        view = view_of(w, target)
        assert view is not None
        rows, vectors = tactics.call_tile(target, view, 512, 512)
        assert most // 2 <= rows * vectors + vectors + 1 <= most
        assert tactics.call_tile(target, view, 3, 8) == (3, 1)


def declared(w: Workload, **ranges: tuple[int, int]) -> Workload:
    """The workload with ranges of its inputs."""
    function = w.operator.function
    made = replace(w.operator, function=lambda **p: replace(function(**p), ranges=ranges), _made={})
    return made(**dict(w.params))


@pytest.mark.parametrize(
    ("spec", "ranges", "name"),
    [
        ("matmul:m=8,n=64,k=64,dtype=uint8", {"B": (-64, 63)}, "avx2_u8s7_8x4"),
        ("matmul:m=8,n=64,k=64,dtype=uint8", {"B": (-65, 63)}, "avx2_s16s16_8x2"),
        ("matmul:m=8,n=64,k=64,dtype=uint8", {"A": (0, 127)}, "avx2_u7s8_8x4"),
        ("matmul:m=8,n=64,k=64,dtype=int8", {"B": (-64, 63)}, "avx2_s16s16_8x2"),  # only for data without signs
        ("qconv2d:ci=8,co=16,h=9,w=9,padding=1,zero=128", {"X": (0, 127)}, "avx2_s16s16_8x2"),  # padded with more
        ("qconv2d:ci=5,co=19,h=9,w=9,padding=1,zero=5", {"X": (0, 127)}, "avx2_u7s8_8x4"),
    ],
)
def test_ranges_allow_instructions_that_saturate(spec: str, ranges: dict[str, tuple[int, int]], name: str) -> None:
    w = declared(parse(spec), **ranges)
    assert all(low <= w.inputs()[n].min() and w.inputs()[n].max() <= high for n, (low, high) in ranges.items())
    block = max(tactics.products(w.program), key=tactics.work)
    view = tactics.exact_view(w.program, block.name, V3, w.ranges)
    assert view is not None and view.intrinsic.name == name
    for ahead in (True, False):
        program = called(w, view, 2, 2, ahead).program
        if RUNS_V3:
            check(w, program, V3)


def test_ranges_that_are_none_are_refused() -> None:
    w = parse("matmul:m=8,n=64,k=64,dtype=uint8")
    with pytest.raises(WorkloadError, match="'Z' has a range but is not an input; A, B are"):
        declared(w, Z=(0, 1))
    with pytest.raises(WorkloadError, match="0 to 300 is no range of integers of 'A', a uint8"):
        declared(w, A=(0, 300))
    with pytest.raises(WorkloadError, match="0 to 1 is no range of integers of 'A', a float32"):
        declared(parse("matmul:m=8,n=8,k=8"), A=(0, 1))
