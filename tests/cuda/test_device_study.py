"""A whole study on a made-up GPU: candidates are loaded, checked and timed by the calls that a device would get."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import searchlab as sl
from searchlab.measure import Job, LocalMeasurer, Outcome, Protocol
from searchlab.targets import parse
from searchlab.workloads import workload

SPACE, TRIALS = "template", 3


class Kept(LocalMeasurer):
    """A measurer that remembers what it measured."""

    def __init__(self) -> None:
        super().__init__(builders=1, lock=False)
        self.outcomes: list[Outcome] = []

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for outcome in super().measure(jobs):
            self.outcomes.append(outcome)
            yield outcome


@pytest.mark.parametrize("package", ["pycuda", pytest.param("cuda-bindings", marks=pytest.mark.slow)])
def test_the_calls_of_a_study_are_those_of_the_golden(gpu_log: Path, golden: Callable[[str, str], None]) -> None:
    task = sl.Task(workload("matmul", m=8, n=8, k=8), parse("cuda"))
    protocol = Protocol(warmup=1, repeats=2, min_repeat_ms=0.0, early_stop=None, beaten=None)
    options = {"seed": 0, "batch": TRIALS, "protocol": protocol, "confirm": False}
    with Kept() as measurer:
        study = sl.Study(task, SPACE, None, "random", measurer=measurer, **options)  # type: ignore[arg-type]
        best = study.optimize(trials=TRIALS)
    outcomes = measurer.outcomes
    assert [o.status for o in outcomes] == ["ok"] * TRIALS, [o.error for o in outcomes]
    assert best.seconds == min(min(o.times) for o in outcomes)
    assert all(o.notes["device"] == "Fake GPU" and o.notes["registers"] == "40" for o in outcomes)
    golden("cuda/study.txt", _told(gpu_log))


def _told(log: Path) -> str:
    """The calls of processes that launched kernels, in their order, without what depends on schedules."""
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    working = {pid for pid, call, *_ in rows if call == "launch"}
    lines = []
    for pid, call, *given in rows:
        if pid in working and call != "visible":
            lines.append(f"{call} {given[0]}" if call == "launch" else " ".join(map(str, (call, *given))))
    return "\n".join(lines) + "\n"
