"""Size and quality of search spaces: python -m benchmarks.spaces [--json] [--only CASE] [--space NAME] [--threads N].

For each workload and space: the number of points, the fraction of invalid combinations, the rate of sampling and
mutation, and the best program of 64 random points, of the points known to be good, and of the whole task-mapping space,
as the ratio of the better library's time to ours, interleaved; above 1 we are faster.  `--only size-loss` races the
best of the task-mapping space on 512 against those on 511 and 509.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from searchlab.backend import compile
from searchlab.bench import LIBRARIES, Contender, OtherLoad, libraries, race, threads
from searchlab.measure import Job, LocalMeasurer, Protocol
from searchlab.search import SPACES, Points, Space, Task, space
from searchlab.targets import Target, detect
from searchlab.workloads import parse

RANDOM = 64
FINALISTS = 3
POPULATION = 2048
_PROTOCOL = Protocol(repeats=7, min_repeat_ms=1.0, early_stop=3.0)


@dataclass(frozen=True)
class Case:
    """A workload, and the minimum ratio to the better library that a good point of a space must reach."""

    name: str
    workload: str
    goal: float


CASES = (
    Case("matmul-512", "matmul:m=512,n=512,k=512", 0.95),
    Case("matmul-511", "matmul:m=511,n=511,k=511", 0.8),
    Case("matmul-509", "matmul:m=509,n=509,k=509", 0.8),
    Case("conv2d-64", "conv2d:ci=64,co=64,h=56,w=56,k=3,padding=1", 0.9),
    Case("conv2d-128", "conv2d:ci=128,co=128,h=28,w=28,k=3,padding=1", 0.9),
    Case("conv2d-1x1", "conv2d:ci=256,co=64,h=56,w=56,k=1", 0.9),
)
_RATES = {"matmul-512", "conv2d-64"}  # cases with a target of 500,000 points per second


def sizes(case: Case, found: Space) -> dict[str, Any]:
    """The numbers of points and sketches, and the percentage of invalid combinations."""
    size = found.size
    return {
        "case": f"{case.name}/{found.name}",
        "metric": "points",
        "value": size.valid,
        "target": None,
        "exact": size.exact,
        "invalid_percent": round(100 * (1 - size.share), 3),
        "sketches": len(found.sketches),
    }


def rate(case: Case, found: Space) -> dict[str, Any]:
    """Points per second of CPU time, each sampled and then mutated."""
    rng = np.random.default_rng(0)
    found.mutate(found.sample(POPULATION, rng), rng)  # option tables and neighbourhoods are built once
    rates = []
    for _ in range(20):
        start = perf_counter()
        found.mutate(found.sample(POPULATION, rng), rng)
        rates.append(POPULATION / (perf_counter() - start))
    asked = 500_000 if case.name in _RATES and found.name == "sketch" else None
    return {
        "case": f"{case.name}/{found.name}",
        "metric": "points_per_s",
        "value": round(max(rates)),
        "target": asked,
        "median": round(float(np.median(rates))),
    }


def fastest(found: Space, points: Points, task: Task, measurer: LocalMeasurer) -> tuple[list[Points], dict[str, int]]:
    """The few fastest of the points, and the number of failures by kind."""
    jobs = [Job(str(n), task.workload, task.target, found.program(p), protocol=_PROTOCOL) for n, p in enumerate(points)]
    seconds, failures, best = np.full(len(points), np.inf), dict[str, int](), float("inf")
    for outcome in measurer.measure(jobs):
        if outcome.ok:
            seconds[int(outcome.id)] = outcome.seconds
            best = min(best, outcome.seconds)
        else:
            failures[outcome.status] = failures.get(outcome.status, 0) + 1
    order = np.argsort(seconds)[:FINALISTS]
    return [points[int(n)] for n in order if np.isfinite(seconds[n])], failures


def known(found: Space) -> list[Points]:
    """Points that the space knows to be good."""
    return list(found.seeds)


def contender(found: Space, point: Points, task: Task, inputs: dict[str, Any]) -> Contender:
    """The point's kernel, ready to run; its result is checked."""
    run, outputs = compile(found.program(point), task.target).prepare(*inputs.values())
    run()
    wrong = task.workload.check(dict(zip(task.program.outputs, outputs, strict=True)), inputs)
    if wrong is not None:
        raise SystemExit(f"{found.name}: {found.text(point)}: wrong result: {wrong}")
    return run


def against_libraries(
    found: Space, points: Sequence[Points], task: Task, seconds: float
) -> tuple[float, Points, dict[str, list[float]], float]:
    """The best ratio among the points, the point, all times in milliseconds, and the load of other processes."""
    inputs, count = task.workload.inputs(seed=0), task.target.threads
    with threads(count):
        ours = {str(n): contender(found, p, task, inputs) for n, p in enumerate(points)}
        with OtherLoad() as others:
            times = race({**ours, **libraries(task.workload, inputs, count)}, seconds, threads=count)
    rival = min(t.min for n, t in times.items() if n in LIBRARIES)
    best = min(range(len(points)), key=lambda n: times[str(n)].min)
    milliseconds = {n: [round(1e3 * t.min, 4), round(1e3 * t.median, 4)] for n, t in times.items() if not n.isdigit()}
    milliseconds["searchlab"] = [round(1e3 * x, 4) for x in (times[str(best)].min, times[str(best)].median)]
    return rival / times[str(best)].min, points[best], milliseconds, others.share


