"""Rules, mutators, post-processors and programs of a user."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from searchlab.errors import SpaceError
from searchlab.ir.compute import Builder
from searchlab.ir.expr import const, size, value_of
from searchlab.schedule import annotate
from searchlab.search import Task, space
from searchlab.targets import detect
from searchlab.testing import check_point, check_space
from searchlab.workloads import workload
from searchlab.workloads.definition import Definition, Operator
from spaces.probabilistic import (
    DEFAULT_POSTPROCESSORS,
    DEFAULT_RULES,
    AutoInline,
    MultiLevelTiling,
    Mutator,
    ParallelizeVectorizeUnroll,
    Postprocessor,
    ProbabilisticSchedule,
    ProbabilisticSpace,
    RandomComputeLocation,
    RewriteLayout,
    RewriteParallelVectorizeUnroll,
    RewriteReduction,
    ScheduleRule,
    Trace,
    VerifyTile,
)

TaskOf = Callable[..., Task]
TILING = (MultiLevelTiling(), ParallelizeVectorizeUnroll(), RandomComputeLocation())


class RowTile(ScheduleRule):
    """A few rows at a time, the columns in vectors: a schedule of one's own beside the others."""

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        if not s.program.blocks[block].reduces:
            return [s]
        own = s.copy()
        i, j, k = own.loops(block)
        i0, i1 = own.split(i, [None, own.sample_categorical([2, 3, 4], name="rows")], tail=True)
        j0, j1 = own.split(j, own.sample_perfect_tile(j, 2))
        own.reorder(i0, j0, k, i1, j1)
        own.unroll(i1)
        own.vectorize(j1)
        own.keep(block)
        own.steps.append("rows")
        return [s, own]


