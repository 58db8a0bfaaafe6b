"""Soak test for leaks in measuring: python -m benchmarks.soak [--minutes 30] [--json] [--store FILE].

Measures good and bad candidates (all kinds of failure) over and over, writes records, and watches memory, processes,
open files and temporary files.  Exit code 1 if any of them grows, a job is lost, an outcome is wrong, or a process
remains at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import psutil

from searchlab.backend import Artifact, build
from searchlab.ir.expr import knob
from searchlab.lab.records import Record, RecordStore
from searchlab.llvm.jit import compile_ir
from searchlab.measure import Job, Limits, LocalMeasurer, Protocol
from searchlab.schedule import Schedule
from searchlab.targets import detect
from searchlab.workloads import workload

RELU = workload("elementwise", rows=8, cols=9, ops="relu")
BYTES = 4 * 72
GOOD = 20  # good candidates per round, half of them built
SAMPLES = 300  # in total, for a long run
MARK = "SEARCHLAB_SOAK"
# The growth allowed from the first fifth to the end: allocators and caches fluctuate.
MOST_MIB, MOST_SHARE, MOST_COUNT = 6.0, 0.02, 2.0

_SIGNATURE = "ptr %arguments, ptr %sizes, ptr %shared, ptr %private, i64 %stride, ptr %pool, i64 %threads"
_KERNEL = """
declare ptr @malloc(i64)
define void @kernel({signature}) {{
entry:
  %y.p = getelementptr ptr, ptr %arguments, i64 1
  %y = load ptr, ptr %y.p
{body}
}}
"""
_PAST = f"  %at = getelementptr i8, ptr %y, i64 {BYTES}\n  store volatile float 1.0, ptr %at\n  ret void"
_MORE = "  %got = call ptr @malloc(i64 1048576)\n  store volatile i8 1, ptr %got\n  br label %again"
# name: the expected status, and the behaviour of the kernel
FAULTS = {
    "crash": ("crash", "  store volatile i8 1, ptr inttoptr (i64 64 to ptr)\n  ret void"),
    "hang": ("timeout", "  br label %again\nagain:\n  store volatile i8 1, ptr %y\n  br label %again"),
    "oom": ("oom", f"  br label %again\nagain:\n{_MORE}"),
    "wrong": ("wrong", "  ret void"),
    "out of bounds": ("crash", _PAST),
}


@dataclass(frozen=True)
class Sample:
    """The resources in use at one moment; memory in MiB."""

    second: float
    trials: int
    driver_mib: float
    servers_mib: float
    processes: int
    files: int
    temporary: int

    @property
    def memory_mib(self) -> float:
        return self.driver_mib + self.servers_mib


@dataclass(frozen=True)
class Growth:
    """A linear fit of the samples: the mean, the growth from the first fifth to the end, and per hour."""

    mean: float
    gained: float
    per_hour: float


@dataclass(frozen=True)
class Report:
    """The result of a soak test."""

    seconds: float
    trials: int
    statuses: dict[str, int]
    unexpected: dict[str, int]
    lost: int
    orphans: int
    memory_mib: Growth
    driver_mib: Growth
    processes: Growth
    files: Growth
    temporary: Growth
    flat: bool

    @property
    def good(self) -> bool:
        return self.flat and not (self.lost or self.orphans or self.unexpected)


# --- jobs -------------------------------------------------------------------------------------------------------------


def jobs() -> list[Job]:
    """One round of jobs; their ids begin with the expected status."""
    target = detect(1)
    code = build(RELU.program, target)
    protocol = Protocol(warmup=0, repeats=3, min_repeat_ms=0.1)
    limits = Limits(run_s=60, memory_bytes=256 << 20)
    made = [Job("ok/built", RELU, target, artifact=code, protocol=protocol, limits=limits)] * (GOOD // 2)
    made += [Job("ok/program", RELU, target, RELU.program, protocol=protocol, limits=limits)] * (GOOD // 2)
    for name, (status, body) in FAULTS.items():
        patience = replace(limits, run_s=0.2) if name == "hang" else limits
        made.append(Job(f"{status}/{name}", RELU, target, artifact=_faulty(code, body), limits=patience))
    unbuildable = Schedule(RELU.program)
    unbuildable.split(next(iter(RELU.program.loops)), [None, knob("open")])
    made.append(Job("build/open knob", RELU, target, unbuildable.program, limits=limits))
    return made


def _faulty(good: Artifact, body: str) -> Artifact:
    text = _KERNEL.format(signature=_SIGNATURE, body=body)
    return replace(good, entry="kernel", code=compile_ir(text, good.target), parallel=False)


# --- watching ---------------------------------------------------------------------------------------------------------


def sample(second: float, trials: int, folder: Path) -> Sample:
    driver = psutil.Process()
    servers = [p for p in driver.children() if p.is_running()]
    memory, files, count = 0, driver.num_fds(), 1
    for server in servers:
        with suppress(psutil.NoSuchProcess):
            memory += server.memory_info().rss
            files += server.num_fds()
            count += 1 + len(server.children())
    temporary = sum(1 for _ in folder.rglob("*"))
    return Sample(second, trials, driver.memory_info().rss / 2**20, memory / 2**20, count, files, temporary)


def growth(seconds: Sequence[float], values: Sequence[float]) -> Growth:
    """The fit over all but the first fifth."""
    start = len(values) // 5
    x, y = np.asarray(seconds[start:], float), np.asarray(values[start:], float)
    if len(x) < 3 or x[-1] <= x[0]:
        return Growth(float(np.mean(y)), 0.0, 0.0)
    slope = float(np.polyfit(x - x[0], y, 1)[0])
    return Growth(float(np.mean(y)), slope * float(x[-1] - x[0]), slope * 3600)


def is_flat(memory: Growth, *counts: Growth) -> bool:
    return memory.gained <= max(MOST_MIB, MOST_SHARE * memory.mean) and all(c.gained <= MOST_COUNT for c in counts)


def orphans(mark: str, patience_s: float = 60.0) -> int:
    """Processes that have inherited the mark and still exist after a while."""
    until = time.monotonic() + patience_s
    while (left := sum(1 for _ in _marked(mark))) and time.monotonic() < until:
        time.sleep(0.2)
    return left


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            mine = process.pid != os.getpid() and process.environ().get(MARK) == mark
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                yield process


# --- the run ----------------------------------------------------------------------------------------------------------


def soak(minutes: float, store: RecordStore, folder: Path, show: bool = False) -> Report:
    """Measures for `minutes`, at least one round; temporary files go to `folder`."""
    mark = os.environ[MARK] = uuid.uuid4().hex
    every = max(0.5, 60 * minutes / SAMPLES)
    rounds = jobs()
    samples: list[Sample] = []
    statuses: Counter[str] = Counter()
    unexpected: Counter[str] = Counter()
    lost, trials, number, begin = 0, 0, 0, time.monotonic()
    with LocalMeasurer(lock=False) as measurer:  # times do not matter here, and other processes may want to measure
        while not number or time.monotonic() - begin < 60 * minutes:
            batch = {f"{job.id}#{number}.{i}": job for i, job in enumerate(rounds)}
            answered: Counter[str] = Counter()
            for outcome in measurer.measure([replace(job, id=name) for name, job in batch.items()]):
                answered[outcome.id] += 1
                statuses[outcome.status] += 1
                expected = outcome.id.partition("/")[0]
                if outcome.status != expected:
                    unexpected[f"{outcome.id.partition('#')[0]} was {outcome.status}: {outcome.error}"] += 1
                store.append(Record.from_outcome(replace(batch[outcome.id], id=outcome.id), outcome))
                now = time.monotonic() - begin
                if not samples or now - samples[-1].second >= every:
                    samples.append(sample(now, sum(statuses.values()), folder))
                    if show:
                        print(json.dumps(asdict(samples[-1])), flush=True)
            lost += len(batch) - sum(count == 1 for count in answered.values())
            trials, number = trials + len(batch), number + 1
        elapsed = time.monotonic() - begin
    return _report(elapsed, trials, statuses, unexpected, lost, orphans(mark), samples)


def _report(
    seconds: float,
    trials: int,
    statuses: Counter[str],
    unexpected: Counter[str],
    lost: int,
    left: int,
    samples: Sequence[Sample],
) -> Report:
    times = [s.second for s in samples]
    memory, driver, processes, files, temporary = (
        growth(times, [float(getattr(s, name)) for s in samples])
        for name in ("memory_mib", "driver_mib", "processes", "files", "temporary")
    )
    flat = is_flat(memory, processes, files, temporary)
    found = dict(sorted(statuses.items())), dict(unexpected)
    return Report(seconds, trials, *found, lost, left, memory, driver, processes, files, temporary, flat)


def describe(report: Report) -> str:
    failures = ", ".join(f"{count} {status}" for status, count in report.statuses.items())
    lines = [f"{report.trials} trials in {report.seconds:.0f} s: {failures}"]
    names = ("memory_mib", "driver_mib", "processes", "files", "temporary")
    for name in names:
        g: Growth = getattr(report, name)
        lines.append(f"  {name:12} mean {g.mean:8.1f}   gained {g.gained:+7.2f}   per hour {g.per_hour:+8.2f}")
    lines += [f"  unexpected: {what} ({count} times)" for what, count in report.unexpected.items()]
    lines.append(f"  lost {report.lost}, left behind {report.orphans}, {'flat' if report.flat else 'not flat'}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--json", action="store_true", help="one JSON object per sample, and one for the whole")
    parser.add_argument("--store", type=Path, help="where records go; a temporary file by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, tempfile.TemporaryDirectory(prefix="soak-") as other:
        os.environ["TMPDIR"] = folder
        with RecordStore(options.store or Path(other) / "records.jsonl") as store:
            report = soak(options.minutes, store, Path(folder), options.json)
    print(json.dumps(asdict(report)) if options.json else describe(report))
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
