"""Schedules that draw, the traces they record, and their replay."""

from __future__ import annotations

import math

import numpy as np
import pytest

from searchlab.errors import ConstraintError, ScheduleError, SpaceError, TraceError
from searchlab.ir.expr import size
from searchlab.ir.program import Program
from searchlab.schedule import Schedule
from searchlab.search import Task
from searchlab.targets import detect
from searchlab.workloads import workload
from spaces.probabilistic import (
    Decision,
    ProbabilisticSchedule,
    ProbabilisticSpace,
    Trace,
    replay,
)
from spaces.probabilistic.branching import branches

DENSE = Task(workload("dense", m=24, n=32, k=16, activation="relu"), detect())


def tiled(s: ProbabilisticSchedule) -> None:
    i, j, k = s.loops("C")
    i0, i1, i2 = s.split(i, s.sample_perfect_tile(i, 3))
    j0, j1 = s.split(j, s.sample_perfect_tile(j, 2))
    s.reorder(i0, j0, i1, k, i2, j1)
    s.vectorize(j1)
    s.annotate("C", "unroll_up_to", s.sample_categorical([0, 16, 64], [0.5, 0.25, 0.25], name="unroll"))
    s.reverse_compute_at("Y", j0)


def placed(s: ProbabilisticSchedule) -> list[ProbabilisticSchedule]:
    j = s.loops("Y")[1]
    s.split(j, s.sample_perfect_tile(j, 2, name="j"))
    s.compute_at("C", s.sample_compute_location("C"))
    return [s]


def recorded(program: Program = DENSE.program) -> ProbabilisticSchedule:
    s = ProbabilisticSchedule(program)
    tiled(s)
    return s


def test_inputs_are_variables_not_values() -> None:
    text = str(recorded().trace)
    assert "%1, %2, %3 = get_loops(block=%0)" in text
    assert "split(loop=%1, factors=(None, i1, i2)" in text
    assert "value=unroll" in text
    assert "i_0" not in text  # names of loops are found when the trace runs


def test_replay_is_the_schedule_by_hand() -> None:
    trace = recorded().trace.with_decision("i", (2, 3, 4)).with_decision("j", (4, 8)).with_decision("unroll", 1)
    s = Schedule(DENSE.program)
    i, j, k = s.loops("C")
    i0, i1, i2 = s.split(i, [None, 3, 4])
    j0, j1 = s.split(j, [None, 8])
    s.reorder(i0, j0, i1, k, i2, j1)
    s.vectorize(j1)
    s.annotate("C", "unroll_up_to", 16)
    s.reverse_compute_at("Y", j0)
    assert str(replay(DENSE.program, trace).program) == str(s.program)


def test_decisions_are_reused_and_missing_ones_drawn() -> None:
    trace = recorded().trace.with_decision("i", (2, 3, 4))
    rng = np.random.default_rng(0)
    done = [replay(DENSE.program, trace, rng).trace for _ in range(20)]
    assert {t.decisions["i"].value for t in done} == {(2, 3, 4)}
    assert len({t.decisions["j"].value for t in done}) > 1
    with pytest.raises(SpaceError, match="no random generator"):
        replay(DENSE.program, trace)


def test_json_gives_the_same_program() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        done = replay(DENSE.program, recorded().trace.without_decisions(), rng)
        again = Trace.from_json(done.trace.to_json())
        assert again == done.trace
        assert replay(DENSE.program, again).program.hash == done.program.hash


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"instructions": [["split"]], "decisions": {}}',
        '{"instructions": 3}',
        '{"instructions": [["sample_categorical", ["tuple"], ["tuple"], ["tuple"]]], "decisions": {}}',
    ],
)
def test_bad_json_is_refused(text: str) -> None:
    with pytest.raises(TraceError):
        Trace.from_json(text)


def test_replay_on_another_size_repairs() -> None:
    trace = recorded().trace.with_decision("i", (2, 3, 4)).with_decision("j", (4, 8)).with_decision("unroll", 2)
    other = workload("dense", m=30, n=36, k=5, activation="relu").program
    done = replay(other, trace)
    assert done.trace.decisions["i"].value == (1, 1, 30)  # 4 does not divide 30
    assert done.trace.decisions["j"].value == (1, 36)
    assert done.trace.decisions["unroll"].value == 2
    assert done.program.loops["j_1"].extent.value == 36  # type: ignore[attr-defined]


