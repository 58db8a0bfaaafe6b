"""Traces: what was done to a program, written as JSON, repeats exactly on the fresh program, here and elsewhere."""

import json
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from searchlab.errors import ScheduleError, TraceError
from searchlab.ir import Program, knob
from searchlab.schedule import PRIMITIVES, Schedule, replay, trace_json
from searchlab.workloads import parse


def loops_of_all_kinds(s: Schedule) -> None:
    i0, i1 = s.split("i", [None, 3], tail=True)
    j0, j1, j2 = s.split("j", (2, None, 2), names=["a", "b", "c"])
    s.reorder(i0, j0, "k", j1, i1, j2)
    ij = s.fuse(i0, j0, name="outer")
    s.parallel(ij)
    s.vectorize(j2)
    s.unroll(i1)
    s.annotate("C", "unroll_up_to", 16)
    s.annotate(ij, "note", "shared by threads")


def packing(s: Schedule) -> None:
    s.cache_read("C", "B")
    s.transform_layout("B_local", lambda k, j: (j // 4, k, j % 4))
    s.transform_layout("A", lambda i, k: (i * 6 + k,))
    j0, j1 = s.split("j", [None, 4])
    s.reorder(j0, "i", "k", j1)
    s.compute_at("B_local", j0)
    s.cache_write("C", scope="shared", name="tile")
    s.reverse_compute_at("C_store", "i")


def padding(s: Schedule) -> None:
    s.pad("C", {"vi": 4, "vk": 5})
    s.decompose_reduction("C", "k")
    s.split("i", [None, 4])
    s.bind("i_0", "blockIdx.y")


def partial_sums(s: Schedule) -> None:
    s.split("k", [None, 2])
    s.rfactor("k_1", axis=2, name="partial")
    s.blockize("k_0", name="inner")


def symbols(s: Schedule) -> None:
    s.pad("C", {"vi": knob("t") * 3})
    s.split("i", [None, knob("t")])
    s.split("j", [knob("a"), knob("b")])
    s.split("k", [None, knob("u")], tail=True)
    s.annotate("C", "unroll_up_to", knob("step"))
    s.choose_kind("i_0", ["serial", "parallel", "unrolled"], knob("how"))
    s.choose_kind("k_1", ["serial", "unrolled"], 1)
    s.prefetch("C", "A_pad", "k_0", knob("far"))
    s.cache_read("C", "B")
    s.transform_layout("B_local", lambda k, j: (j // knob("b"), k, j % knob("b")))


def matrix_product(s: Schedule) -> None:
    s.decompose_padding("P", "h")
    for operand in ("P", "W", "Y"):
        s.reindex("Y", operand)
    s.transform_block_layout(
        "Y", lambda n, c, h, w, ci, kh, kw: (n * 12 + h * 4 + w, c, ci * 9 + kh * 3 + kw), names=["x", "y", "k"]
    )
    s.transform_layout("P_reindex", lambda n, h, w, ci, kh, kw: (n * 12 + h * 4 + w, ci * 9 + kh * 3 + kw))
    s.transform_layout("W_reindex", lambda c, ci, kh, kw: (c, ci * 9 + kh * 3 + kw))
    s.transform_layout("Y_reindex", lambda n, c, h, w: (n * 12 + h * 4 + w, c))
    s.pad("Y", {"vy": 4, "vk": 4})
    s.split("y", [None, 4])
    s.unpad("Y")
    s.commute("Y")


def inlining(s: Schedule) -> None:
    s.compute_inline("T1")
    s.reverse_compute_inline("Y")


def instructions(s: Schedule) -> None:
    s.transform_layout("B", lambda k, j: (k // 4, j, k % 4))
    s.tensorize("j", "avx2_u7s8_8x4", ranges={"A": (0, 100)})


def rounding(s: Schedule) -> None:
    s.transform_layout("B", lambda k, j: (k // 4, j, k % 4))
    s.transform_layout(s.cache_read("C", "A"), lambda i, k: (i, k // 4, k % 4))
    s.round_up("C", {"vk": 4})


def widening(s: Schedule) -> None:
    s.transform_layout("B", lambda k, j: (k // 2, j, k % 2))
    s.widen("B", "int16")
    s.widen(s.cache_read("C", "A"), "int16")


CASES: dict[str, tuple[str, Callable[[Schedule], None]]] = {
    "loops": ("matmul:m=8,n=16,k=6", loops_of_all_kinds),
    "packing": ("matmul:m=8,n=16,k=6", packing),
    "padding": ("matmul:m=7,n=16,k=6", padding),
    "partial sums": ("matmul:m=8,n=16,k=6", partial_sums),
    "symbols": ("matmul:m=8,n=16,k=6", symbols),
    "matrix product": ("conv2d:ci=2,co=3,h=3,w=4,padding=1", matrix_product),
    "inlining": ("elementwise:rows=4,cols=6,ops=add,relu,neg", inlining),
    "instructions": ("matmul:m=8,n=8,k=4,dtype=uint8", instructions),
    "rounding": ("matmul:m=8,n=8,k=3,dtype=uint8", rounding),
    "widening": ("matmul:m=8,n=8,k=3,dtype=uint8", widening),
}


def scheduled(name: str) -> tuple[Program, Program]:
    spec, steps = CASES[name]
    s = Schedule(parse(spec).program)
    steps(s)
    return parse(spec).program, s.program


@pytest.mark.parametrize("name", CASES)
def test_replay_gives_the_identical_program(name: str) -> None:
    fresh, done = scheduled(name)
    text = trace_json(done)
    again = replay(fresh, text)
    assert str(again) == str(done) and again.hash == done.hash
    assert again == done and trace_json(again) == text  # and the trace of a replay is the trace


def test_json_of_traces_is_stable(golden: Callable[[str, str], None]) -> None:
    """Traces that were written by one version are replayed by the next."""
    golden("schedule/traces.jsonl", "".join(f"{trace_json(scheduled(name)[1])}\n" for name in CASES))


def test_the_cases_use_every_primitive() -> None:
    assert {step.name for name in CASES for step in scheduled(name)[1].trace} == set(PRIMITIVES)


def test_a_trace_is_read_in_another_process() -> None:
    _, done = scheduled("packing")
    code = f"""
from searchlab.schedule import replay
from searchlab.workloads import parse
print(replay(parse("matmul:m=8,n=16,k=6").program, {trace_json(done)!r}).hash)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert found == done.hash


def test_a_trace_continues_where_it_stopped() -> None:
    fresh, done = scheduled("loops")
    steps = json.loads(trace_json(done))
    half = replay(fresh, json.dumps(steps[:4]))
    assert replay(half, json.dumps(steps[4:])) == done


def test_a_trace_of_a_concrete_shape_fits_another_shape() -> None:
    _, done = scheduled("packing")
    other = parse("matmul:m=5,n=12,k=6").program
    again = replay(other, trace_json(done))
    assert [str(again.loops[n].extent) for n in ("j_0", "i", "k", "j_1")] == ["3", "5", "6", "4"]


def test_nothing_done_is_an_empty_trace() -> None:
    p = parse("matmul:m=8,n=16,k=6").program
    assert trace_json(p) == "[]" and replay(p, "[]") is p


def test_numpy_integers_can_be_factors() -> None:
    s = Schedule(parse("matmul:m=8,n=16,k=6").program)
    s.split("i", [None, np.int64(4)])
    s.annotate("C", "unroll_up_to", np.int32(8))
    assert replay(parse("matmul:m=8,n=16,k=6").program, trace_json(s.program)).hash == s.program.hash


def test_steps_know_what_they_made() -> None:
    _, done = scheduled("packing")
    assert [(t.name, t.made) for t in done.trace[:2]] == [("cache_read", ("B_local",)), ("transform_layout", ())]
    assert done.trace[3].made == ("j_0", "j_1")


@pytest.mark.parametrize(
    "text",
    ["", "{", "3", "null", '"split"', "[1]", '[["split"]]', '[["split", []]]', '[["split", {"loop": ["Nothing", 1]}]]'],
)
def test_what_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(TraceError, match="^not a trace"):
        replay(parse("matmul:m=8,n=16,k=6").program, text)


def test_an_unknown_primitive_is_refused() -> None:
    text = '[["split", {"loop": "i", "factors": ["tuple", null, 2]}], ["skew", {"loop": "i"}]]'
    with pytest.raises(TraceError, match="step 1: unknown primitive 'skew'; known: annotate, bind"):
        replay(parse("matmul:m=8,n=16,k=6").program, text)


@pytest.mark.parametrize(
    "text",
    [
        '[[["split"], {}]]',
        '[["fuse", {"loops": 5}]]',
        '[["split", {"loop": "i", "factors": 3}]]',
        '[["pad", {"block": "C", "multiples": ["tuple", 1]}]]',
    ],
)
def test_arguments_of_the_wrong_type_are_refused(text: str) -> None:
    with pytest.raises((TraceError, ScheduleError)):
        replay(parse("matmul:m=8,n=16,k=6").program, text)


@pytest.mark.parametrize(
    ("name", "other", "words"),
    [
        ("loops", "softmax:rows=4,cols=6", ["split", "'j'", "6"]),
        ("packing", "matmul:m=8,n=18,k=6", ["split", "'j'", "18"]),
        ("packing", "elementwise:rows=8,cols=16", ["cache_read", "'C'"]),
        ("inlining", "matmul:m=8,n=16,k=6", ["compute_inline", "no block 'T1'"]),
        ("padding", "reduce:shape=8x16,op=max", ["pad", "no block 'C'"]),
    ],
)
def test_a_trace_that_does_not_fit_is_refused(name: str, other: str, words: list[str]) -> None:
    _, done = scheduled(name)
    with pytest.raises(ScheduleError) as caught:
        replay(parse(other).program, trace_json(done))
    for word in words:
        assert word in str(caught.value)


def test_missing_and_surplus_arguments_are_refused() -> None:
    p = parse("matmul:m=8,n=16,k=6").program
    with pytest.raises(ScheduleError, match="^split: missing a required argument: 'factors'"):
        replay(p, '[["split", {"loop": "i"}]]')
    with pytest.raises(ScheduleError, match="^unroll: got an unexpected keyword argument 'by'"):
        replay(p, '[["unroll", {"loop": "i", "by": 2}]]')
