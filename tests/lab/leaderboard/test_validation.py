"""Re-measurement: claims of a run that hold, that do not, and that cannot be checked."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from searchlab import targets, workloads
from searchlab.cli import app
from searchlab.errors import ResultError, SearchLabError
from searchlab.lab.cells import cells
from searchlab.lab.config import from_data
from searchlab.lab.folder.found import Found
from searchlab.lab.leaderboard.validation import FAILED, HOLDS, SLOWER, UNCHECKED, validate
from searchlab.lab.manifest import Cell, manifest_data
from searchlab.lab.results import CellResult, Winner
from searchlab.lab.run import Folder
from searchlab.lab.study import Study
from searchlab.measure import Job, Measurer, Outcome
from searchlab.measure.recorded.tables import load
from searchlab.search import Task

PROGRAMS = {
    "name": "programs",
    "target": {"native": {"threads": 1}},
    "workloads": ["matmul:m=64,n=64,k=64"],
    "space": "template",
    "model": "none",
    "budget": {"trials": 8, "batch": 8},
    "seeds": [0],
    "sweep": {"strategy": ["random", "genetic"]},
}
TABLE = {
    "name": "table",
    "workloads": [{"table": "matmul-256"}],
    "model": "none",
    "strategy": "random",
    "budget": {"trials": 8, "batch": 8},
    "seeds": [0, 1],
}


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


class MadeUp(Measurer[Job]):
    """Times that depend on the program alone."""

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            number = int(hashlib.sha256(job.program.hash.encode()).hexdigest()[:8], 16)
            yield Outcome(job.id, "ok", (1e-5 * (1 + number % 1000 / 100),) * 3, number=1)


def write(path: Path, data: dict) -> Path:
    """The folder of a run with made-up times, whose claims are one percent too modest."""
    experiment, folder = from_data(data), Folder(path)
    path.mkdir()
    folder.write_manifest({**manifest_data(experiment.name, cells(experiment)), "started": "2026-01-02T03:04:05+00:00"})
    for cell in cells(experiment):
        with folder.records(cell.id) as store, _study(cell, store) as study:
            best = study.optimize(cell.budget.trials)
        scale = 1.0 if cell.table else 1.01
        claim = Winner(0, study.space.choice(best.point), "", scale * best.seconds)
        seconds = study.trials.seconds
        elapsed, status = np.arange(1.0, 1 + len(seconds)), ("ok",) * len(seconds)
        folder.write_result(CellResult(cell, "done", seconds, elapsed, status, best=claim))
    return path


def _study(cell: Cell, store) -> Study:
    options = {"model": None, "strategy": cell.strategy, "seed": cell.seed, "store": store, "cell": cell.id}
    if cell.table:
        return Study(load(cell.table), **options)
    task = Task(workloads.parse(cell.workload), targets.parse(cell.target))
    return Study(task, space=cell.space, measurer=MadeUp(), confirm=False, **options)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path / "small", PROGRAMS)


class Slow(MadeUp):
    """A machine on which everything takes twice as long."""

    def measure(self, jobs):
        for o in super().measure(jobs):
            yield replace(o, times=tuple(2 * t for t in o.times))


class Broken(MadeUp):
    """A machine on which nothing works."""

    def measure(self, jobs):
        return iter([Outcome(j.id, "wrong", error="made up") for j in jobs])


def test_claims_that_hold(small):
    found = validate(small, rng(), measurer=MadeUp)
    assert [c.entry for c in found] == ["random", "genetic"]
    assert {c.verdict for c in found} == {HOLDS}
    assert [c.ratio for c in found] == pytest.approx([1 / 1.01] * 2)


def test_claims_that_do_not(small):
    assert {c.verdict for c in validate(small, rng(), measurer=Slow)} == {SLOWER}
    found = validate(small, rng(), measurer=Broken)
    assert {(c.verdict, c.why) for c in found} == {(FAILED, "wrong: made up")}


def test_a_sample_has_as_many_entries_as_possible(small):
    assert len(validate(small, rng(), sample=1, measurer=MadeUp)) == 1
    assert [c.entry for c in validate(small, rng(), entry="genetic", measurer=MadeUp)] == ["genetic"]
    with pytest.raises(SearchLabError, match="no entry 'greedy'"):
        validate(small, rng(), entry="greedy", measurer=MadeUp)


def test_a_claim_of_another_machine_is_not_judged(small, monkeypatch: pytest.MonkeyPatch):
    record = Found.record.func
    elsewhere = property(lambda claim: replace(record(claim), target="elsewhere", cpu="z80"))
    monkeypatch.setattr(Found, "record", elsewhere)
    found = validate(small, rng(), measurer=MadeUp)
    assert {(c.verdict, c.why) for c in found} == {(UNCHECKED, "it was measured on another machine (z80)")}
    assert not any(c.good for c in found)


def test_tables_are_looked_up(tmp_path: Path):
    folder = write(tmp_path / "table", TABLE)
    assert {(c.verdict, c.ratio) for c in validate(folder, rng())} == {(HOLDS, 1.0)}
    place = Folder(folder)
    claim = next(iter(place.results()))
    place.write_result(replace(claim, best=replace(claim.best, seconds=claim.final_s / 2)))
    verdicts = {c.cell: c.verdict for c in validate(folder, rng())}
    assert verdicts[claim.id] == SLOWER
    told = CliRunner().invoke(app, ["leaderboard", "validate", str(folder)])
    assert told.exit_code == 1 and "1 of 2 hold" in told.output
    lines = CliRunner().invoke(app, ["leaderboard", "validate", str(folder), "--json"]).output.splitlines()
    assert {json.loads(line)["verdict"] for line in lines} == {HOLDS, SLOWER}


def test_nothing_to_check(small):
    place = Folder(small)
    for result in list(place.results()):
        place.write_result(replace(result, state="interrupted"))
    with pytest.raises(ResultError, match="no finished cell has found a program"):
        validate(small, rng(), measurer=MadeUp)
