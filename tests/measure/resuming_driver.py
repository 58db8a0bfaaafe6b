"""Measures many jobs and keeps what it has; started again, it goes on with those that are missing."""

import sys

from searchlab.lab.records import Record, RecordStore
from searchlab.measure import Job, LocalMeasurer, Protocol
from searchlab.schedule import Schedule
from searchlab.targets import detect
from searchlab.workloads import workload

JOBS = 144


def jobs() -> list[Job]:
    w, target = workload("matmul", m=6, n=48, k=4), detect().with_threads(1)
    made = []
    for number in range(JOBS):
        s = Schedule(w.program)
        i, j, _ = s.loops("C")
        s.split(i, [None, 1 + number // 48], tail=True)
        s.split(j, [None, 1 + number % 48], tail=True)
        made.append(Job(f"job-{number}", w, target, program=s.program, protocol=Protocol(repeats=2, min_repeat_ms=0.1)))
    return made


def main(path: str) -> None:
    with RecordStore(path) as store, LocalMeasurer() as measurer:
        done = {record.job for record in store}
        left = {job.id: job for job in jobs() if job.id not in done}
        for outcome in measurer.measure(list(left.values())):
            store.append(Record.from_outcome(left[outcome.id], outcome))


if __name__ == "__main__":
    main(sys.argv[1])
