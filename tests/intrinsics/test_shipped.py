"""The shipped intrinsics: each computes what it describes, or at least becomes the instruction it is named after."""

import re
from dataclasses import replace

import pytest
from tensorized_products import byte_product, tiled

from searchlab.errors import ComponentError, IRError
from searchlab.intrinsics import CallSite, Intrinsic, Needs, Promise, add_intrinsic, find_intrinsic, intrinsics, known
from searchlab.intrinsics.byte_dots import byte_dot
from searchlab.ir import Builder, total
from searchlab.llvm.jit import assembly
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule
from searchlab.targets import CpuTarget, cpu_of, detect
from searchlab.targets.target import parse as target_named
from searchlab.testing import check_intrinsic
from searchlab.testing.instructions import calls_in_a_row

EVERYTHING = {
    "x86_64": ("x86-64-v4", "avx512vnni,avx512bf16,avxvnni,avxvnniint8,amx-tile,amx-int8,amx-bf16"),
    "aarch64": ("neoverse-n1", "dotprod,i8mm"),
}
INSTRUCTIONS = {
    "vnni": "vpdpbusd",
    "vnniint8": "vpdpbssd",
    "avx2_u8s8": "vpmaddwd",
    "avx2_s8s8": "vpmaddwd",
    "avx512bw_u8s8": "vpmaddwd",
    "avx512bw_s8s8": "vpmaddwd",
    "avx2_s16s16": "(vpmaddwd|vpdpwssd)",  # with VNNI, LLVM adds by the same instruction
    "avx512bw_s16s16": "(vpmaddwd|vpdpwssd)",
    "avx2_u7s8": "vpmaddubsw",
    "avx2_u8s7": "vpmaddubsw",
    "avx512bw_u7s8": "vpmaddubsw",
    "avx512bw_u8s7": "vpmaddubsw",
    "avx2_f32": "vfmadd",
    "avx512_f32": "vfmadd",
    "avx512bf16": "vdpbf16ps",
    "neon_f32": "fmla",
    "amx_s8s8": "tdpbssd",
    "amx_u8s8": "tdpbusd",
    "amx_bf16": "tdpbf16ps",
    "sdot": "sdot",
    "udot": "udot",
    "usdot": "usdot",
}
# those of warps run on GPUs: tests/cuda has them
SHIPPED = [x for x in intrinsics().values() if not x.name.startswith("made_") and x.fragments is None]
named = pytest.mark.parametrize("intrinsic", SHIPPED, ids=lambda x: x.name)


def capable(arch: str) -> CpuTarget:
    """A CPU that has everything."""
    name, more = EVERYTHING[arch]
    target = cpu_of(target_named(name))
    return replace(target, features=",".join([target.features, *(f"+{f}" for f in more.split(","))]))


def code_of(intrinsic: Intrinsic, target: CpuTarget) -> str:
    """The assembly of many calls that add to the same elements."""
    s = Schedule(calls_in_a_row(intrinsic, 64))
    ranges = {n: list(r) for n, r in intrinsic.promise.ranges.items()}
    s.tensorize(next(n for n in s.program.loops if n != "repeat"), intrinsic.name, ranges)
    return assembly(generate(lower(s.program, target), target).ir, target)


@named
def test_it_computes_what_it_describes(intrinsic: Intrinsic) -> None:
    target = detect(threads=1)
    if missing := intrinsic.needs.missing(target):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    check_intrinsic(intrinsic, target)


@named
def test_it_becomes_its_instruction(intrinsic: Intrinsic) -> None:
    text = code_of(intrinsic, capable(intrinsic.needs.arch))
    family = max((f for f in INSTRUCTIONS if intrinsic.name.startswith(f)), key=len)
    assert re.search(rf"\s{INSTRUCTIONS[family]}", text), text


def test_tiles_stay_in_tile_registers() -> None:
    text = code_of(find_intrinsic("amx_s8s8_16x16x64"), capable("x86_64"))
    (loop,) = (b for b in re.split(r"\n(?=\.L)", text) if "tdpbssd" in b)
    loop = loop.partition("\n\tj")[0]
    assert loop.count("tileloadd") == 2 and "ldtilecfg" in text and "ldtilecfg" not in loop


def test_a_cpu_with_narrow_vnni_is_not_given_the_wide_one() -> None:
    v3 = cpu_of(target_named("x86-64-v3"))
    narrow = replace(v3, features=v3.features + ",+avxvnni")
    assert not find_intrinsic("vnni_u8s8_8x4").needs.missing(narrow)
    assert find_intrinsic("vnni_u8s8_16x4").needs.missing(narrow) == ("avx512f", "avx512vnni")
    text = assembly(
        generate(lower(tiled(byte_product(8, 16, 8), "vnni_u8s8_8x4", 8).program, narrow), narrow).ir, narrow
    )
    assert "vpdpbusd" in text and "zmm" not in text


# --- what check_intrinsic finds ---------------------------------------------------------------------------------------


