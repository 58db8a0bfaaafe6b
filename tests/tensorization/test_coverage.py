"""Coverage: every operator against every shipped family of intrinsics, and descriptions without layouts."""

from collections.abc import Callable

import numpy as np
import pytest

from searchlab.errors import ScheduleError, WorkloadError
from searchlab.intrinsics import Intrinsic, find_intrinsic
from searchlab.intrinsics.known import _shipped
from searchlab.ir import Builder, interpret, total
from searchlab.tensorization import (
    IntrinsicFit,
    apply_mapping,
    axis_name,
    intrinsic_fits,
    mappings,
    plain_description,
    rounded_axes,
)
from searchlab.tensorization.plain_descriptions import form
from searchlab.workloads import Workload, operators, parse, workload

DTYPES = ("float32", "uint8", "int8", "bfloat16", "float16", "float64")
FAMILIES = dict.fromkeys(name.rpartition("_")[0] for name in _shipped())
FIRSTS = {f: next(x for name, x in _shipped().items() if name.rpartition("_")[0] == f) for f in FAMILIES}


def cases() -> dict[str, Workload]:
    """All operators with all element types that they take, in their default sizes."""
    found = {}
    for name in (n for n, o in operators().items() if o.path.startswith("searchlab.")):  # other tests add their own
        for dtype in DTYPES:
            try:
                found[f"{name} {dtype}"] = workload(name, dtype=dtype)
            except WorkloadError as e:
                assert "dtype" in str(e)
    return found


def said(fit: IntrinsicFit) -> str:
    """The outcome for a family; extents, which differ inside it, are left out."""
    if not fit.count:
        return fit.reason
    first, name = fit.first[0], lambda group: " ".join(axis_name(v, fit.block) for v in group)
    operands = " ".join(f"{d}={o}" for d, o in zip(fit.operands, first.operands, strict=True))
    axes = ", ".join(f"{axis} = {name(group)}" for axis, group in zip(fit.axes, first.groups, strict=True))
    ways = f"{fit.count} way{'s' * (fit.count > 1)}"
    return f"{ways}: {fit.form}, first {operands}: {axes}; outside {name(first.outside) or 'nothing'}"


def test_all_operators_and_all_families(golden: Callable[[str, str], None]) -> None:
    """Which operators are which instructions, exactly: the number of mappings and the first, or why there is none."""
    lines = []
    for case, w in cases().items():
        stages = [b.name for b in w.program.blocks.values() if b.reduces]
        lines.append(f"{case}{'' if stages else ': no sum'}")
        for stage in stages:
            by_outcome: dict[str, list[str]] = {}
            for fit in intrinsic_fits(w.program, stage, FIRSTS.values(), limit=1):
                by_outcome.setdefault(said(fit), []).append(fit.family)
            lines += [f"  {stage} {', '.join(families)}: {outcome}" for outcome, families in by_outcome.items()]
    golden("coverage.txt", "\n".join(lines) + "\n")


def test_intrinsics_of_a_family_have_the_same_mappings() -> None:
    for spec in ("conv2d:ci=3,co=4,h=5,w=6,k=3,dtype=int8", "dense:m=3,n=4,k=5", "matmul:m=5,n=6,k=7,dtype=bfloat16"):
        program = parse(spec).program
        (stage,) = (b.name for b in program.blocks.values() if b.reduces)
        counts: dict[str, set[int]] = {}
        for fit in intrinsic_fits(program, stage, _shipped().values()):
            counts.setdefault(fit.family, set()).add(fit.count)
        assert counts.keys() == FIRSTS.keys() and all(len(found) == 1 for found in counts.values())


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("depthwise_conv2d:c=3,h=5,w=6,dtype=int8", "sdot_s8s8_4x4"),
        ("depthwise_conv2d:c=3,h=5,w=6,dtype=int8", "vnni_s8s8_4x16"),
        ("qconv2d:ci=3,co=5,h=4,w=5,k=2", "amx_u8s8_16x16x64"),
        ("conv2d:ci=4,co=6,h=4,w=5,k=2,groups=2,dtype=int8", "avx2_s8s8_8x4"),
        ("matmul:m=3,n=5,k=7,dtype=bfloat16", "avx512bf16_4x2"),
    ],
)
def test_what_matches_can_be_applied(spec: str, name: str) -> None:
    w = parse(spec)
    (stage,) = (b.name for b in w.program.blocks.values() if b.reduces)
    (fit,) = intrinsic_fits(w.program, stage, [find_intrinsic(name)])
    inputs = w.inputs(seed=1)
    for mapping in (fit.first[0], fit.first[-1]):
        program, _ = apply_mapping(w.program, mapping, fit.description)
        assert w.check(interpret(program, inputs), inputs) is None


