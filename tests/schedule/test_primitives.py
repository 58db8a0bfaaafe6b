"""Each primitive: its rewrite as golden text, equal values before and after, and illegal uses refused by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.errors import ScheduleError
from searchlab.ir import Builder, Program, call, cast, interpret, knob, largest, maximum, select, size, total, verify
from searchlab.runtime.kernel import pack
from searchlab.schedule import PRIMITIVES, Schedule
from searchlab.schedule import annotate as annotate_on
from searchlab.workloads import parse

Steps = Callable[[Schedule], object]

# --- programs to schedule ---------------------------------------------------------------------------------------------


def matmul(m: Any = 6, n: Any = 8, k: Any = 4) -> Program:
    b = Builder("matmul")
    A, B = b.input("A", (m, k)), b.input("B", (k, n))
    r = b.axis("k", k)
    return b.program(b.compute("C", (m, n), lambda i, j: total(A[i, r] * B[r, j], r)))


def chain() -> Program:
    """Three elementwise stages, one after the other."""
    b = Builder("chain")
    X = b.input("X", (6, 8))
    P = b.compute("P", (6, 8), lambda i, j: X[i, j] + 1.0)
    Q = b.compute("Q", (6, 8), lambda i, j: P[i, j] * 2.0)
    return b.program(b.compute("Y", (6, 8), lambda i, j: Q[i, j] - X[i, j]))


def blur() -> Program:
    """A padded copy, and sums over windows of it: regions with halos."""
    b = Builder("blur")
    X = b.input("X", (12,))
    P = b.compute("P", (14,), lambda i: select((i >= 1) & (i < 13), X[i - 1], 0.0))
    r = b.axis("r", 3)
    return b.program(b.compute("Y", (12,), lambda i: total(P[i + r], r)))


def matmul_relu() -> Program:
    b = Builder("matmul_relu")
    A, B = b.input("A", (6, 4)), b.input("B", (4, 8))
    r = b.axis("k", 4)
    C = b.compute("C", (6, 8), lambda i, j: total(A[i, r] * B[r, j], r))
    return b.program(b.compute("Y", (6, 8), lambda i, j: maximum(C[i, j], 0.0)))


def norm() -> Program:
    """A reduction over rows, read by the stage after it."""
    b = Builder("norm")
    X = b.input("X", (4, 10))
    r = b.axis("r", 10)
    S = b.compute("S", (4,), lambda i: total(X[i, r] * X[i, r], r))
    return b.program(b.compute("Y", (4, 10), lambda i, j: X[i, j] / call("sqrt", S[i])))


def row_max() -> Program:
    b = Builder("row_max")
    X = b.input("X", (4, 10))
    r = b.axis("r", 10)
    return b.program(b.compute("Y", (4,), lambda i: largest(X[i, r], r)))


def half_product() -> Program:
    """A product of only a part of its operands."""
    b = Builder("half_product")
    A, B = b.input("A", (6, 8)), b.input("B", (8, 8))
    r = b.axis("k", 4)
    return b.program(b.compute("C", (6, 8), lambda i, j: total(A[i, r] * B[r, j], r)))


def padded_sum() -> Program:
    """A sum over windows that is zero outside its input, without a stage for the padding."""
    b = Builder("padded_sum")
    X, W = b.input("X", (12,)), b.input("W", (3,))
    r = b.axis("r", 3)
    return b.program(
        b.compute("Y", (12,), lambda i: total(select((i + r >= 1) & (i + r < 13), X[i + r - 1], 0.0) * W[r], r))
    )


def masked_product() -> Program:
    """A product whose both factors may only be read under one condition."""
    b = Builder("masked_product")
    X, W = b.input("X", (6, 4)), b.input("W", (5,))
    r = b.axis("r", 4)
    return b.program(b.compute("Y", (6,), lambda i: total(select(r * 2 + i < 5, X[i, r] * W[r * 2 + i], 0.0), r)))


def values(program: Program, seed: int = 1) -> dict[str, np.ndarray]:
    """The outputs on random inputs, which are packed if the program wants them so."""
    rng = np.random.default_rng(seed)
    layouts = {la.buffer: la for la in program.layouts}
    inputs = {}
    for name in program.inputs:
        buffer = layouts[name].original if name in layouts else program.buffers[name]
        x = rng.integers(-8, 9, [int(str(e)) for e in buffer.shape]).astype(buffer.dtype)  # whole: sums are exact
        inputs[name] = pack(layouts[name], program.buffers[name], x) if name in layouts else x
    return interpret(program, inputs)


# --- what each primitive does -----------------------------------------------------------------------------------------


def _tiles(s: Schedule) -> list[str]:
    """A tiled matmul: i_0, j_0, k, i_1, j_1."""
    i0, i1 = s.split("i", [None, 3])
    j0, j1 = s.split("j", [None, 4])
    s.reorder(i0, j0, "k", i1, j1)
    return [i0, j0, "k", i1, j1]


def _fused_layout(s: Schedule) -> None:
    s.cache_read("C", "B")
    s.transform_layout("B_local", lambda k, j: (k * 8 + j,))


def _compute_at(s: Schedule) -> None:
    s.split("Y_i", [None, 4])
    s.compute_at("P", "Y_i_0")


def _reverse_compute_at(s: Schedule) -> None:
    i0, *_ = _tiles(s)
    s.reverse_compute_at("Y", "j_0")


def _cache_and_move(s: Schedule) -> None:
    i0, j0, *_ = _tiles(s)
    s.cache_read("C", "B")
    s.cache_write("C")
    s.compute_at("B_local", j0)
    s.reverse_compute_at("C_store", j0)


def _rfactor(s: Schedule) -> None:
    s.split("r", [None, 5])
    s.rfactor("r_1", axis=1)


def _rfactor_tail(s: Schedule) -> None:
    s.split("r", [None, 4], tail=True)
    s.rfactor("r_1", name="lanes")


def _blockize(s: Schedule) -> None:
    i0, j0, k, i1, j1 = _tiles(s)
    s.reorder(i0, j0, i1, j1, k)
    s.blockize(i1, name="tile")


def byte_matmul() -> Program:
    b = Builder("byte_matmul")
    A, B = b.input("A", (6, 8), "uint8"), b.input("B", (8, 16), "int8")
    r = b.axis("k", 8)
    body = lambda i, j: total(cast(A[i, r], "int32") * cast(B[r, j], "int32"), r)  # noqa: E731
    return b.program(b.compute("C", (6, 16), body))


def _tensorize(s: Schedule) -> None:
    s.transform_layout("B", lambda k, j: (k // 4, j, k % 4))
    j0, j1 = s.split("j", [None, 8])
    k0, k1 = s.split("k", [None, 4])
    s.reorder(j0, k0, j1, k1)
    s.tensorize(j1, "avx2_u8s8_8x4")


def _round_up(s: Schedule) -> None:
    s.transform_layout("B", lambda k, j: (j // 12, k // 3, j % 12, k % 3))
    s.transform_layout(s.cache_read("C", "A"), lambda i, k: (i, k // 3, k % 3))
    s.cache_write("C")
    s.round_up("C", {"vj": 12, "vk": 3})


def _widen(s: Schedule) -> None:
    s.transform_layout(s.cache_read("C", "A"), lambda i, k: (i, k // 3, k % 3))
    s.widen("A_local", "int16")


def _widen_input(s: Schedule) -> None:
    s.transform_layout("B", lambda k, j: (j // 12, k // 2, j % 12, k % 2))
    s.widen("B", "int16")
    s.widen("A", "int32")
    s.transform_layout("A", lambda i, k: (k, i))


def byte_blur() -> Program:
    """Sums of a padded copy, which is also read as it is."""
    b = Builder("byte_blur")
    X = b.input("X", (12,), "int8")
    P = b.compute("P", (14,), lambda i: select((i >= 1) & (i < 13), X[i - 1], 3))
    r = b.axis("r", 3)
    S = b.compute("S", (12,), lambda i: total(cast(P[i + r], "int32") * cast(cast(P[i], "uint8"), "int32"), r))
    return b.program(b.compute("Y", (12,), lambda i: S[i] + cast(maximum(P[i], P[i + 2]), "int32")))


def _product(s: Schedule) -> None:
    """A convolution as a matrix product."""
    for operand in ("P", "W", "Y"):
        s.reindex("Y", operand)
    s.transform_block_layout("Y", lambda n, c, w, ci, kw: (n * 5 + w, c, ci * 3 + kw), names=["x", "y", "k"])
    s.transform_layout("P_reindex", lambda n, w, ci, kw: (n * 5 + w, ci * 3 + kw))
    s.transform_layout("W_reindex", lambda c, ci, kw: (c, ci * 3 + kw))
    s.transform_layout("Y_reindex", lambda n, c, w: (n * 5 + w, c))


def _both_factors(s: Schedule) -> None:
    s.reindex("Y", "X")
    s.reindex("Y", "W")


def _pad_and_back(s: Schedule) -> None:
    s.pad("C", {"vi": 4, "vj": 5, "vk": 3})
    s.unpad("C")


def _pad_split_and_back(s: Schedule) -> None:
    s.pad("C", {"vi": 4, "vk": 3})
    i0, i1 = s.split("i", [None, 4])
    k0, k1 = s.split("k", [None, 3])
    s.reorder(i0, k0, i1, "j", k1)
    s.unpad("C")


def _pad_layout_and_back(s: Schedule) -> None:
    """The packed operand keeps its padding."""
    s.pad("C", {"vi": 4, "vj": 3})
    s.transform_layout("B_pad", lambda k, j: (j // 3, k, j % 3))
    s.unpad("C")


def _fill_tile(s: Schedule) -> None:
    _compute_at(s)
    s.decompose_padding("P", "P_i")


def conv() -> Program:
    return parse("conv1d:n=2,ci=2,co=3,w=9,k=3,stride=2,padding=1").program


REWRITES: dict[str, tuple[Callable[[], Program], Steps]] = {
    "split_perfect": (matmul, lambda s: s.split("j", [None, 4])),
    "split_tail": (matmul, lambda s: s.split("j", [None, 3], tail=True)),
    "split_all_factors": (matmul, lambda s: s.split("j", [2, 2, 2], names=["a", "b", "c"])),
    "split_all_factors_tail": (matmul, lambda s: s.split("j", [3, 3], tail=True)),
    "split_none_inside": (matmul, lambda s: s.split("j", [2, None, 2])),
    "split_reduction_tail": (matmul, lambda s: s.split("k", [None, 3], tail=True)),
    "fuse": (matmul, lambda s: s.fuse("i", "j")),
    "fuse_three": (matmul, lambda s: s.fuse("i", "j", "k", name="all")),
    "fuse_what_was_split": (matmul, lambda s: s.fuse(*s.split("j", [None, 4]))),
    "reorder": (matmul, lambda s: s.reorder("k", "i")),
    "vectorize": (matmul, lambda s: s.vectorize("j")),
    "unroll": (matmul, lambda s: s.unroll("k")),
    "parallel": (matmul, lambda s: s.parallel("i")),
    "bind": (matmul, lambda s: s.bind("i", "blockIdx.x")),
    "choose_kind": (matmul, lambda s: s.choose_kind("i", ["serial", "parallel"], 1)),
    "annotate": (matmul, lambda s: s.annotate("i", "note", "outer")),
    "annotate_unroll_up_to": (matmul, lambda s: s.annotate("C", "unroll_up_to", 32)),
    "cache_read": (matmul, lambda s: s.cache_read("C", "B")),
    "cache_read_shared": (matmul, lambda s: s.cache_read("C", "A", scope="shared", name="Atile")),
    "cache_write": (matmul, lambda s: s.cache_write("C")),
    "prefetch": (matmul, lambda s: s.prefetch("C", "B", "k", 2)),
    "prefetch_nothing": (matmul, lambda s: s.prefetch("C", "B", "k", 0)),
    "cache_and_move": (matmul, _cache_and_move),
    "compute_at": (blur, _compute_at),
    "compute_at_reduction": (norm, lambda s: s.compute_at("S", "Y_i")),
    "reverse_compute_at": (matmul_relu, _reverse_compute_at),
    "compute_inline": (chain, lambda s: s.compute_inline("P")),
    "compute_inline_padding": (blur, lambda s: s.compute_inline("P")),
    "reverse_compute_inline": (chain, lambda s: s.reverse_compute_inline("Q")),
    "rfactor": (norm, _rfactor),
    "rfactor_tail": (row_max, _rfactor_tail),
    "decompose_reduction": (matmul, lambda s: s.decompose_reduction("C", "j")),
    "transform_layout_stage": (chain, lambda s: s.transform_layout("P", lambda i, j: (j // 4, i, j % 4))),
    "transform_layout_stage_uneven": (chain, lambda s: s.transform_layout("P", lambda i, j: (j // 3, i, j % 3))),
    "transform_layout_reduction": (norm, lambda s: s.transform_layout("S", lambda i: (i // 2, i % 2))),
    "transform_layout_input": (matmul, lambda s: s.transform_layout("B", lambda k, j: (j // 3, k, j % 3))),
    "transform_layout_fused": (matmul, _fused_layout),
    "transform_layout_three_digits": (
        matmul,
        lambda s: s.transform_layout("B", lambda k, j: (j // 4, k, (j // 2) % 2, j % 2)),
    ),
    "pad": (matmul, lambda s: s.pad("C", {"vi": 4, "vk": 3})),
    "pad_space": (chain, lambda s: s.pad("Q", {"vj": 5})),
    "pad_fits": (matmul, lambda s: s.pad("C", {"vi": 3})),
    "blockize": (matmul, _blockize),
    "round_up": (byte_matmul, _round_up),
    "tensorize": (byte_matmul, _tensorize),
    "widen": (byte_matmul, _widen),
    "widen_input": (byte_matmul, _widen_input),
    "widen_padding": (byte_blur, lambda s: s.widen("P", "int32")),
    "commute": (matmul, lambda s: s.commute("C")),
    "reindex": (blur, lambda s: s.reindex("Y", "P")),
    "reindex_guarded": (padded_sum, lambda s: s.reindex("Y", "X")),
    "reindex_guarded_product": (masked_product, _both_factors),
    "reindex_output": (matmul, lambda s: s.reindex("C", "C", name="Z")),
    "transform_block_layout_fuse": (matmul, lambda s: s.transform_block_layout("C", lambda i, j, k: (j * 6 + i, k))),
    "transform_block_layout_split": (
        matmul,
        lambda s: s.transform_block_layout("C", lambda i, j, k: (j // 4, i, k, j % 4)),
    ),
    "transform_block_layout_product": (conv, _product),
    "unpad": (matmul, _pad_and_back),
    "unpad_split": (matmul, _pad_split_and_back),
    "unpad_layout": (matmul, _pad_layout_and_back),
    "decompose_padding": (blur, lambda s: s.decompose_padding("P", "i")),
    "decompose_padding_inner": (conv, lambda s: s.decompose_padding("P", "w")),
    "decompose_padding_tile": (blur, _fill_tile),
}


@pytest.mark.parametrize("name", REWRITES)
def test_rewrite(name: str, golden: Callable[[str, str], None]) -> None:
    make, steps = REWRITES[name]
    s = Schedule(make())
    steps(s)
    verify(s.program)
    golden(f"schedule/{name}.txt", f"{make()}\n=>\n\n{s.program}")


@pytest.mark.parametrize("name", REWRITES)
def test_values_stay(name: str) -> None:
    make, steps = REWRITES[name]
    s = Schedule(make())
    steps(s)
    before, after = values(make()), values(s.program)
    for output, x in before.items():
        np.testing.assert_array_equal(after[output], x)


def test_every_golden_file_is_of_a_rewrite() -> None:
    found = {path.stem for path in (Path(__file__).parents[1] / "goldens" / "schedule").glob("*.txt")}
    assert found == {*REWRITES, "whole_program"}


def test_every_primitive_has_a_rewrite() -> None:
    used = set()
    for make, steps in REWRITES.values():
        s = Schedule(make())
        steps(s)
        used |= {step.name for step in s.program.trace}
    assert used == set(PRIMITIVES)


def test_primitives_leave_their_argument_alone() -> None:
    program = matmul()
    text = str(program)
    for steps in (_tiles, _cache_and_move, _blockize):
        steps(Schedule(program))
    assert str(program) == text and program.trace == ()


# --- what they return -------------------------------------------------------------------------------------------------


def test_names_of_what_was_made() -> None:
    s = Schedule(matmul())
    assert s.split("i", [None, 2]) == ["i_0", "i_1"]
    assert s.split("i_1", [2, None]) == ["i_1_0", "i_1_1"]
    assert s.fuse("i_1_0", "i_1_1") == "i_1_0_i_1_1"
    assert s.fuse("j", "k", name="jk") == "jk"
    assert s.cache_read("C", "A") == "A_local" and s.cache_read("C", "B", "shared", "Bs") == "Bs"
    assert s.cache_write("C") == "C_store" and s.program.blocks["C"].store.buffer == "C_local"
    assert s.loops("C") == ["i_0", "i_1_0_i_1_1", "jk"]
    s = Schedule(matmul())
    assert s.rfactor("k") == "C_rf" and s.decompose_reduction("C_rf", "i") == "C_rf_init"
    assert s.blockize("k") == "C_rf_outer"


def test_names_that_exist_are_not_used_again() -> None:
    s = Schedule(matmul())
    assert s.cache_read("C", "A") == "A_local"
    assert s.cache_read("A_local", "A") == "A_local2"


def test_unrolled_and_vectorized_loops_may_carry_a_reduction() -> None:
    s = Schedule(matmul())
    s.vectorize("k")
    s.unroll("j")
    np.testing.assert_array_equal(values(s.program)["C"], values(matmul())["C"])


def test_a_note_is_replaced_by_the_next_of_its_name() -> None:
    p = annotate_on(annotate_on(annotate_on(matmul(), "C", "a", 1), "C", "b", 2), "C", "a", 3)
    assert dict(p.blocks["C"].annotations) == {"a": 3, "b": 2}


def test_a_choice_is_a_note_until_it_is_a_number() -> None:
    s = Schedule(matmul())
    s.choose_kind("j", ["serial", "unrolled", "vectorized"], knob("c"))
    loop = s.program.loops["j"]
    assert loop.kind == "serial" and loop.kinds == ("serial", "unrolled", "vectorized")
    assert "for j in 8 @kind=c @kinds=serial|unrolled|vectorized:" in str(s.program)
    assert list(map(str, s.program.assumptions)) == ["c < 3"] and s.program.knobs == ("c",)
    chosen = [s.program.substitute({"c": n}).loops["j"] for n in range(3)]
    assert [lp.kind for lp in chosen] == ["serial", "unrolled", "vectorized"]
    assert all(lp.annotations == () and lp.kinds == (lp.kind,) for lp in chosen)


def test_splits_by_knobs_assume_that_they_divide() -> None:
    s = Schedule(matmul())
    s.split("i", [None, knob("t")])
    s.split("j", [knob("a"), knob("b")])
    assert list(map(str, s.program.assumptions)) == ["6 % t == 0", "a*b == 8"]
    s = Schedule(matmul())
    s.split("i", [None, knob("t")], tail=True)
    s.split("j", [knob("a"), knob("b")], tail=True)
    assert list(map(str, s.program.assumptions)) == ["8 <= a*b"]


# --- what they refuse -------------------------------------------------------------------------------------------------


def _after(first: Steps, then: Steps) -> Steps:
    def both(s: Schedule) -> None:
        first(s)
        then(s)

    return both


def _two_readers() -> Program:
    b = Builder("two_readers")
    X = b.input("X", (6,))
    P = b.compute("P", (6,), lambda i: X[i] + 1.0)
    Y = b.compute("Y", (6,), lambda i: P[i] * 2.0)
    return b.program(Y, b.compute("Z", (6,), lambda i: P[i] * 3.0))


def _two_places() -> Program:
    b = Builder("two_places")
    X = b.input("X", (7,))
    P = b.compute("P", (7,), lambda i: X[i] + 1.0)
    return b.program(b.compute("Y", (6,), lambda i: P[i] + P[i + 1]))


def _transposed() -> Program:
    b = Builder("transposed")
    X = b.input("X", (6, 6))
    P = b.compute("P", (6, 6), lambda i, j: X[i, j] + 1.0)
    return b.program(b.compute("Y", (6,), lambda i: P[i, i]))


def _half() -> Program:
    b = Builder("half")
    X = b.input("X", (6,))
    P = b.compute("P", (6,), lambda i: X[i] + 1.0)
    return b.program(b.compute("Y", (3,), lambda i: P[i]))


def _guarded_by_values() -> Program:
    b = Builder("guarded_by_values")
    X, M = b.input("X", (6,)), b.input("M", (6,))
    return b.program(b.compute("Y", (6,), lambda i: select(M[i] > 0.0, X[i] * 2.0, 1.0)))


def _softmax() -> Program:
    return parse("softmax:rows=3,cols=4").program


def _either(loop: str) -> Steps:
    return lambda s: s.choose_kind(loop, ["serial", "parallel"], knob("c"))


def _mixed_loop(s: Schedule) -> None:
    s.fuse("j", "k")


def _decomposed(s: Schedule) -> None:
    s.decompose_reduction("C", "k")


def _turn(s: Schedule) -> None:
    s.reorder(*reversed(s.split("j_k", [None, 2])))


def _turned(s: Schedule) -> None:
    s.split("j", [2, 4])
    s.reorder("k", "j_1", "j_0")


REFUSED: dict[str, list[tuple[Callable[[], Program], Steps, list[str]]]] = {
    "split": [
        (matmul, _after(_either("i"), lambda s: s.split("i", [None, 2])), ["'i' is serial or parallel", "before"]),
        (matmul, lambda s: s.split("z", [2, 3]), ["no loop 'z'", "known: i, j, k"]),
        (matmul, lambda s: s.split("ii", [2, 3]), ["nearest: 'i'"]),
        (
            matmul,
            _after(lambda s: s.prefetch("C", "A", "k", 1), lambda s: s.split("k", [None, 2])),
            ["'C' prefetches along loop 'k'", "not around it"],
        ),
        (matmul, lambda s: s.split("j", [None, 3]), ["3 does not divide", "'j'", "8", "tail=True"]),
        (matmul, lambda s: s.split("j", [3, 4]), ["12", "'j'", "8"]),
        (matmul, lambda s: s.split("j", [2, 3], tail=True), ["6", "does not cover", "'j'"]),
        (matmul, lambda s: s.split("j", [None, None]), ["more than one factor is None"]),
        (matmul, lambda s: s.split("j", []), ["no factors"]),
        (matmul, lambda s: s.split("j", [None, 0]), ["factor 0", "'j'"]),
        (matmul, lambda s: s.split("j", [None, -2]), ["factor -2", "'j'"]),
        (matmul, lambda s: s.split("j", [None, 2.5]), ["2.5"]),
        (matmul, lambda s: s.split("j", [None, 2], names=["a"]), ["2 factors", "1 names"]),
        (matmul, lambda s: s.split("j", [None, 2], names=["a", "a"]), ["twice", "'a'"]),
        (matmul, lambda s: s.split("j", [None, 2], names=["a", "i"]), ["'i' is not a free loop name"]),
        (matmul, lambda s: s.split("j", [None, 2], names=["a", "b c"]), ["'b c' is not a free loop name"]),
        (matmul, _after(lambda s: s.vectorize("j"), lambda s: s.split("j", [None, 2])), ["'j' is vectorized"]),
    ],
    "fuse": [
        (matmul, _after(_either("i"), lambda s: s.fuse("i", "j")), ["'i' is serial or parallel"]),
        (matmul, lambda s: s.fuse("i"), ["at least two loops"]),
        (matmul, lambda s: s.fuse("i", "z"), ["no loop 'z'"]),
        (matmul, lambda s: s.fuse("i", "k"), ["'k' is not directly inside 'i'"]),
        (matmul, lambda s: s.fuse("j", "i"), ["'i' is not directly inside 'j'"]),
        (chain, lambda s: s.fuse("i", "Q_i"), ["'Q_i' is not directly inside 'i'"]),
        (matmul, lambda s: s.fuse("i", "j", name="k"), ["'k' is not a free loop name"]),
        (matmul, _after(lambda s: s.parallel("i"), lambda s: s.fuse("i", "j")), ["'i' is parallel"]),
    ],
    "reorder": [
        (matmul, lambda s: s.reorder("i"), ["at least two loops"]),
        (matmul, lambda s: s.reorder("i", "i"), ["twice", "'i'"]),
        (matmul, lambda s: s.reorder("i", "z"), ["no loop 'z'"]),
        (chain, lambda s: s.reorder("i", "Q_i"), ["'i'", "'Q_i'", "not in one nest"]),
        (blur, _after(_compute_at, lambda s: s.reorder("Y_i_1", "Y_i_0")), ["several statements", "'Y_i_0'"]),
        (matmul, _after(_blockize, lambda s: s.reorder("i_1", "i_0")), ["block 'tile'", "'i_0'"]),
        (matmul, _after(_mixed_loop, _turn), ["'j_k_0'", "space and reduction of 'C'"]),
    ],
    "vectorize": [
        (matmul, _after(_either("j"), lambda s: s.vectorize("i")), ["loop 'i' holds the parallel loop 'j'"]),
        (matmul, lambda s: s.vectorize("z"), ["no loop 'z'"]),
        (matmul, _after(lambda s: s.unroll("j"), lambda s: s.vectorize("j")), ["'j' is already unrolled"]),
        (matmul, _after(lambda s: s.parallel("j"), lambda s: s.vectorize("i")), ["'i'", "parallel loop 'j'"]),
    ],
    "unroll": [
        (matmul, lambda s: s.unroll("z"), ["no loop 'z'"]),
        (matmul, _after(lambda s: s.parallel("i"), lambda s: s.unroll("i")), ["'i' is already parallel"]),
    ],
    "parallel": [
        (matmul, _after(_either("i"), lambda s: s.parallel("i")), ["'i' is already serial or parallel"]),
        (matmul, lambda s: s.parallel("z"), ["no loop 'z'"]),
        (matmul, lambda s: s.parallel("k"), ["'k'", "reduction 'vk' of 'C'", "rfactor"]),
        (matmul, _after(_mixed_loop, lambda s: s.parallel("j_k")), ["'j_k'", "reduction 'vk' of 'C'"]),
        (matmul, _after(_blockize, lambda s: s.parallel("k")), ["'k'", "of 'C'"]),
        (matmul, _after(lambda s: s.vectorize("i"), lambda s: s.parallel("j")), ["'j'", "vectorized loop 'i'"]),
        (matmul, _after(lambda s: s.parallel("i"), lambda s: s.parallel("i")), ["'i' is already parallel"]),
    ],
    "bind": [
        (matmul, lambda s: s.bind("z", "threadIdx.x"), ["no loop 'z'"]),
        (matmul, lambda s: s.bind("i", "threadIdx"), ["no thread axis 'threadIdx'", "threadIdx.x"]),
        (matmul, lambda s: s.bind("k", "blockIdx.x"), ["'k'", "blockIdx.x", "of 'C'"]),
        (matmul, _after(lambda s: s.unroll("i"), lambda s: s.bind("i", "threadIdx.x")), ["'i' is already unrolled"]),
    ],
    "choose_kind": [
        (matmul, lambda s: s.choose_kind("z", ["serial"], 0), ["no loop 'z'"]),
        (matmul, lambda s: s.choose_kind("i", [], 0), ["list of kinds"]),
        (matmul, lambda s: s.choose_kind("i", "serial", 0), ["list of kinds"]),
        (matmul, lambda s: s.choose_kind("i", ["seriel"], 0), ["no kind of loop 'seriel'", "nearest: 'serial'"]),
        (matmul, lambda s: s.choose_kind("i", ["serial", "threadIdx.x"], 0), ["no kind of loop 'threadIdx.x'"]),
        (matmul, lambda s: s.choose_kind("i", ["serial", "serial"], 0), ["twice"]),
        (matmul, lambda s: s.choose_kind("i", ["serial", "parallel"], 2), ["choice 2", "0..1"]),
        (matmul, lambda s: s.choose_kind("i", ["serial", "parallel"], -1), ["choice -1"]),
        (matmul, lambda s: s.choose_kind("i", ["serial"], 0.5), ["expected an integer", "0.5"]),
        (matmul, lambda s: s.choose_kind("k", ["serial", "parallel"], knob("c")), ["'k' carries reduction", "of 'C'"]),
        (
            matmul,
            _after(lambda s: s.unroll("i"), lambda s: s.choose_kind("i", ["serial"], knob("c"))),
            ["'i' is already unrolled"],
        ),
        (
            matmul,
            _after(_either("i"), lambda s: s.choose_kind("i", ["serial"], knob("d"))),
            ["'i' is already serial or parallel"],
        ),
        (
            matmul,
            _after(_either("j"), lambda s: s.choose_kind("i", ["serial", "vectorized"], knob("d"))),
            ["loop 'i' holds the parallel loop 'j'"],
        ),
    ],
    "annotate": [
        (matmul, lambda s: s.annotate("z", "note", 1), ["no loop or block 'z'", "known: i, j, k, C"]),
        (matmul, lambda s: s.annotate("i", "kind", knob("c")), ["'kind'", "choose_kind"]),
        (matmul, lambda s: s.annotate("C", "prefetch", 1), ["'prefetch' is a separate primitive"]),
    ],
    "cache_read": [
        (matmul, lambda s: s.cache_read("D", "A"), ["no block 'D'"]),
        (matmul, lambda s: s.cache_read("C", "D"), ["no buffer read by 'C' 'D'", "known: A, B"]),
        (
            matmul,
            _after(lambda s: s.prefetch("C", "A", "k", 1), lambda s: s.cache_read("C", "A")),
            ["'C' prefetches 'A'", "does not read"],
        ),
        (matmul, lambda s: s.cache_read("C", "C"), ["read by 'C'", "'C'"]),
        (matmul, lambda s: s.cache_read("C", "A", scope="l1"), ["no scope 'l1'", "shared"]),
        (matmul, lambda s: s.cache_read("C", "A", name="B"), ["'B' is not a free name"]),
        (matmul, lambda s: s.cache_read("C", "A", name="a b"), ["'a b' is not a free name"]),
        (matmul, _after(_blockize, lambda s: s.cache_read("tile", "A")), ["block 'tile' holds other blocks"]),
        (blur, _after(_compute_at, lambda s: s.cache_read("Y", "P")), ["'P' is made by 'P'", "'Y'", "compute_at"]),
    ],
    "cache_write": [
        (matmul, lambda s: s.cache_write("D"), ["no block 'D'"]),
        (matmul, lambda s: s.cache_write("C", "A"), ["written by 'C'", "'A'", "known: C"]),
        (matmul, lambda s: s.cache_write("C", scope="l1"), ["no scope 'l1'"]),
        (matmul, lambda s: s.cache_write("C", name="A"), ["'A' is not a free name"]),
        (
            matmul,
            _after(_decomposed, lambda s: s.cache_write("C")),
            ["'C' is written by 'C_init' too"],
        ),
    ],
    "prefetch": [
        (matmul, lambda s: s.prefetch("D", "A", "k", 1), ["no block 'D'"]),
        (matmul, lambda s: s.prefetch("C", "D", "k", 1), ["no buffer read by 'C' 'D'", "known: A, B"]),
        (matmul, lambda s: s.prefetch("C", "C", "k", 1), ["no buffer read by 'C' 'C'"]),
        (matmul, lambda s: s.prefetch("C", "A", "z", 1), ["no loop 'z'"]),
        (chain, lambda s: s.prefetch("Q", "P", "j", 1), ["loop 'j' is not around block 'Q'"]),
        (matmul, lambda s: s.prefetch("C", "A", "k", -1), ["distance -1 is below 0"]),
        (matmul, lambda s: s.prefetch("C", "A", "k", 0.5), ["expected an integer", "0.5"]),
        (matmul, _after(_blockize, lambda s: s.prefetch("tile", "A", "k", 1)), ["block 'tile' holds other blocks"]),
        (
            matmul,
            _after(lambda s: s.prefetch("C", "A", "k", 1), lambda s: s.prefetch("C", "A", "k", knob("d"))),
            ["block 'C' already prefetches 'A' along 'k'"],
        ),
    ],
    "compute_at": [
        (chain, lambda s: s.compute_at("D", "i"), ["no block 'D'"]),
        (chain, lambda s: s.compute_at("P", "z"), ["no loop 'z'"]),
        (chain, lambda s: s.compute_at("P", "i"), ["block 'P' is already inside loop 'i'"]),
        (chain, lambda s: s.compute_at("Y", "i"), ["'Y' is an output"]),
        (chain, lambda s: s.compute_at("P", "Y_i"), ["'P'", "read by 'Q'", "outside loop 'Y_i'"]),
        (_two_readers, lambda s: s.compute_at("P", "Y_i"), ["'P'", "read by 'Z'", "'Y_i'"]),
        (matmul, _after(_blockize, lambda s: s.compute_at("tile", "i_0")), ["block 'tile' holds other blocks"]),
        (
            norm,
            _after(lambda s: s.decompose_reduction("S", "r"), lambda s: s.compute_at("S", "Y_i")),
            ["'S' is written by 'S_init' too"],
        ),
        (
            chain,
            _after(lambda s: s.compute_at("P", "Q_i"), lambda s: s.compute_at("Q", "Y_i")),
            ["'P'", "nest of 'Q'"],
        ),
    ],
    "reverse_compute_at": [
        (matmul_relu, lambda s: s.reverse_compute_at("D", "i"), ["no block 'D'"]),
        (matmul_relu, lambda s: s.reverse_compute_at("Y", "z"), ["no loop 'z'"]),
        (matmul_relu, lambda s: s.reverse_compute_at("Y", "Y_i"), ["'Y' is already inside loop 'Y_i'"]),
        (matmul_relu, lambda s: s.reverse_compute_at("C", "Y_i"), ["nothing inside loop 'Y_i'", "'C'", "A, B"]),
        (matmul_relu, lambda s: s.reverse_compute_at("Y", "k"), ["'C' is not finished inside loop 'k'"]),
        (
            matmul_relu,
            _after(lambda s: s.reorder("k", "i"), lambda s: s.reverse_compute_at("Y", "i")),
            ["'C' is not finished inside loop 'i'", "loop 'k'"],
        ),
        (_two_places, lambda s: s.reverse_compute_at("Y", "i"), ["'Y' reads 'P' at several places"]),
        (_transposed, lambda s: s.reverse_compute_at("Y", "i"), ["'Y' reads 'P' at [vi, vi]"]),
        (
            matmul_relu,
            _after(
                lambda s: s.split("j", [None, 4]),
                _after(lambda s: s.reorder("j_1", "j_0"), lambda s: s.reverse_compute_at("Y", "j_1")),
            ),
            ["loop 'j_1'", "separate tile", "'C'"],
        ),
    ],
    "compute_inline": [
        (chain, lambda s: s.compute_inline("D"), ["no block 'D'"]),
        (chain, lambda s: s.compute_inline("Y"), ["'Y' is an output"]),
        (norm, lambda s: s.compute_inline("S"), ["block 'S' is a reduction"]),
        (chain, _after(lambda s: s.blockize("j"), lambda s: s.compute_inline("P")), ["block 'P' is inside another"]),
    ],
    "reverse_compute_inline": [
        (chain, lambda s: s.reverse_compute_inline("D"), ["no block 'D'"]),
        (chain, lambda s: s.reverse_compute_inline("P"), ["'P'", "only reader"]),
        (matmul_relu, lambda s: s.reverse_compute_inline("Y"), ["'C' is a reduction", "reverse_compute_at"]),
        (matmul_relu, lambda s: s.reverse_compute_inline("C"), ["block 'C' is a reduction"]),
        (_two_readers, lambda s: s.reverse_compute_inline("Y"), ["'Y'", "only reader", "'P'"]),
        (_two_places, lambda s: s.reverse_compute_inline("Y"), ["'Y' reads 'P' at several places"]),
        (_transposed, lambda s: s.reverse_compute_inline("Y"), ["'Y' does not read 'P' one element per iteration"]),
        (_half, lambda s: s.reverse_compute_inline("Y"), ["'Y' reads only a part of 'P'"]),
    ],
    "rfactor": [
        (matmul, lambda s: s.rfactor("z"), ["no loop 'z'"]),
        (matmul, lambda s: s.rfactor("i"), ["loop 'i'", "no block"]),
        (chain, lambda s: s.rfactor("j"), ["loop 'j'", "no block"]),
        (matmul, lambda s: s.rfactor("k", axis=3), ["axis 3", "0..2"]),
        (matmul, lambda s: s.rfactor("k", axis=-1), ["axis -1"]),
        (matmul, lambda s: s.rfactor("k", name="A"), ["'A' is not a free name"]),
        (matmul, _after(_mixed_loop, lambda s: s.rfactor("j_k")), ["'j_k'", "space and reduction of 'C'"]),
        (matmul, _after(_decomposed, lambda s: s.rfactor("k")), ["'C' has lost its init"]),
        (norm, _after(lambda s: s.compute_at("S", "Y_i"), lambda s: s.rfactor("S_r")), ["'S' shares its nest"]),
    ],
    "decompose_reduction": [
        (matmul, lambda s: s.decompose_reduction("D", "k"), ["no block 'D'"]),
        (matmul, lambda s: s.decompose_reduction("C", "z"), ["no loop 'z'"]),
        (chain, lambda s: s.decompose_reduction("P", "i"), ["block 'P' has no init"]),
        (norm, lambda s: s.decompose_reduction("S", "Y_i"), ["loop 'Y_i' is not around block 'S'"]),
        (
            matmul,
            _after(lambda s: s.reorder("k", "j"), lambda s: s.decompose_reduction("C", "j")),
            ["loop 'k' outside 'j'", "again"],
        ),
        (matmul, _after(_mixed_loop, lambda s: s.decompose_reduction("C", "j_k")), ["'j_k'", "space and reduction"]),
        (
            matmul,
            _after(_decomposed, lambda s: s.decompose_reduction("C", "k")),
            ["block 'C' has no init"],
        ),
    ],
    "transform_layout": [
        (matmul, lambda s: s.transform_layout("D", lambda i, j: (j, i)), ["no buffer 'D'"]),
        (matmul, lambda s: s.transform_layout("C", lambda i, j: (j, i)), ["'C' is an output", "cache_write"]),
        (matmul, lambda s: s.transform_layout("A", lambda i: (i,)), ["'A' has 2 dimensions"]),
        (matmul, lambda s: s.transform_layout("A", lambda i, j: (i,)), ["'A' loses the index"]),
        (matmul, lambda s: s.transform_layout("A", lambda i, j: (i, j, j)), ["'A'", "twice"]),
        (matmul, lambda s: s.transform_layout("A", lambda i, j: (i + 1, j)), ["not a digit", "'A'"]),
        (matmul, lambda s: s.transform_layout("A", lambda i, j: (i, j // 2)), ["'A'", "apart completely"]),
        (matmul, lambda s: s.transform_layout("A", lambda i, j: (i, j % 2)), ["'A'", "loses"]),
        (matmul, lambda s: s.transform_layout("A", lambda i, j: (i * 3 + j,)), ["not a digit", "'A'"]),
        (matmul, lambda s: s.transform_layout("A", lambda i, j: (i * 4 + j, j)), ["'A'", "twice"]),
        (matmul, lambda s: s.transform_layout("A", lambda i, j: (1.5, i, j)), ["1.5"]),
        (
            matmul,
            _after(
                lambda s: s.transform_layout("A", lambda i, k: (k, i)),
                lambda s: s.transform_layout("A", lambda k, i: (i, k)),
            ),
            ["input 'A'", "another layout already"],
        ),
    ],
    "widen": [
        (byte_matmul, lambda s: s.widen("D", "int16"), ["no buffer 'D'", "known: A, B, C"]),
        (byte_matmul, lambda s: s.widen("C", "int64"), ["'C' is an output", "cache_write"]),
        (byte_matmul, lambda s: s.widen("A", "short"), ["no type 'short'"]),
        (
            byte_matmul,
            lambda s: s.widen("A", "int8"),
            ["int8 is no wider type than uint8, that of 'A'", "accepted: int16, int32, int64, uint16"],
        ),
        (byte_matmul, lambda s: s.widen("A", "float32"), ["float32 is no wider type than uint8"]),
        (matmul, lambda s: s.widen("A", "float32"), ["no wider type than float32", "accepted: float64"]),
        (norm, lambda s: s.widen("S", "float64"), ["'S' adds to 'S'", "cache_read"]),
        (byte_matmul, _after(_tensorize, lambda s: s.widen("A", "int16")), ["uint8 A", "int16 'A'"]),
    ],
    "commute": [
        (matmul, lambda s: s.commute("D"), ["no block 'D'"]),
        (chain, lambda s: s.commute("P"), ["'P' does not reduce"]),
        (row_max, lambda s: s.commute("Y"), ["'Y' adds up 'X[vi, vr]'", "not a product"]),
        (matmul, _after(_blockize, lambda s: s.commute("tile")), ["block 'tile' holds other blocks"]),
    ],
    "reindex": [
        (matmul, lambda s: s.reindex("D", "A"), ["no block 'D'"]),
        (matmul, lambda s: s.reindex("C", "D"), ["no buffer of 'C' 'D'", "known: A, B, C"]),
        (matmul, lambda s: s.reindex("C", "A", name="B"), ["'B' is not a free name"]),
        (matmul, _after(_blockize, lambda s: s.reindex("tile", "A")), ["block 'tile' holds other blocks"]),
        (_two_places, lambda s: s.reindex("Y", "P"), ["'Y' reads 'P' at several places"]),
        (blur, _after(_compute_at, lambda s: s.reindex("Y", "P")), ["'P' is made by 'P'", "'Y'"]),
        (matmul, _after(_decomposed, lambda s: s.reindex("C", "C")), ["'C' is written by 'C_init' too"]),
        (_guarded_by_values, lambda s: s.reindex("Y", "X"), ["under a condition on 'M[vi]'"]),
    ],
    "transform_block_layout": [
        (matmul, lambda s: s.transform_block_layout("D", lambda i: (i,)), ["no block 'D'"]),
        (matmul, lambda s: s.transform_block_layout("C", lambda i, j: (i, j)), ["'C' has 3 iteration variables"]),
        (matmul, lambda s: s.transform_block_layout("C", lambda i, j, k: (i, j)), ["once", "'x2' is in no binding"]),
        (matmul, lambda s: s.transform_block_layout("C", lambda i, j, k: (i, j, k, k)), ["once", "every value"]),
        (matmul, lambda s: s.transform_block_layout("C", lambda i, j, k: (2 * i, j, k)), ["'x0*2'", "every value"]),
        (matmul, lambda s: s.transform_block_layout("C", lambda i, j, k: (i // 4, i % 4, j, k)), ["once", "below 6"]),
        (matmul, lambda s: s.transform_block_layout("C", lambda i, j, k: (i, j * 4 + k)), ["mixes space and red"]),
        (
            matmul,
            lambda s: s.transform_block_layout("C", lambda i, j, k: (j, i, k), names=["a", "a", "b"]),
            ["twice"],
        ),
        (matmul, lambda s: s.transform_block_layout("C", lambda i, j, k: (j, i, k), names=["a"]), ["1 names"]),
        (matmul, lambda s: s.transform_block_layout("C", lambda i, j, k: (j, i, k), names=["a", "b", "C"]), ["'C'"]),
        (
            matmul,
            _after(_tiles, lambda s: s.transform_block_layout("C", lambda i, j, k: (j, i, k))),
            ["have been changed already"],
        ),
        (
            blur,
            _after(_compute_at, lambda s: s.transform_block_layout("P", lambda i: (i // 2, i % 2))),
            ["have been changed already"],
        ),
        (matmul, _after(_blockize, lambda s: s.transform_block_layout("tile", lambda i: (i,))), ["other blocks"]),
    ],
    "unpad": [
        (matmul, lambda s: s.unpad("D"), ["no block 'D'"]),
        (matmul, lambda s: s.unpad("C"), ["'C' has no padding to take back"]),
        (matmul, _after(_blockize, lambda s: s.unpad("tile")), ["block 'tile' holds other blocks"]),
        (
            matmul,
            _after(lambda s: s.pad("C", {"vi": 4}), _after(_decomposed, lambda s: s.unpad("C"))),
            ["'C_pad' is set by 'C_init' too"],
        ),
    ],
    "decompose_padding": [
        (blur, lambda s: s.decompose_padding("D", "i"), ["no block 'D'"]),
        (blur, lambda s: s.decompose_padding("P", "z"), ["no loop 'z'"]),
        (blur, lambda s: s.decompose_padding("P", "Y_i"), ["loop 'Y_i' is not around block 'P'"]),
        (blur, lambda s: s.decompose_padding("Y", "Y_i"), ["'Y' is not a stage that pads"]),
        (chain, lambda s: s.decompose_padding("P", "i"), ["'P' does not store a constant", "P"]),
        (blur, _after(_compute_at, lambda s: s.decompose_padding("P", "Y_i_0")), ["'P' shares loop 'Y_i_0'"]),
        (
            blur,
            _after(lambda s: s.decompose_padding("P", "i"), lambda s: s.decompose_padding("P_fill", "P_fill_i")),
            ["'P' is written by 'P' too"],
        ),
    ],
    "pad": [
        (matmul, lambda s: s.pad("D", {"vi": 4}), ["no block 'D'"]),
        (matmul, lambda s: s.pad("C", {"i": 4}), ["no iteration variable of 'C' 'i'", "vi, vj, vk"]),
        (matmul, lambda s: s.pad("C", {"vi": 0}), ["0"]),
        (matmul, _after(lambda s: s.split("i", [None, 2]), lambda s: s.pad("C", {"vi": 4})), ["'C'", "pad first"]),
        (matmul, _after(lambda s: s.reorder("j", "i"), lambda s: s.pad("C", {"vi": 4})), ["'C'", "pad first"]),
        (
            matmul,
            _after(lambda s: s.decompose_reduction("C", "i"), lambda s: s.pad("C", {"vi": 4})),
            ["'C' adds to 'C'", "decompose_reduction"],
        ),
        (
            matmul,
            _after(
                lambda s: s.transform_block_layout("C", lambda i, j, k: (i, j, j * 0, k)),
                lambda s: s.pad("C", {"vunit": 2}),
            ),
            ["'C' does not store one element per iteration"],
        ),
        (row_max, lambda s: s.pad("Y", {"vr": 4}), ["'Y' is not a sum of products"]),
        (blur, lambda s: s.pad("Y", {"vi": 5}), ["P[vi + vr]", "padded"]),
        (matmul, _after(_blockize, lambda s: s.pad("tile", {"vio": 4})), ["block 'tile' holds other blocks"]),
    ],
    "round_up": [
        (matmul, lambda s: s.round_up("D", {"vi": 4}), ["no block 'D'"]),
        (matmul, lambda s: s.round_up("C", {"i": 4}), ["no iteration variable of 'C' 'i'", "vi, vj, vk"]),
        (matmul, _after(lambda s: s.split("i", [None, 2]), lambda s: s.round_up("C", {"vi": 4})), ["changed already"]),
        (matmul, lambda s: s.round_up("C", {"vi": 4}), ["'A[vi, vk]' has no room in 'A' (6, 4)", "rounds the size up"]),
        (
            matmul,
            _after(
                lambda s: s.transform_layout("A", lambda i, k: (i // 4, k, i % 4)), lambda s: s.round_up("C", {"vi": 4})
            ),
            ["'C' is an output", "cache_write"],
        ),
        (half_product, lambda s: s.round_up("C", {"vk": 8}), ["not a sum of products", "zero for vk >= 4"]),
        (
            matmul,
            _after(
                lambda s: s.transform_block_layout("C", lambda i, j, k: (i, i * 0, j, k)),
                lambda s: s.round_up("C", {"vunit": 3}),
            ),
            ["'C' stores nothing new for vunit"],
        ),
        (matmul, _after(_blockize, lambda s: s.round_up("tile", {"vio": 4})), ["block 'tile' holds other blocks"]),
    ],
    "blockize": [
        (matmul, lambda s: s.blockize("z"), ["no loop 'z'"]),
        (blur, _after(_compute_at, lambda s: s.blockize("Y_i_0")), ["loop 'Y_i_0' holds 2 blocks"]),
        (matmul, _after(_blockize, lambda s: s.blockize("i_0")), ["'i_0'"]),
        (matmul, lambda s: s.blockize("j", name="C"), ["'C' is not a free block name"]),
        (matmul, _after(_turned, lambda s: s.blockize("j_0")), ["'j_0*4 + j_1' of block 'C'", "tile 5"]),
    ],
    "tensorize": [  # more of them in tests/intrinsics
        (byte_matmul, lambda s: s.tensorize("j", "avx2_u8s8_8x4"), ["has loop j of extent 8, the loop 'j' 16"]),
    ],
}


CASES = [(name, number) for name, cases in REFUSED.items() for number in range(len(cases))]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_refused(name: str, number: int) -> None:
    make, steps, words = REFUSED[name][number]
    with pytest.raises(ScheduleError) as caught:
        steps(Schedule(make()))
    message = str(caught.value)
    assert message.startswith(f"{name}: ")
    for word in words:
        assert word in message


def test_every_primitive_refuses_something() -> None:
    assert REFUSED.keys() == PRIMITIVES.keys() and all(words for cases in REFUSED.values() for _, _, words in cases)


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_wrong_arguments_are_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match=f"^{name}: .*argument.*; it takes"):
        PRIMITIVES[name](matmul(), nonsense=1)


def test_a_refusal_leaves_the_schedule_as_it_was() -> None:
    s = Schedule(matmul())
    s.split("i", [None, 2])
    before = s.program
    with pytest.raises(ScheduleError):
        s.split("j", [None, 3])
    assert s.program is before


def test_reads_beyond_a_run_time_size_are_guarded() -> None:
    s = Schedule(matmul(m=size("m")))
    s.split("i", [None, 4], tail=True)
    assert str(s.program.blocks["C"].predicate) == "i_0*4 + i_1 < m"
