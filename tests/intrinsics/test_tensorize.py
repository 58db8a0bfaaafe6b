"""tensorize: what it matches, what it refuses, and what lowering makes of the calls."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tensorized_products import byte_product, extreme, product, tiled

from searchlab.analysis import extractor, schema
from searchlab.backend import compile
from searchlab.errors import BuildError, ScheduleError
from searchlab.intrinsics import Match, find_intrinsic, match
from searchlab.ir import Builder, cast, from_json, interpret, knob, to_json, total
from searchlab.ir.alpha import Difference, same_up_to_names
from searchlab.ir.rename import Renaming
from searchlab.ir.statement_tree import kept, statements, swap
from searchlab.ir.stmt import Loop, Tensorized
from searchlab.llvm.jit import assembly
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.runtime.kernel import pack
from searchlab.schedule import Schedule, replay, trace_json
from searchlab.targets import CpuTarget, cpu_of, detect
from searchlab.targets.target import parse as target_named
from searchlab.workloads import parse

V3 = cpu_of(target_named("x86-64-v3"))
V4 = cpu_of(target_named("x86-64-v4"))
AVX2 = "avx2_u8s8_8x4"


def vnni() -> CpuTarget:
    return replace(V4, features=V4.features + ",+avx512vnni")


def calls(text: str) -> int:
    return text.count("tensorized ")


def inner_loop(s: Schedule, target: CpuTarget, instruction: str) -> str:
    """The basic block of the assembly with most of an instruction."""
    text = assembly(generate(lower(s.program, target), target).ir, target)
    return max(re.split(r"\n(?=\.L)", text), key=lambda block: block.count(instruction)).partition("\n\tj")[0]


# --- what it makes ----------------------------------------------------------------------------------------------------


def test_the_program_prints_runs_and_travels_with_its_call() -> None:
    w = byte_product(8, 16, 8)
    p = tiled(w, AVX2, 8).program
    assert calls(str(p)) == 1 and f"tensorized {AVX2}:" in str(p)
    assert from_json(to_json(p)) == p
    assert replay(w.program, trace_json(p)).hash == p.hash
    assert isinstance(same_up_to_names(p, from_json(to_json(p))), Renaming)
    rng = np.random.default_rng(0)
    a, b = extreme("uint8", (8, 8), rng), extreme("int8", (8, 16), rng)
    inputs = {"A": a, "B": pack(p.layouts[0], p.buffers["B"], b)}
    np.testing.assert_array_equal(interpret(p, inputs)["C"], product(a, b))


def test_another_name_is_another_program() -> None:
    (call,) = (s for s in statements(tiled(byte_product(8, 16, 8), AVX2, 8).program.body) if type(s) is Tensorized)
    assert not same_up_to_names(call, Tensorized("avx512bw_u8s8_16x4", call.body))


def test_a_block_may_be_named_instead_of_its_loop() -> None:
    s = Schedule(byte_product(4, 8, 4).program)
    s.transform_layout("B", lambda k, j: (k // 4, j, k % 4))
    tile = s.blockize("j", name="tile")
    assert s.tensorize(tile, AVX2) == "tile"
    assert list(s.program.blocks) == ["tile", "C"] and calls(str(s.program)) == 1


def test_loops_inside_get_the_kinds_of_the_description() -> None:
    p = tiled(byte_product(8, 16, 8), AVX2, 8).program
    (call,) = (s for s in statements(p.body) if isinstance(s, Tensorized))
    assert [lp.kind for lp in statements(call) if isinstance(lp, Loop)] == ["vectorized", "unrolled"]


def test_outer_tiles_may_be_symbols() -> None:
    w = byte_product(24, 64, 16)
    s = tiled(w, AVX2, 8, knob("rows"), knob("vectors"))
    rng = np.random.default_rng(1)
    a, b = extreme("uint8", (24, 16), rng), extreme("int8", (16, 64), rng)
    for rows, vectors in ((2, 2), (5, 1), (4, 3)):
        p = s.program.substitute({"rows": rows, "vectors": vectors})
        assert calls(str(lower(p, V3))) >= 1
        if "avx2" in detect().enabled_features():
            np.testing.assert_array_equal(compile(p, V3)(a, b), product(a, b))


# --- code -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(8, 32, 16), (7, 32, 16), (5, 29, 10), (1, 8, 4), (9, 16, 3)])
@pytest.mark.parametrize("intrinsic", [AVX2, "vnni_u8s8_8x4"])
def test_kernels_are_exact_with_tails_everywhere(shape: tuple[int, int, int], intrinsic: str) -> None:
    target = V3 if intrinsic == AVX2 else detect(threads=1)
    if find_intrinsic(intrinsic).needs.missing(target):
        pytest.skip("this CPU lacks it")
    m, n, k = shape
    rng = np.random.default_rng(2)
    a, b = extreme("uint8", (m, k), rng), extreme("int8", (k, n), rng)
    kernel = compile(tiled(byte_product(m, n, k), intrinsic, 8).program, target)
    np.testing.assert_array_equal(kernel(a, b), product(a, b))


def test_a_tail_runs_as_loops_and_the_rest_is_called() -> None:
    text = str(lower(tiled(byte_product(8, 24, 8), AVX2, 8).program, V3))
    assert calls(text) == 2  # of two vectors, and of the one that is left
    text = str(lower(tiled(byte_product(8, 20, 8), AVX2, 8).program, V3))
    assert calls(text) == 1 and "for j_2 in 4 vectorized" in text


def test_accumulators_stay_in_registers() -> None:
    block = inner_loop(tiled(byte_product(64, 64, 64), AVX2, 8, 4, 2), V3, "vpmaddwd")
    assert block.count("vpmaddwd") == 16 and not re.search(r"vmovdq\w+\s+%ymm\d+, ", block), block
    s = tiled(byte_product(120, 128, 64), "vnni_u8s8_16x4", 16, 12, 2)
    block = inner_loop(s, vnni(), "vpdpbusd")
    assert block.count("vpdpbusd") == 24 and block.count("vpbroadcastd") == 12, block
    assert not re.search(r"vmovdq\w+\s+%zmm\d+, [^%]", block), block  # nothing is stored, nothing is spilled
    assert len(re.findall(r"vmovdq\w+\s+\S*\(", block)) == 2, block  # the two vectors of B


def test_what_no_loop_carries_is_initialised_before_the_call() -> None:
    s = Schedule(byte_product(4, 8, 4).program)
    s.transform_layout("B", lambda k, j: (k // 4, j, k % 4))
    s.tensorize("j", AVX2)
    text = str(lower(s.program, V3))
    assert text.index("= 0") < text.index("tensorized") and "if" not in text
    if "avx2" in detect().enabled_features():
        rng = np.random.default_rng(3)
        a, b = extreme("uint8", (4, 4), rng), extreme("int8", (4, 8), rng)
        np.testing.assert_array_equal(compile(s.program, V3)(a, b), product(a, b))


def test_a_sum_begun_by_another_block_stays_in_registers() -> None:
    s = Schedule(byte_product(8, 16, 16).program)
    s.transform_layout("B", lambda k, j: (k // 4, j, k % 4))
    j0, j1 = s.split("j", [None, 8])
    k0, k1 = s.split("k", [None, 4])
    s.reorder(j0, k0, j1, k1)
    s.decompose_reduction("C", k0)
    s.tensorize(j1, AVX2)
    text = str(lower(s.program, V3))
    assert calls(text) == 1 and "register" in text
    if "avx2" in detect().enabled_features():
        rng = np.random.default_rng(3)
        a, b = extreme("uint8", (8, 16), rng), extreme("int8", (16, 16), rng)
        np.testing.assert_array_equal(compile(s.program, V3)(a, b), product(a, b))


def test_a_target_without_the_instruction_is_refused() -> None:
    p = tiled(byte_product(8, 32, 8), "vnni_u8s8_16x4", 16).program
    with pytest.raises(
        BuildError, match=r"intrinsic 'vnni_u8s8_16x4' needs avx512f, avx512vnni, which x86-64-v3 lacks"
    ):
        compile(p, V3)
    with pytest.raises(BuildError, match="needs avx512vnni, which x86-64-v4 lacks"):
        compile(p, V4)
    only = replace(V3, features=V3.features + ",+avxvnni")
    assert "vpdpbusd" in inner_loop(tiled(byte_product(8, 32, 8), "vnni_u8s8_8x4", 8), only, "vpdpbusd")
    assert find_intrinsic("vnni_u8s8_16x4").needs.missing(only) == ("avx512f", "avx512vnni")
    arm = target_named("neoverse-n1")
    assert find_intrinsic(AVX2).needs.missing(arm) == ("the instructions of x86_64",)


# --- what it refuses --------------------------------------------------------------------------------------------------


def packed(spec: str) -> Schedule:
    s = Schedule(parse(spec).program)
    s.transform_layout("B", lambda k, j: (k // 4, j, k % 4))
    return s


def unpacked() -> None:
    s = Schedule(byte_product(4, 8, 4).program)
    s.tensorize("j", AVX2)


def too_long() -> None:
    packed("matmul:m=4,n=16,k=4,dtype=uint8").tensorize("j", AVX2)


def too_many() -> None:
    packed("matmul:m=4,n=8,k=4,dtype=uint8").tensorize("i", AVX2)


def other_type() -> None:
    packed("matmul:m=4,n=8,k=4,dtype=int8").tensorize("j", AVX2)


def other_operation() -> None:
    s = Schedule(parse("reduce:shape=8x4,axis=1,op=max,dtype=int32").program)
    s.tensorize(s.loops(next(iter(s.program.blocks)))[0], AVX2)


def loops_in_another_order() -> None:
    s = packed("matmul:m=4,n=8,k=4,dtype=uint8")
    s.reorder("k", "j")
    s.tensorize("k", AVX2)


def a_symbol() -> None:
    s = packed("matmul:m=4,n=8,k=4,dtype=uint8")
    j0, j1 = s.split("j", [None, knob("t")])
    s.tensorize(j1, AVX2)


def no_such_intrinsic() -> None:
    packed("matmul:m=4,n=8,k=4,dtype=uint8").tensorize("j", "avx2_u8s8_8x5")


def no_such_loop() -> None:
    packed("matmul:m=4,n=8,k=4,dtype=uint8").tensorize("jj", AVX2)


def a_store() -> None:
    packed("matmul:m=4,n=8,k=4,dtype=uint8").tensorize("C", AVX2)


def twice() -> None:
    s = packed("matmul:m=4,n=8,k=4,dtype=uint8")
    s.tensorize("j", AVX2)
    s.tensorize("C_outer", AVX2)


def inside() -> None:
    s = packed("matmul:m=4,n=8,k=4,dtype=uint8")
    s.tensorize("j", AVX2)
    s.tensorize("j", AVX2)


def threads() -> None:
    s = packed("matmul:m=4,n=8,k=4,dtype=uint8")
    s.parallel("j")
    s.tensorize("j", AVX2)


def may_saturate() -> None:
    packed("matmul:m=4,n=8,k=4,dtype=uint8").tensorize("j", "avx2_u7s8_8x4")


def wrong_range() -> None:
    packed("matmul:m=4,n=8,k=4,dtype=uint8").tensorize("j", "avx2_u7s8_8x4", {"A": (0, 200)})


def range_of_nothing() -> None:
    packed("matmul:m=4,n=8,k=4,dtype=uint8").tensorize("j", "avx2_u7s8_8x4", {"a": (0, 100)})


def change_inside() -> None:
    s = packed("matmul:m=4,n=8,k=4,dtype=uint8")
    s.tensorize("j", AVX2)
    s.reorder("k", "j")


def layout_inside() -> None:
    s = packed("matmul:m=4,n=8,k=4,dtype=uint8")
    s.cache_write("C")
    s.tensorize("j", AVX2)
    s.transform_layout("C_local", lambda i, j: (j, i))


REFUSED: dict[Callable[[], None], str] = {
    unpacked: "the description moves 4 elements of B with j, the loop 'j' 1 of 'B'",
    too_long: "the description has loop j of extent 8, the loop 'j' 16",
    too_many: "the description has 2 loops (8 x 4), the loop nest 3 (4 x 8 x 4)",
    other_type: "the description has uint8 A, the loop int8 'A'",
    other_operation: "tensorize: avx2_u8s8_8x4: the description has 'C[...]",
    loops_in_another_order: "the description has loop j of extent 8, the loop 'k' 4",
    a_symbol: "the description has loop j of extent 8, the loop 'j_1' t",
    no_such_intrinsic: "unknown intrinsic 'avx2_u8s8_8x5'; did you mean 'avx2_u8s8_8x4'?",
    no_such_loop: "there is no loop or block 'jj'",
    a_store: "block 'C' is one store; name the outermost loop of the nest",
    twice: "block 'C_outer' is tensorised already",
    inside: "loop 'j' is tensorised already",
    threads: "loop 'j' is parallel",
    may_saturate: "is exact where A is in 0..127, and A is 'A', of which no range is stated",
    wrong_range: "stated to be in 0..200; state ranges={'A': (0, 127)}",
    range_of_nothing: "there is no buffer 'a'",
    change_inside: "would change: the description has loop j of extent 8, the loop 'k' 4",
    layout_inside: "would change: the description moves 1 elements of C with j, the loop 'j' 4 of 'C_local'",
}


@pytest.mark.parametrize("use", REFUSED, ids=lambda f: f.__name__)
def test_illegal_uses_are_refused(use: Callable[[], None]) -> None:
    with pytest.raises(ScheduleError) as refusal:
        use()
    assert REFUSED[use] in str(refusal.value)


def test_stated_ranges_are_recorded() -> None:
    w = byte_product(4, 8, 4)
    s = tiled(w, "avx2_u7s8_8x4", 8, ranges={"A": (0, 100)})
    assert replay(w.program, trace_json(s.program)).hash == s.program.hash


def test_operands_may_stand_in_any_order() -> None:
    b = Builder("swapped")
    A, B = b.input("W", (8, 4), "int8"), b.input("X", (4,), "uint8")
    k = b.axis("k", 4)
    p = b.program(b.compute("Y", (8,), lambda j: total(cast(A[j, k], "int32") * cast(B[k], "int32"), k)))
    found = match(find_intrinsic(AVX2), p.body, p.buffers, p.facts)
    assert isinstance(found, Match)
    assert {name: ld.buffer for name, ld in found.operands.items()} == {"C": "Y", "A": "X", "B": "W"}


def test_outputs_that_coincide_are_no_match() -> None:
    b = Builder("folded")
    A, B = b.input("A", (8, 4), "uint8"), b.input("B", (8, 4), "int8")
    j, k = b.axis("j", 8), b.axis("k", 4)
    p = b.program(b.compute("Y", (1,), lambda i: total(cast(A[j, k], "int32") * cast(B[j, k], "int32"), j, k)))
    found = match(find_intrinsic(AVX2), p.body, p.buffers, p.facts)
    assert isinstance(found, Difference) and "moves 1 elements of C with j, the loop 'j' 0 of 'Y'" in found.words


# --- features ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["statements", "loops", "curves", "tree"])
def test_features_are_those_of_the_loops_inside(view: str) -> None:
    """All but the columns about calls; what calls take is known to `summary` and `estimate`."""
    p = tiled(byte_product(24, 64, 16), AVX2, 8, knob("rows"), 2).program
    (call,) = (s for s in statements(p.body) if isinstance(s, Tensorized))
    loops = p.with_body(kept(swap(p.body, call, call.body)))
    values = {"rows": np.array([2, 3, 4])}
    ours, theirs = (extractor(x, view)(values) for x in (p, loops))
    if view == "tree":
        ours, theirs = ours.features, theirs.features
    plain = schema(view).width - schema(view).gained
    np.testing.assert_array_equal(ours[..., :plain], theirs[..., :plain])
    assert np.isfinite(ours).all() and ours.any()
    assert not theirs[..., plain:].any() and ours[..., plain:].any() == (plain < schema(view).width)