def test_a_change_upstream_reaches_what_depends_on_it() -> None:
    def twice(s: ProbabilisticSchedule) -> None:
        _, inner = s.split(s.loops("C")[0], s.sample_perfect_tile("i", 2, None, name="outer"))
        s.split(inner, s.sample_perfect_tile(inner, 2, None, name="inner"))

    space = ProbabilisticSpace(program=twice).space(DENSE)
    assert space.size.valid == sum(sum(e % f == 0 for f in range(1, 25)) for e in range(1, 25) if 24 % e == 0)
    point = space.chosen({"sketch": "plain", "knobs": {"outer": [2, 12], "inner": [3, 4]}})
    trace = space.trace(point).with_decision("outer", (4, 6))
    done = replay(DENSE.program, trace)
    assert done.trace.decisions["inner"].value == (1, 6)  # 4 does not divide 6
    assert space.program(space.point_of(done.trace)).hash == done.program.hash
    for p in space.sample(8, np.random.default_rng(0)):
        assert replay(DENSE.program, space.trace(p)).program.hash == space.program(p).hash


def test_extents_that_are_no_constants_are_not_tiled() -> None:
    program = workload("dense", m=size("m"), n=32, k=16, activation="relu").program
    s = recorded(program)
    assert "factors=(None, 1, 1)" in str(s.trace)
    done = replay(program, s.trace, np.random.default_rng(0))
    assert done.trace.decisions["i"].value == (-1, 1, 1)
    assert math.isfinite(done.trace.log_prior)
    fixed = recorded().trace.with_decision("i", (2, 3, 4)).with_decision("j", (4, 8)).with_decision("unroll", 2)
    assert replay(program, fixed).trace.decisions["i"].value == (-1, 1, 1)


def test_places_are_drawn_and_repaired() -> None:
    found, rejected = branches(ProbabilisticSchedule(DENSE.program), placed, 64)
    assert [s.decisions["C_place"].value for s in found] == [-1, 0, 1, 2] and not rejected
    trace = found[0].trace.with_decision("j", (4, 8))
    hashes = {}
    for place, after in [(-2, -1), (-1, -1), (0, 0), (1, 1), (2, 2), (9, 2)]:
        done = replay(DENSE.program, trace.with_decision("C_place", place))
        assert done.trace.decisions["C_place"] == Decision(after, (-1, 0, 1, 2))
        hashes.setdefault(after, done.program.hash)
        assert hashes[after] == done.program.hash
    assert len(set(hashes.values())) == 4


def test_a_place_that_later_steps_do_not_fit_is_rejected() -> None:
    found, _ = branches(ProbabilisticSchedule(DENSE.program), placed, 64)
    s = found[0]
    s.vectorize(s.loops("C")[-1])
    trace = s.trace.with_decision("j", (4, 8))
    assert replay(DENSE.program, trace)
    with pytest.raises(ScheduleError, match="get_loops: 5 results where the trace had 3"):
        replay(DENSE.program, trace.with_decision("C_place", 1))


def test_prior() -> None:
    trace = recorded().trace.with_decision("i", (2, 3, 4)).with_decision("j", (4, 8)).with_decision("unroll", 0)
    assert trace.log_prior == pytest.approx(-math.log(30) - math.log(6) + math.log(0.5))
    assert trace.with_decision("unroll", 1).log_prior == pytest.approx(trace.log_prior - math.log(2))
    with pytest.raises(SpaceError, match="draw 'i' has no decision"):
        _ = recorded().trace.log_prior


def test_simplified_drops_what_is_dead_and_the_tail() -> None:
    s = recorded()
    s.sample_categorical([1, 2, 3], name="idle")
    s.enter_postprocessing()
    s.annotate("Y", "unroll_up_to", 4)
    short = s.trace.simplified()
    assert "idle" in str(s.trace) and "idle" not in str(short)
    assert "unroll_up_to, value=4" not in str(short) and "postprocessing" not in str(short)
    assert short.structure == recorded().trace.simplified().structure
    assert short.simplified() == short


