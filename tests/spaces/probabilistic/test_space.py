"""Points as traces and traces as points, their moves and their prior."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from searchlab.errors import SearchLabError, SpaceError
from searchlab.ir.verify import verify
from searchlab.search import Points, Task
from searchlab.testing import check_point
from spaces.probabilistic import (
    MutateComputeLocation,
    MutateTileSize,
    MutateUnroll,
    ProbabilisticSchedule,
    ProbabilisticSpace,
    Trace,
    TraceSpace,
    replay,
)
from spaces.probabilistic.mutators import mutate

SpaceOf = Callable[..., TraceSpace]
TaskOf = Callable[..., Task]


@pytest.mark.parametrize("name", ["matmul", "dense", "l2_norm", "softmax", "depthwise_conv2d"])
def test_points_and_traces_lead_to_each_other(name: str, space: SpaceOf, task: TaskOf) -> None:
    here, plain = space(name), task(name).program
    for point in here.sample(3, np.random.default_rng(0)):
        trace = Trace.from_json(here.trace(point).to_json())
        done = replay(plain, trace)
        assert done.program.hash == here.program(point).hash
        assert done.trace == trace
        assert here.point_of(trace) == point
        assert here.complete(trace.simplified()) == trace
        assert here.log_prior(point)[0] == pytest.approx(trace.log_prior)


def test_every_structure_replays_without_decisions(space: SpaceOf, task: TaskOf) -> None:
    here, plain = space("dense"), task("dense").program
    rng = np.random.default_rng(0)
    for structure in here.structures:
        drawn = here.complete(structure.trace.simplified().without_decisions(), rng)
        assert replay(plain, drawn).program.hash == here.program(here.point_of(drawn)).hash


def _mutants(here: TraceSpace, count: int, rng: np.random.Generator) -> tuple[list[Trace], int]:
    """Traces after a random walk of single mutations, and how many mutations were rejected."""
    traces = [here.trace(p) for p in here.sample(8, rng)]
    found, rejected = [], 0
    for n in range(count):
        try:
            changed = here.mutate_trace(traces[n % 8], rng)
        except SearchLabError:
            rejected += 1
            continue
        if changed is not None:
            traces[n % 8] = changed
            found.append(changed)
    return found, rejected


@pytest.mark.parametrize("name", ["matmul", "dense", "l2_norm", "softmax", "depthwise_conv2d"])
def test_mutated_traces_are_valid_or_rejected(name: str, space: SpaceOf, task: TaskOf) -> None:
    here, plain = space(name), task(name).program
    rng = np.random.default_rng(0)
    found, rejected = _mutants(here, 200, rng)
    assert len(found) + rejected == 200 and len(found) >= 180
    points = Points.concat([here.point_of(t) for t in found])
    assert here.valid(points).all()
    for point in points[::4]:
        verify(here.program(point))
    for trace, point in list(zip(found, points, strict=True))[::60]:
        program = check_point(here, point, task(name))
        assert replay(plain, trace).program.hash == program.hash


def test_mutators_change_what_they_say(space: SpaceOf) -> None:
    here = space("depthwise_conv2d")
    rng = np.random.default_rng(0)
    trace = here.trace(here.sample(1, rng))
    for mutator, ending in [(MutateTileSize(), None), (MutateUnroll(), "unroll"), (MutateComputeLocation(), "_place")]:
        for _ in range(20):
            changed = mutator.apply(trace, rng)
            assert changed is not None
            (name,) = [n for n in trace.decisions if changed.decisions[n] != trace.decisions[n]]
            assert name.endswith(ending) if ending else isinstance(changed.decisions[name].value, tuple)
            if ending is None:
                old, new = trace.decisions[name].value, changed.decisions[name].value
                assert isinstance(old, tuple) and isinstance(new, tuple) and np.prod(old) == np.prod(new)
                assert sum(a != b for a, b in zip(old, new, strict=True)) == 2 and new[-1] <= 64


def test_nothing_to_change() -> None:
    empty = Trace((), {})
    rng = np.random.default_rng(0)
    assert all(m.apply(empty, rng) is None for m in (MutateTileSize(), MutateUnroll(), MutateComputeLocation()))
    assert mutate(empty, [MutateTileSize()], rng) is None


def test_shares_of_the_mutators_hold_for_populations(space: SpaceOf) -> None:
    here = space("depthwise_conv2d")
    rng = np.random.default_rng(0)
    points = here.sample(20_000, rng)
    moved = here.mutate(points, rng)
    assert here.valid(moved).all()
    same = points.sketch == moved.sketch
    assert (~same).mean() == pytest.approx(0.05, abs=0.01)
    kinds: Counter[str] = Counter()
    for s, sketch in enumerate(here.sketches):
        rows = same & (points.sketch == s)
        which = np.argmax(points.options[rows] != moved.options[rows], axis=1)
        kinds.update(sketch.knobs[k].name.endswith("unroll") and "unroll" or "tile" for k in which.tolist())
    assert kinds["unroll"] / kinds.total() == pytest.approx(0.03 / 0.93, abs=0.01)


def test_prior_of_a_population_is_that_of_its_traces(task: TaskOf) -> None:
    def program(s: ProbabilisticSchedule) -> None:
        i, j, _ = s.loops("C")
        s.split(i, s.sample_perfect_tile(i, 2))
        s.annotate("C", "unroll_up_to", s.sample_categorical([1, 16], [0.9, 0.1], name="unroll"))
        if s.sample_categorical(["yes", "no"], [0.75, 0.25], name="vector") == "yes":
            s.vectorize(j)

    here = ProbabilisticSpace(program=program).space(task("matmul"))
    points = here.enumerate()
    assert np.exp(here.log_prior(points)).sum() == pytest.approx(1)
    assert here.log_prior(points).tolist() == pytest.approx([here.trace(p).log_prior for p in points])


def test_traces_of_elsewhere_are_refused(space: SpaceOf, task: TaskOf) -> None:
    here, other = space("matmul"), space("l2_norm")
    foreign = other.trace(other.sample(1, np.random.default_rng(0)))
    with pytest.raises(SpaceError, match="none of its 6 structures"):
        here.point_of(foreign)
    trace = here.trace(here.sample(1, np.random.default_rng(0)))
    with pytest.raises(SpaceError, match="complete it first"):
        here.point_of(Trace(trace.instructions, {n: d for n, d in trace.decisions.items() if n != "k"}))
    with pytest.raises(SpaceError, match="has no option"):
        here.point_of(trace.with_decision("k", (3, 5)))


def test_a_knob_of_weight_zero_stays(space: SpaceOf) -> None:
    here = space("matmul")
    rng = np.random.default_rng(0)
    points = here.sample(2000, rng)
    moved = here.mutate(points, rng, structure=0, weights=lambda s: np.array([k.name == "k" for k in s.knobs], float))
    before, after = here.values(points), here.values(moved)
    assert all(np.array_equal(before[n], after[n]) for n in before if not n.startswith("k"))
    assert (before["k1"] != after["k1"]).all()
