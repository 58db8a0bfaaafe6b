"""Schedules found at one size on programs whose size is known at run time: what is taken over, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from searchlab.errors import ScheduleError
from searchlab.ir import interpret, knob
from searchlab.ir.program import Program
from searchlab.schedule import Schedule
from searchlab.schedule.transfer import transfer
from searchlab.search import SPACES, Sketch, Task
from searchlab.targets import parse as target
from searchlab.workloads import workload

SMALL = workload("matmul", m=12, n=8, k=4)
ANY = workload("matmul", m="?", n=8, k=4)


def tiled(program: Program) -> Schedule:
    s = Schedule(program)
    i, j, _ = s.loops("C")
    i0, i1 = s.split(i, [knob("a"), knob("b")])
    s.reorder(i0, j, i1)
    s.vectorize(i1)
    return s


def test_splits_of_the_run_time_extent_get_a_tail() -> None:
    found = transfer(tiled(SMALL.program).program, ANY.program)
    assert found.sizes == ("m",) and not found.assumptions
    fixed = found.substitute({"b": 4})
    for m in (1, 3, 4, 13):
        inputs = ANY.inputs(m=m)
        assert ANY.check(interpret(fixed, inputs, {"m": m}), inputs) is None


def test_fixed_extents_are_split_as_they_were() -> None:
    s = Schedule(SMALL.program)
    _, j, _ = s.loops("C")
    s.split(j, [None, knob("t")])
    found = transfer(s.program, ANY.program)
    assert found.assumptions and [str(a) for a in found.assumptions] == [str(a) for a in s.program.assumptions]
    assert found.substitute({"t": 4}).loops["j_1"].extent.value == 4


def test_a_layout_for_one_size_is_refused() -> None:
    """`i * 12 + j` with the 12 of one size is no flat index for any other."""
    w = workload("batch_matmul", batch=3, m=12, n=8, k=4)
    s = Schedule(w.program)
    s.cache_read("C", "A")
    s.transform_layout("A_local", lambda b, i, k: (b * 12 + i, k))
    assert transfer(s.program, workload("batch_matmul", batch="?", m=12, n=8, k=4).program)
    with pytest.raises(ScheduleError, match="step 1 of 2 cannot be taken: transform_layout: .* is not a digit"):
        transfer(s.program, workload("batch_matmul", batch=3, m="?", n=8, k=4).program)


def test_what_assumes_something_of_the_size_is_refused() -> None:
    s = Schedule(SMALL.program)
    i, _, _ = s.loops("C")
    i0, i1 = s.split(i, [3, 4])
    s.fuse(i0, i1)
    s.split("i_0_i_1", [None, knob("t")])
    assert transfer(s.program, ANY.program).sizes == ("m",)
    assumed = Schedule(ANY.program)
    assumed.split("i", [None, 4])
    with pytest.raises(ScheduleError, match="would rely on 'm % 4 == 0'"):
        _refuse_assumptions(assumed.program)


def _refuse_assumptions(program: Program) -> None:
    """Takes a step after one that has assumed something of the size."""
    s = Schedule(SMALL.program)
    s.vectorize("j")
    transfer(s.program, program)


def test_a_program_without_steps_is_refused() -> None:
    with pytest.raises(ScheduleError, match="not made by schedule primitives"):
        transfer(SMALL.program, ANY.program)


@pytest.mark.parametrize("name", ["template", "sketch", "task-mapping", "probabilistic"])
def test_the_same_size_gives_the_same_program(name: str) -> None:
    task = Task(workload("dense", m=12, n=32, k=16, activation="relu"), target("x86-64-v3"))
    space = SPACES.make(name).space(task)
    for point in space.sample(6, np.random.default_rng(1)):
        sketch = space.sketches[int(point.sketch[0])]
        assert sketch.program is not None
        again = Sketch(sketch.name, sketch.knobs, (), transfer(sketch.program, task.program))
        values = {s: int(v[0]) for s, v in space.values(point).items() if s in sketch.symbols}
        assert again.substitute(values).hash == space.program(point).hash