def ratio(
    case: Case, found: Space, kind: str, points: Sequence[Points], task: Task, options: argparse.Namespace, **more: Any
) -> dict[str, Any]:
    value, best, milliseconds, load = against_libraries(found, points, task, options.seconds)
    goal = case.goal if kind in ("known", "exhaustive") else None
    gflops = task.workload.flops / milliseconds["searchlab"][0] / 1e6
    return {
        "case": f"{case.name}/{found.name}",
        "metric": f"{kind}-{task.target.threads}t",
        "value": round(value, 3),
        "target": goal,
        "gflops": round(gflops, 1),
        "other_load": round(load, 2),
        "point": found.text(best),
        "packed_ahead": bool(found.program(best).layouts),
        **{f"{n}_ms": t for n, t in milliseconds.items()},
        **more,
    }


def searched(
    case: Case, found: Space, task: Task, measurer: LocalMeasurer, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Ratios of random points, of known ones, and of the whole space if it is small enough."""
    drawn = found.sample_new(options.random, np.random.default_rng(options.seed)).points
    groups = {"random": drawn}
    if found.name == "task-mapping" and not options.no_exhaustive:
        groups["exhaustive"] = found.enumerate()
    for kind, points in groups.items():
        finalists, failures = fastest(found, points, task, measurer)
        if finalists:
            yield ratio(case, found, kind, finalists, task, options, tried=len(points), failed=failures)
    if good := known(found):
        yield ratio(case, found, "known", good, task, options)


def size_loss(options: argparse.Namespace, machine: Target) -> Iterator[dict[str, Any]]:
    """The cost of a prime size in the task-mapping space: the best points of each whole space, in one race."""
    runs: dict[str, Contender] = {}
    flops: dict[str, int] = {}
    with LocalMeasurer() as measurer:
        for size in (512, 511, 509):
            task = Task(parse(f"matmul:m={size},n={size},k={size}"), machine.with_threads(options.threads))
            found = space("task-mapping", task)
            finalists, _ = fastest(found, found.enumerate(), task, measurer)
            for n, point in enumerate(finalists):
                runs[f"{size}/{n}"] = contender(found, point, task, task.workload.inputs(seed=0))
            flops[str(size)] = task.workload.flops
    with threads(options.threads):
        times = race(runs, options.seconds, threads=options.threads)
    speed = {s: max(f / t.min for n, t in times.items() if n.startswith(f"{s}/")) / 1e9 for s, f in flops.items()}
    for size in ("511", "509"):
        yield {
            "case": f"matmul-{size}/task-mapping",
            "metric": f"loss_percent-{options.threads}t",
            "value": round(100 * (1 - speed[size] / speed["512"]), 1),
            "target": 15,
            "gflops": {s: round(v, 1) for s, v in speed.items()},
        }


def rows(options: argparse.Namespace, machine: Target) -> Iterator[dict[str, Any]]:
    if options.only == "size-loss":
        yield from size_loss(options, machine)
        return
    with LocalMeasurer() as measurer:
        for case in CASES:
            if options.only not in (None, case.name):
                continue
            task = Task(parse(case.workload), machine.with_threads(options.threads))
            for name in SPACES.names():
                if options.space in (None, name):
                    found = space(name, task)
                    yield sizes(case, found)
                    yield rate(case, found)
                    if not options.no_race:
                        yield from searched(case, found, task, measurer, options)


def _line(row: dict[str, Any]) -> str:
    low = row["metric"].startswith("loss")
    met = row["target"] is not None and (row["value"] <= row["target"] if low else row["value"] >= row["target"])
    verdict = "" if row["target"] is None else "ok  " if met else "MISS"
    goal = "" if row["target"] is None else f"target {row['target']:<7g}"
    extra = {k: v for k, v in row.items() if k not in ("case", "metric", "value", "target")}
    shown = "  ".join(f"{k} {v}" for k, v in extra.items())
    return f"{row['case']:26s} {row['metric']:15s} {row['value']:>12,}  {goal:15s}{verdict:5s} {shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--only", choices=[*(c.name for c in CASES), "size-loss"], metavar="CASE", help="one workload")
    parser.add_argument("--space", choices=SPACES.names(), metavar="NAME", help="one space")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--random", type=int, default=RANDOM, help="how many random points to measure")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.5, help="how long each race lasts at least")
    parser.add_argument("--no-race", action="store_true", help="sizes and rates only")
    parser.add_argument("--no-exhaustive", action="store_true", help="do not measure whole spaces")
    options = parser.parse_args()
    for row in rows(options, detect()):
        print(json.dumps(row) if options.json else _line(row), flush=True)


if __name__ == "__main__":
    main()