# --- descriptions in plain layout -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["amx_u8s8_16x16x64", "vnni_s8s8_4x16", "avx512bf16_4x2", "avx2_f32_4x16"])
def test_plain_descriptions_compute_the_same(name: str) -> None:
    """Packing the operands of the plain one as the intrinsic reads them gives the same results."""
    packed = find_intrinsic(name).description
    plain, rng = plain_description(packed), np.random.default_rng(0)
    inputs = {b: rng.integers(0, 4, sizes(plain, b)).astype(holding(plain, b)) for b in plain.inputs}
    there = dict(inputs)
    if name.startswith(("amx", "vnni")):  # B[j, k] at [k // 4, j, k % 4]
        j, k = inputs["B"].shape
        there["B"] = inputs["B"].reshape(j, k // 4, 4).transpose(1, 0, 2)
    np.testing.assert_array_equal(interpret(plain, inputs)["C"], interpret(packed, there)["C"])


def sizes(program: object, buffer: str) -> list[int]:
    return [int(str(n)) for n in program.buffers[buffer].shape]  # type: ignore[attr-defined]


def holding(program: object, buffer: str) -> str:
    dtype = program.buffers[buffer].dtype  # type: ignore[attr-defined]
    return "uint16" if dtype == "bfloat16" else str(dtype)


def test_forms() -> None:
    assert form(plain_description(find_intrinsic("amx_s8s8_16x16x64").description)) == (
        "C[i, j] += int32(A[i, k]) * int32(B[j, k])"
    )
    direct = find_intrinsic("avx2_u8s8_8x4").description
    assert plain_description(direct) == direct


def test_windows_that_overlap_have_no_plain_layout() -> None:
    b = Builder("window")
    A, k = b.input("A", (6,)), b.axis("k", 3)
    B = b.input("B", (3,))
    window = b.program(b.compute("C", (4,), lambda i: total(A[i + k] * B[k], k)))
    with pytest.raises(ScheduleError, match=r"'window' may access an element of 'A\[.*\]' several times"):
        plain_description(window)
    known = find_intrinsic("avx2_f32_4x16")
    mine = Intrinsic("window_4x3", window, known.emit, known.needs)
    (fit,) = intrinsic_fits(parse("matmul:m=4,n=4,k=4").program, "C", [mine])
    assert not fit.count and "several times" in fit.reason and fit.form == "C[i] += A[i + k] * B[k]"


def test_what_a_mapping_pads() -> None:
    program = parse("conv2d:ci=3,co=5,h=7,w=9,k=3").program
    (fit,) = intrinsic_fits(program, "Y", [find_intrinsic("avx2_f32_4x16")])
    rounded = [(r.axis, str(r.iterations), str(r.rounded)) for r in rounded_axes(program, fit, fit.first[0])]
    assert rounded == [("i", "35", "36"), ("j", "5", "16"), ("k", "27", "27")]
    padded = mappings(program, "Y", fit.description)
    assert padded and padded.first[0].padded == ("vi", "vj")  # type: ignore[union-attr]
