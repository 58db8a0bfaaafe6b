"""A small data set whose times follow from the programs, so that no machine is needed to make it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from searchlab.analysis import extractor, schema
from searchlab.dataset.recorder import TaskRecorder
from searchlab.dataset.stored import StoredTask
from searchlab.ir.program import Program
from searchlab.measure import Job, Measurer, Outcome
from searchlab.search import Task
from searchlab.targets import Target
from searchlab.targets import parse as target_of
from searchlab.workloads import parse

AVX2 = target_of("x86-64-v3:threads=2")


@dataclass
class MadeUpMeasurer(Measurer[Job]):
    """The time of a program is made of a few of its features; every ninth program fails."""

    jobs: list[Job] = field(default_factory=list)
    fails: bool = True

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in reversed(jobs):  # in any order
            self.jobs.append(job)
            assert job.program is not None
            if self.fails and len(self.jobs) % 9 == 0:
                yield Outcome(job.id, "run", error="it fell over", build_s=0.01)
            else:
                yield Outcome(job.id, "ok", (seconds_of(job.program, job.target),), build_s=0.02, run_s=0.01)

    def code_bytes(self, program: Program, target: Target) -> int | None:
        return len(str(program))


def seconds_of(program: Program, target: Target) -> float:
    row = extractor(program, "summary", target)({})[0]
    at = {name: n for n, name in enumerate(schema("summary").columns)}
    parallel = np.exp2(row[at["main_parallel"]]) - 1
    return float(np.exp2(0.7 * row[at["all_cycles"]] + 0.4 * row[at["all_lines"]]) / max(1, min(parallel, 2)) * 1e-9)


def recorded(workload: str, programs: int = 40, seed: int = 0, measurer: MadeUpMeasurer | None = None) -> StoredTask:
    rng = np.random.default_rng(seed)
    recorder = TaskRecorder(Task(parse(workload), AVX2), measurer or MadeUpMeasurer(), rng, programs)
    recorder.spaces = ["template", "task-mapping"]
    return recorder.record()
