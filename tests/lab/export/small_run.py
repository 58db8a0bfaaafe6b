"""A small run on real programs with made-up times: the folder that `searchlab run` writes, without hardware."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from searchlab.lab.config import from_data
from searchlab.lab.run import run
from searchlab.lab.run.execute.measurers import Measurers
from searchlab.lab.run.runoff import holder
from searchlab.lab.study import Finish, TaskSubject
from searchlab.measure import Job, Measurer, Outcome

DATA = {
    "name": "small",
    "target": "x86-64-v3",
    "workloads": ["matmul:m=64,n=64,k=64"],
    "space": "template",
    "model": "none",
    "budget": {"trials": 20, "batch": 8},
    "measure": {"local": {"repeats": 3}},
    "seeds": [0],
    "sweep": {"strategy": ["random", "genetic"]},
}
TABLE = {
    "name": "table",
    "workloads": [{"table": "matmul-256"}],
    "strategy": "genetic",
    "budget": {"trials": 40, "batch": 8},
    "seeds": [0, 1],
}


class MadeUp(Measurer[Job]):
    """Times that depend on the program alone; one in ten fails.  Answers come in another order than jobs."""

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in sorted(jobs, key=lambda j: j.id):
            number = int(hashlib.sha256(job.program.hash.encode()).hexdigest()[:8], 16)
            if number % 10 == 0:
                yield Outcome(job.id, "run", error="made up")
            else:
                seconds = 1e-5 * (1 + number % 1000 / 100)
                yield Outcome(job.id, "ok", (seconds,) * 3, number=1)


class Unsteady(MadeUp):
    """The same with repeats that scatter, other ones at every look: second looks change what is thought of programs."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for outcome in super().measure(jobs):
            slower = self._rng.uniform(1.0, 2.0, len(outcome.times))
            yield replace(outcome, times=tuple(t * s for t, s in zip(outcome.times, slower.tolist(), strict=True)))


class Hiccups(MadeUp):
    """The faster a program is, the more of its repeats are disturbed: medians order programs the other way round."""

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for outcome in super().measure(jobs):
            slow = tuple(1e-3 - t for t in outcome.times[1:])
            yield replace(outcome, times=(*outcome.times[:1], *slow))


def write(folder: Path, monkeypatch: pytest.MonkeyPatch, measurer: type[MadeUp] = MadeUp, **changes: object) -> Path:
    """Runs the small experiment, or another one, into a folder; without a run-off, whose times would be real."""

    def final(self: TaskSubject, finalists: object, best_s: float, *_: float) -> Finish:
        return Finish(0, best_s * 1.01, {"numpy": 2e-5})

    monkeypatch.setattr(Measurers, "of", lambda *_: measurer())
    monkeypatch.setattr(TaskSubject, "final", final)
    monkeypatch.setattr(holder, "hold", lambda *_: None)
    run(from_data({**DATA, **changes} if "workloads" not in changes else changes), folder, jobs=0)
    return folder