def test_a_draw_that_nothing_uses_is_no_knob() -> None:
    def program(s: ProbabilisticSchedule) -> None:
        _, inner = s.split(s.loops("C")[0], s.sample_perfect_tile("i", 2))
        s.sample_perfect_tile(inner, 2, name="idle")
        s.sample_categorical([1, 2], name="idle_too")

    space = ProbabilisticSpace(program=program).space(DENSE)
    assert [k.name for k in space.sketches[0].knobs] == ["i"]
    point = space.sample(1, np.random.default_rng(0))
    assert space.point_of(space.trace(point)) == point


def test_what_is_left_of_a_split_stage_makes_no_difference() -> None:
    def program(s: ProbabilisticSchedule) -> None:
        i = s.loops("C")[0]
        s.split(i, s.sample_perfect_tile(i, 2))
        s.split(s.loops("Y")[1], s.sample_perfect_tile(s.loops("Y")[1], 2, name="j"))
        s.compute_at("C", s.loops("Y")[0])  # the loops of C are made anew, without the split

    space = ProbabilisticSpace(program=program).space(DENSE)
    assert [k.name for k in space.sketches[0].knobs] == ["j"]
    for point in space.enumerate():
        assert replay(DENSE.program, space.trace(point)).program.hash == space.program(point).hash


def test_unknown_draws_are_refused() -> None:
    with pytest.raises(SpaceError, match="no draw 'unrol'; did you mean 'unroll'"):
        recorded().trace.with_decision("unrol", 1)


def test_a_structural_draw_cannot_be_changed_in_a_trace() -> None:
    s = ProbabilisticSchedule(DENSE.program)
    assert s.sample_categorical(["a", "b"], name="way") == "a"
    with pytest.raises(SpaceError, match="take another sketch"):
        s.trace.with_decision("way", 1)
    with pytest.raises(SpaceError, match="its decision is gone"):
        replay(DENSE.program, Trace(tuple(s.instructions), {}))


@pytest.mark.parametrize(
    ("candidates", "probs", "message"),
    [([], None, "no candidates"), ([1, 2], [0.5], "as many probabilities"), ([1, 2], [0.5, 0.6], "add up to 1")],
)
def test_bad_probabilities_are_refused(candidates: list[int], probs: list[float] | None, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        ProbabilisticSchedule(DENSE.program).sample_categorical(candidates, probs)


def test_requirements_reject() -> None:
    s = recorded()
    s.require(s.program.loops["i_2"].extent * s.program.loops["j_1"].extent <= 32)
    trace = s.trace.with_decision("i", (2, 3, 4)).with_decision("unroll", 0)
    assert replay(DENSE.program, trace.with_decision("j", (4, 8)))
    with pytest.raises(ConstraintError, match="<= 32"):
        replay(DENSE.program, trace.with_decision("j", (2, 16)))


def test_a_trace_of_another_program_is_rejected() -> None:
    other = workload("softmax", rows=8, cols=8).program
    with pytest.raises((ScheduleError, TraceError)):
        replay(other, recorded().trace, np.random.default_rng(0))


def test_what_is_not_there_cannot_be_drawn_for() -> None:
    with pytest.raises(ScheduleError, match="no loop 'z'"):
        ProbabilisticSchedule(DENSE.program).sample_perfect_tile("z", 2)
    with pytest.raises(ScheduleError, match="no block 'Z'"):
        ProbabilisticSchedule(DENSE.program).sample_compute_location("Z")


def test_factors_of_one_loop_for_another() -> None:
    s = ProbabilisticSchedule(DENSE.program)
    tile = s.sample_perfect_tile("i", 2)
    s.split("i", tile)
    s.split(s.loops("Y")[0], tile)  # the same extent: worked out
    assert "factors=(i0, i1)" not in str(s.trace)
    s.split("j", tile)  # another: the product must be 32, and is not
    with pytest.raises(ConstraintError, match="i0\\*i1 == 32"):
        replay(DENSE.program, s.trace, np.random.default_rng(0))
