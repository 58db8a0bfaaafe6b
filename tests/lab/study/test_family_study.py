"""Families from their text to one function for all sizes: what is measured, checked, resumed and refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from searchlab import tune_family
from searchlab.errors import KernelError, SpaceError
from searchlab.lab.records import RecordStore
from searchlab.lab.study import FamilyStudy, Study, TunedFamily
from searchlab.measure import Job, Measurer, Outcome, Protocol
from searchlab.search import Sketch, SpaceGenerator, Task, menu
from searchlab.targets import parse as target
from searchlab.workloads import read_family

TEXT = "matmul:m=dyn(1..40, 1: 1, 9: 1, 40: 2),n=32,k=16"
QUICK: dict[str, Any] = {
    "model": None,
    "strategy": "random",
    "batch": 4,
    "protocol": Protocol(repeats=3),
    "seconds": 0.05,
}


@dataclass
class ByTile(Measurer[Job]):
    """Made-up times: programs are slow unless their tile of rows is near the size; those with `broken` fail."""

    broken: tuple[str, int] = ("", 0)
    asked: list[tuple[str, int]] = field(default_factory=list)
    any_size: set[tuple[str, int]] = field(default_factory=set)

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            assert job.program is not None
            m = dict(job.workload.params)["m"]
            self.asked.append((job.program.hash, m))
            if job.program.sizes:
                self.any_size.add((job.program.hash, m))
            tile = next((lp.extent.value for n, lp in job.program.loops.items() if n.endswith("_1")), 1)  # type: ignore[attr-defined]
            seconds = 1e-6 * m * (1 + abs(np.log(tile / m)))
            if (job.program.hash, m) == self.broken:
                yield Outcome(job.id, "wrong", error="made up")
            else:
                yield Outcome(job.id, "ok", (seconds,) * 3, number=1)


@pytest.fixture(scope="module")
def tuned() -> TunedFamily:
    return tune_family(TEXT, target("native:threads=1"), 6, "template", **QUICK)


def test_every_size_is_right(tuned: TunedFamily) -> None:
    for size in (1, 2, 3, 8, 9, 10, 17, 39, 40, 53):
        assert tuned.check(size) is None


def test_the_table(tuned: TunedFamily) -> None:
    table = tuned.table
    assert [t.size for t in table.times] == [1, 9, 40] and sum(t.weight for t in table.times) == pytest.approx(1)
    assert (table.intervals[0].low, table.intervals[-1].high) == (1, 40) and not table.refused
    assert {i.program for i in table.intervals} == set(range(len(table.programs)))
    assert [p.hash for p in table.programs] == [p.hash for p in tuned.programs]
    assert all(t.seconds > 0 and t.alone_s > 0 and t.default_s > 0 for t in table.times)


def test_the_function(tuned: TunedFamily) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((7, 16), np.float32), rng.random((16, 32), np.float32)
    bound, out = tuned.kernel.bind(B=b), np.empty((7, 32), np.float32)
    np.testing.assert_allclose(bound(a), a @ b, rtol=1e-4)
    assert bound(a, out=out) is out
    with pytest.raises(KernelError, match=r"takes 2 inputs \(A, B\), got 1"):
        tuned.kernel(a)
    with pytest.raises(KernelError, match="has shape"):
        tuned.kernel(a, b[:3].copy())


def test_measurements_of_an_earlier_attempt_are_used(tmp_path: Path) -> None:
    searched = []
    for _ in range(2):
        with RecordStore(tmp_path / "records.jsonl") as store:
            measurer = ByTile()
            options = {**QUICK, "measurer": measurer, "store": store, "cell": "one", "confirm": False}
            tune_family(TEXT, target("native:threads=1"), 4, "template", **options)
            searched.append([job for job in measurer.asked if job not in measurer.any_size])
    assert len(searched[0]) >= 12 and not searched[1]


def studied(measurer: ByTile, trials: int = 36) -> FamilyStudy:
    family = read_family(TEXT)
    machine = target("x86-64-v3:threads=1")
    tasks = [Task(family.at(size), machine) for size, _ in family.representatives]
    studies = [Study(t, "sketch", None, "random", batch=6, confirm=False, measurer=measurer) for t in tasks]
    found = FamilyStudy(family, studies)
    found.optimize(trials)
    return found


def test_programs_are_measured_at_all_sizes_and_the_ends_of_their_intervals() -> None:
    measurer = ByTile()
    study = studied(measurer)
    searched = len(measurer.asked)
    chosen = study.compare()
    assert study.compare() is chosen
    every = {(r.program.hash, size) for r in chosen.rivals for size in (1, 9, 40)}
    asked = set(measurer.asked[searched:])
    assert every <= asked and chosen.times.shape == (len(chosen.rivals), 3)
    for i in chosen.intervals:
        program = chosen.rivals[i.program].program.hash
        assert {(program, i.low), (program, i.high)} <= asked
    assert chosen.times[list(chosen.per_size), range(3)] == pytest.approx(chosen.times.min(axis=0), rel=0.03)


def test_a_program_that_fails_at_an_end_is_not_used() -> None:
    measurer = ByTile()
    first = studied(measurer).compare()
    low, high = first.intervals[-1].low, first.rivals[first.intervals[-1].program]
    assert low not in (1, 9, 40)
    again = ByTile(broken=(high.program.hash, low))
    second = studied(again).compare()
    assert all(second.rivals[i.program].program.hash != high.program.hash for i in second.intervals)
    assert any(f"fails for m={low}: made up" in reason for reason in second.refused)


class FixedOnly(SpaceGenerator):
    """A space whose programs are not made by primitives."""

    name: ClassVar[str] = "fixed-only"
    version: ClassVar[str] = "1"

    def sketches(self, task: Task) -> Iterator[Sketch]:
        yield Sketch("fixed", (menu("t", [1, 2]),), (), task.program)


def test_a_space_that_cannot_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(
        SpaceError, match="'fixed-only' has no structure that can be used for every size: it was not made"
    ):
        tune_family(TEXT, target("x86-64-v3"), 4, FixedOnly(), measurer=ByTile(), **QUICK)


def test_there_is_no_table_before_the_finish() -> None:
    with pytest.raises(SpaceError, match=r"matmul\(m=1..40, n=32, k=16\): there is no table yet"):
        studied(ByTile(), 6).table  # noqa: B018
