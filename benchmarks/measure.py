"""The overhead of measuring beyond building and running: python -m benchmarks.measure [--json] [--only CASE].

`local` and `ray` time trials of an empty kernel: wall time minus the time of its phases.  `workers-N` keeps N slots
busy that sleep 0.1 s per job, in few actors (an actor takes 50 MB); `actors-N` has one actor per slot.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from searchlab.backend import Artifact, build
from searchlab.llvm.jit import compile_ir
from searchlab.measure import Job, Measurer, Outcome, Protocol
from searchlab.measure.cluster import RayMeasurer
from searchlab.measure.local import LocalMeasurer
from searchlab.targets import Target, detect
from searchlab.workloads import parse

WORKLOAD = parse("matmul:m=16,n=16,k=16")
SLEEP_S = 0.1
ROUNDS = 40  # jobs per slot
TRIALS = 200
ACTORS = 4
WORKERS = (1, 10, 50, 100, 200, 500)
PROCESSES = (1, 4, 16)
OVERHEAD_TARGETS_S = {"local": 0.005}
BUSY_TARGET = {200: 0.8}


class Sleeper:
    """A worker that sleeps instead of measuring."""

    def __init__(self, name: str, cores: Sequence[int]) -> None:
        self.name = name

    def run(self, job: Job) -> Outcome:
        time.sleep(SLEEP_S)
        return Outcome(job.id, "ok", (SLEEP_S,), worker=self.name, run_s=SLEEP_S)

    def build(self, job: Job) -> Artifact | Outcome:
        return self.run(job)


def _nothing(target: Target) -> Artifact:
    """Object code that returns immediately."""
    ir = "define void @kernel(ptr %a, ptr %s, ptr %h, ptr %p, i64 %n, ptr %f, i64 %t) {\n  ret void\n}\n"
    return replace(build(WORKLOAD.program, target), entry="kernel", code=compile_ir(ir, target), parallel=False)


def _trials(count: int, prefix: str) -> list[Job]:
    target = replace(detect(), threads=1)
    protocol = Protocol(warmup=0, repeats=1, min_repeat_ms=0.0, check=False)
    job = Job("", WORKLOAD, target, artifact=_nothing(target), protocol=protocol)
    return [replace(job, id=f"{prefix}{i}") for i in range(count)]


def overhead(measurer: Measurer[Job]) -> tuple[float, float]:
    """Seconds per trial outside its phases, and all seconds per trial."""
    for outcome in measurer.measure(_trials(20, "warm")):
        assert outcome.ok, outcome.error
    jobs = _trials(TRIALS, "")
    begin = time.perf_counter()
    outcomes = list(measurer.measure(jobs))
    wall = time.perf_counter() - begin
    phases = sum(o.build_s + o.check_s + o.run_s for o in outcomes)
    return (wall - phases) / TRIALS, wall / TRIALS


def busy(slots: int, per_actor: int) -> tuple[float, float]:
    """The fraction of time that sleeping slots spend asleep, and jobs per second."""
    with RayMeasurer(slots, cpus=0.001, per_actor=per_actor, builders=0, worker=Sleeper) as measurer:
        _until_all_are_up(measurer)
        jobs = _trials(slots * ROUNDS, "")
        begin = time.perf_counter()
        count = sum(outcome.ok for outcome in measurer.measure(jobs))
        wall = time.perf_counter() - begin
    assert count == len(jobs)
    return count * SLEEP_S / (wall * slots), count / wall


def _until_all_are_up(measurer: RayMeasurer) -> None:
    seen: set[str] = set()
    while len(seen) < measurer.slots:
        seen |= {outcome.worker for outcome in measurer.measure(_trials(measurer.slots, "warm"))}


def _groups(slots: int) -> int:
    return next(slots // n for n in range(min(ACTORS, slots), 0, -1) if slots % n == 0)


def rows(only: str | None) -> Iterator[dict[str, Any]]:
    makers = {"local": LocalMeasurer, "ray": lambda: RayMeasurer(1, cores=0, builders=0)}
    for case, make in makers.items():
        if only in (None, case):
            with make() as measurer:
                besides, wall = overhead(measurer)
            yield {"case": case, "metric": "overhead_s", "value": besides, "target": OVERHEAD_TARGETS_S.get(case)}
            yield {"case": case, "metric": "trial_s", "value": wall, "target": None}
    cases = [(f"workers-{n}", n, _groups(n)) for n in WORKERS] + [(f"actors-{n}", n, 1) for n in PROCESSES]
    for case, slots, per_actor in cases:
        if only in (None, case):
            part, rate = busy(slots, per_actor)
            target = BUSY_TARGET.get(slots) if per_actor > 1 else None
            yield {"case": case, "metric": "busy", "value": part, "target": target}
            yield {"case": case, "metric": "jobs_per_s", "value": rate, "target": None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    names = ["local", "ray", *(f"workers-{n}" for n in WORKERS), *(f"actors-{n}" for n in PROCESSES)]
    parser.add_argument("--only", choices=names, metavar="CASE", help=f"one of: {', '.join(names)}")
    options = parser.parse_args()
    with ExitStack() as stack:
        if options.only != "local":  # all cases share one Ray
            from searchlab.measure.cluster.connection import Connection

            stack.callback(Connection().close)
        for row in rows(options.only):
            aim = f"  (target {row['target']:g})" if row["target"] is not None else ""
            text = f"{row['case']:14} {row['metric']:12} {row['value']:10.4g}{aim}"
            print(json.dumps(row) if options.json else text, flush=True)


if __name__ == "__main__":
    main()