class Double(Mutator):
    """Moves a factor 2 of `j` inwards."""

    share = 3.0

    def apply(self, trace: Trace, rng: np.random.Generator) -> Trace | None:
        outer, inner = trace.decisions["j"].value[0], trace.decisions["j"].value[-1]  # type: ignore[index]
        if outer % 2 or inner > 16:
            return None
        return trace.with_decision("j", (outer // 2, *trace.decisions["j"].value[1:-1], inner * 2))  # type: ignore[index]


class NoPacking(Postprocessor):
    """Rejects programs with a copied operand, and asks for at least two iterations of the parallel loop."""

    def apply(self, s: ProbabilisticSchedule) -> bool:
        for loop in s.program.loops.values():
            if loop.kind == "parallel" and value_of(loop.extent) is None:
                s.require(loop.extent >= 2)
        return "B_local" not in s.program.blocks


def test_a_rule_of_a_user(task: TaskOf) -> None:
    here = check_space(ProbabilisticSpace(rules=[RowTile(), *DEFAULT_RULES]), task("matmul"), points=6)
    plain = ProbabilisticSpace().space(task("matmul"))
    mine = [n for n, s in enumerate(here.sketches) if "rows" in s.name]
    assert len(mine) == 1 and len(here.sketches) == len(plain.sketches) + 1
    assert {s.program.hash for s in plain.sketches if s.program} < {s.program.hash for s in here.sketches if s.program}
    points = here.sample(4000, np.random.default_rng(0))
    own = points[points.sketch == mine[0]][:3]
    for point in own:
        check_point(here, point, task("matmul"))


def test_a_mutator_of_a_user(task: TaskOf) -> None:
    here = ProbabilisticSpace(mutators=[Double()]).space(task("matmul"))
    choice = {"i": [24, 1, 1, 1], "j": [8, 1, 1, 4], "k": [4, 4], "unroll": 1}
    trace = here.trace(here.chosen({"sketch": "tile", "knobs": choice}))
    changed = here.mutate_trace(trace, np.random.default_rng(0))
    assert changed is not None and changed.decisions["j"].value == (4, 1, 1, 8)
    assert here.choice(here.point_of(changed))["knobs"]["j"] == [4, 1, 1, 8]


def test_a_postprocessor_of_a_user(task: TaskOf) -> None:
    here = ProbabilisticSpace(postprocessors=[*DEFAULT_POSTPROCESSORS, NoPacking()]).space(task("matmul"))
    assert not any("pack" in s.name for s in here.sketches)
    values = here.values(here.sample(500, np.random.default_rng(0)))
    assert (values["i1"] * values["i2"] * values["i3"] * values["j1"] * values["j2"] * values["j3"] < 24 * 32).all()


def row_program(s: ProbabilisticSchedule) -> None:
    """Named by import path in a test below."""
    i, j, k = s.loops("C")
    if s.sample_categorical(["rows", "columns"], name="first") == "columns":
        s.reorder(j, i, k)
    s.split(k, s.sample_perfect_tile(k, 2))


def custom_tile(s: ProbabilisticSchedule, block: str) -> list[ProbabilisticSchedule]:
    """Named by the annotation of a block in a test below."""
    s.vectorize(s.loops(block)[1])
    s.split(s.loops(block)[0], s.sample_perfect_tile(s.loops(block)[0], 2, name="own"))
    return [s]


def test_a_block_with_a_rule_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    module = types.ModuleType("a_user_module")
    module.custom_tile = custom_tile  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_user_module", module)

    def operator() -> Definition:
        """matmul and relu, the product with a rule of its own."""
        plain = workload("dense", m=12, n=16, k=8, activation="relu").definition
        program = annotate(plain.program, "C", "schedule_rule", "a_user_module:custom_tile")
        return Definition(program, plain.reference, plain.weights)

    task = Task(Operator.of(operator, "own")(), detect())
    here = check_space(ProbabilisticSpace(), task, points=4)
    assert all({"own"} <= {k.name for k in s.knobs} for s in here.sketches)
    assert all("i" not in {k.name for k in s.knobs} for s in here.sketches)


def test_a_program_of_a_user(task: TaskOf, monkeypatch: pytest.MonkeyPatch) -> None:
    here = check_space(ProbabilisticSpace(program=row_program), task("matmul"), points=4)
    assert [s.name for s in here.sketches] == ["plain/first=rows", "plain/first=columns"]
    assert here.size.valid == 10


def test_a_program_by_its_path(task: TaskOf, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    module = types.ModuleType("another_user_module")
    module.row_program = row_program  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "another_user_module", module)
    here = space({"probabilistic": {"program": "another_user_module:row_program"}}, task("matmul"))
    assert len(here.sketches) == 2
    with pytest.raises(SpaceError, match="module 'another_user_module' has no 'missing'"):
        ProbabilisticSpace(program="another_user_module:missing")


def test_a_schedule_without_draws_is_a_space_of_one_point(task: TaskOf) -> None:
    here = check_space(ProbabilisticSpace(program=lambda s: s.vectorize(s.loops("C")[1])), task("matmul"), points=1)
    assert here.size.valid == 1
    point = here.enumerate()
    assert here.point_of(here.trace(point)) == point


def test_illegal_runs_are_rejected(task: TaskOf) -> None:
    def half(s: ProbabilisticSchedule) -> None:
        s.parallel(s.loops("C")[s.sample_categorical([0, 2], name="loop", structural=True)])

    here = ProbabilisticSpace(program=half).space(task("matmul"))
    assert [s.name for s in here.sketches] == ["plain/loop=0"]
    with pytest.raises(SpaceError, match="every run of the program was rejected; the first: parallel: loop 'k'"):
        ProbabilisticSpace(program=lambda s: s.parallel("k")).space(task("matmul"))


def test_too_many_structures(task: TaskOf) -> None:
    def endless(s: ProbabilisticSchedule) -> None:
        for n in range(10):
            s.sample_categorical(["a", "b"], name=f"draw{n}")

    with pytest.raises(SpaceError, match="more than 16 combinations of decisions about structure"):
        ProbabilisticSpace(program=endless, most=16).space(task("matmul"))
    with pytest.raises(SpaceError, match="more than 4 structures"):
        ProbabilisticSpace(most=4).space(task("matmul"))


def test_run_time_sizes_are_refused() -> None:
    task = Task(workload("matmul", m=size("m"), n=16, k=8), detect())
    with pytest.raises(SpaceError, match=r"run-time sizes \(m\); fix them with at\(\)"):
        ProbabilisticSpace().space(task)
    with pytest.raises(SpaceError, match="every structure .* was rejected"):
        ProbabilisticSpace(program=lambda s: s.vectorize("j")).space(task)


def test_what_is_no_rule_is_refused() -> None:
    with pytest.raises(SpaceError, match="is not a schedule rule; accepted: ScheduleRule objects"):
        ProbabilisticSpace(rules=[Double()])  # type: ignore[list-item]


def test_constants_are_inlined() -> None:
    def scaled() -> Definition:
        """A matrix times a vector of constants."""
        b = Builder("scaled")
        x = b.input("X", (6, 8))
        ones = b.compute("O", (8,), lambda j: const(2.0, "float32"))
        return Definition(b.program(b.compute("Y", (6, 8), lambda i, j: x[i, j] * ones[j])), lambda x: 2 * x)

    here = check_space(ProbabilisticSpace(), Task(Operator.of(scaled)(), detect()), points=2)
    assert all(s.program is not None and list(s.program.blocks) == ["Y"] for s in here.sketches)


def test_three_variants_of_a_write_cache(task: TaskOf) -> None:
    here = ProbabilisticSpace(rules=TILING).space(task("matmul"))
    assert [s.name for s in here.sketches] == ["tile", "cache-tile-fuse1", "cache-tile-fuse2"]
    fused = ProbabilisticSpace(rules=(AutoInline(), *TILING)).space(task("dense"))
    assert [s.name for s in fused.sketches] == ["tile", "tile-fuse1", "tile-fuse2"]


@pytest.mark.parametrize("more", [RewriteLayout(), RewriteReduction(), VerifyTile(64)], ids=lambda p: type(p).__name__)
def test_other_postprocessors(more: Postprocessor, task: TaskOf) -> None:
    order = [more, RewriteParallelVectorizeUnroll()]
    order = order if isinstance(more, RewriteLayout) else order[::-1]
    here = check_space(ProbabilisticSpace(rules=TILING, postprocessors=order), task("matmul"), points=4)
    if isinstance(more, RewriteLayout):
        assert all(s.program is not None and s.program.layouts for s in here.sketches)
    elif isinstance(more, RewriteReduction):
        assert all(s.program is not None and "C_init" in s.program.blocks for s in here.sketches)
    else:
        values = here.values(here.sample(200, np.random.default_rng(0)))
        assert (values["i3"] * values["j3"] <= 64).all()
