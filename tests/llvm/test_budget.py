"""The budget of code generation: what LLVM would take too long for is refused before LLVM sees it."""

import pytest

from searchlab.backend import build
from searchlab.errors import BuildError
from searchlab.ir.program import Program
from searchlab.llvm import jit, ssa
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.measure import Job
from searchlab.measure.local import LocalMeasurer
from searchlab.schedule import Schedule
from searchlab.search import SPACES, Task
from searchlab.targets import parse as target
from searchlab.workloads import Workload, parse

MACHINE = target("x86-64-v3")


def unrolled(w: Workload, copies: int) -> Program:
    """A chain of elementwise stages as one stage, so many copies of which are written out."""
    s = Schedule(w.program)
    for name in list(s.program.blocks)[:-1]:
        s.compute_inline(name)
    i, j = s.loops(list(s.program.blocks)[-1])
    outer, inner = s.split(i, [None, copies])
    columns, lanes = s.split(j, [None, 8])
    s.reorder(outer, columns, inner, lanes)
    s.unroll(inner)
    s.vectorize(lanes)
    return s.program


# 120,000 instructions in a row, for which LLVM takes most of a minute
HUGE = parse("elementwise:rows=1024,cols=64,ops=gelu,tanh,exp,sigmoid,gelu")


def test_a_stall_becomes_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "compile_ir", lambda *_: pytest.fail("LLVM was asked to compile it"))
    with pytest.raises(BuildError, match=r"elementwise: .* more than 48,000 instructions in a row.*limit.*unroll less"):
        build(unrolled(HUGE, 512), MACHINE)


def test_many_short_stretches_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = lower(parse("matmul:m=64,n=64,k=64").program, MACHINE)
    size = sum(line.startswith("  ") for line in generate(lowered, MACHINE).ir.splitlines())
    monkeypatch.setattr(ssa, "MOST_INSTRUCTIONS", size)
    generate(lowered, MACHINE)
    monkeypatch.setattr(ssa, "MOST_INSTRUCTIONS", size // 2)
    with pytest.raises(
        BuildError, match=f"matmul: its code has more than {size // 2} instructions, which is the limit"
    ):
        generate(lowered, MACHINE)


def test_measuring_it_is_a_build_failure() -> None:
    job = Job("huge", HUGE, MACHINE, unrolled(HUGE, 512))
    with LocalMeasurer() as measurer:
        (outcome,) = measurer.measure([job])
    assert outcome.status == "build" and "instructions in a row" in outcome.error
    assert "environment" not in outcome.notes  # it is the candidate's own fault
    assert outcome.build_s < 10


def test_large_candidates_of_the_spaces_are_within() -> None:
    task = Task(parse("max_pool2d:c=64,h=112,w=112,k=3,padding=1"), MACHINE)
    space = SPACES.make("sketch").space(task)
    knobs = {"Y_r": [9, 1, 1], "P_v": [113, 1], "Y_rf_v": [4, 14], "unroll": 512}
    point = space.chosen({"sketch": "rfactor_outer(Y)/P@kh_kw_0", "knobs": knobs})
    code = generate(lower(space.program(point), task.target), task.target)
    assert code.ir.count("\n") > 25_000