def portable(name: str, add: str = "add", cast: str = "zext", promise: Promise | None = None) -> Intrinsic:
    """Four bytes times the four of two columns, in instructions that every CPU has."""

    def emit(site: CallSite) -> None:
        for j in range(2):
            total = site.load("C", "i32", j=j)
            for k in range(4):
                a = site.cast(cast, "i8", site.load("A", "i8", k=k), "i32")
                b = site.cast("sext", "i8", site.load("B", "i8", j=j, k=k), "i32")
                total = site.let(f"{add} i32 {total}, {site.let(f'mul i32 {a}, {b}')}")
            site.store("C", "i32", total, j=j)

    return Intrinsic(name, byte_dot("uint8", "int8", 2), emit, Needs(detect().arch), promise or Promise())


def test_a_right_one_passes() -> None:
    check_intrinsic(portable("portable"), detect(threads=1))


def test_a_wrong_one_is_found() -> None:
    with pytest.raises(
        AssertionError, match="'signed' is not what its description says: on .* of 'C' is .*, the descr"
    ):
        check_intrinsic(portable("signed", cast="sext"), detect(threads=1))
    with pytest.raises(AssertionError, match="'takes_off' is not what its description says"):
        check_intrinsic(portable("takes_off", add="sub"), detect(threads=1))


def test_one_that_is_right_in_a_range_is_only_tried_there() -> None:
    small = Promise("exact where A is in 0..127", {"A": (0, 127)})
    check_intrinsic(portable("small", cast="sext", promise=small), detect(threads=1))


def test_saturation_is_found() -> None:
    if (found := find_intrinsic("avx2_u7s8_8x4")).needs.missing(detect()):
        pytest.skip("this CPU lacks it")
    with pytest.raises(AssertionError, match="'anything_goes' is not what its description says"):
        check_intrinsic(replace(found, name="anything_goes", promise=Promise()), detect(threads=1))


def test_text_that_is_no_ir_is_found() -> None:
    wrong = replace(portable("nonsense"), emit=lambda site: site.line("nonsense"))
    with pytest.raises(AssertionError, match="'nonsense' cannot be built: invalid LLVM IR"):
        check_intrinsic(wrong, detect(threads=1))


def test_what_a_target_lacks_is_said() -> None:
    with pytest.raises(AssertionError, match="needs avx512vnni, which x86-64-v4 lacks"):
        check_intrinsic(find_intrinsic("vnni_u8s8_16x4"), target_named("x86-64-v4"))


# --- values -----------------------------------------------------------------------------------------------------------


def test_descriptions_that_describe_nothing_are_refused() -> None:
    emit, needs = portable("x").emit, portable("x").needs
    with pytest.raises(IRError, match=r"there is no stride 'A.z'; known: A.j, A.k, B.j"):
        Intrinsic("x", byte_dot("uint8", "int8", 2), emit, needs, free=("A.z",))
    with pytest.raises(IRError, match="there is no operand 'Z'; known: C, A, B"):
        Intrinsic("x", byte_dot("uint8", "int8", 2), emit, needs, Promise(ranges={"Z": (0, 1)}))
    b = Builder("twice")
    X, k = b.input("X", (4,)), b.axis("k", 4)
    square = b.program(b.compute("Y", (2,), lambda i: total(X[k] * X[k], k)))
    with pytest.raises(IRError, match="its description accesses 'X' twice"):
        Intrinsic("x", square, emit, needs)
    b = Builder("copy")
    X = b.input("X", (4,))
    with pytest.raises(IRError, match="its description does not add to its output"):
        Intrinsic("x", b.program(b.compute("Y", (4,), lambda i: X[i] + 1.0)), emit, needs)


def test_alignment_is_required_where_it_is_needed() -> None:
    from searchlab.backend import compile
    from searchlab.errors import BuildError

    picky = replace(portable("picky"), needs=Needs(detect().arch, alignment={"A": 4}))
    add_intrinsic(picky)
    s = Schedule(calls_in_a_row(picky, 3))
    s.tensorize("j", "picky")
    with pytest.raises(BuildError, match="'picky' needs A aligned to 4 bytes, which is not known of 'A'"):
        compile(s.program, detect(threads=1))


def test_names() -> None:
    with pytest.raises(ComponentError, match=r"unknown intrinsic 'vnni_u8s8_16x5'; did you mean 'vnni_u8s8_16x4'\?"):
        find_intrinsic("vnni_u8s8_16x5")
    with pytest.raises(ComponentError, match="is no Intrinsic and no tuple of them"):
        find_intrinsic("searchlab.intrinsics.byte_dots:DEPTH")
    add_intrinsic(portable("mine"))
    assert find_intrinsic("mine").name == "mine" and "mine" in intrinsics()


def test_entry_points_bring_intrinsics(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    points = (
        EntryPoint("good", "searchlab.intrinsics.arm_dots:INTRINSICS", known.GROUP),
        EntryPoint("broken", "searchlab.intrinsics.nowhere:X", known.GROUP),
    )
    monkeypatch.setattr(known, "_points", lambda: points)
    known._installed.cache_clear()
    try:
        with pytest.warns(UserWarning, match="intrinsics 'broken': cannot import"):
            assert "sdot_s8s8_4x4" in known._installed()
    finally:
        known._installed.cache_clear()
