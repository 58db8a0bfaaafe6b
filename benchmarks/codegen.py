"""Hand-written schedules beside libraries: python -m benchmarks.codegen [--json] [--only CASE] [--seconds S].

A ratio is the fastest library's minimum time divided by ours, taken in one interleaved run; above 1 we are faster.
Convolutions are compared on the same NCHW arrays; torch's channels_last time is shown but not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from benchmarks import schedules
from benchmarks.peak import peak_flops
from searchlab.backend import build, compile, load
from searchlab.bench import LIBRARIES, OtherLoad, libraries, race, threads
from searchlab.ir import Program, knob
from searchlab.schedule import Schedule
from searchlab.targets import Target, detect
from searchlab.targets import parse as parse_target
from searchlab.workloads import Workload, parse

Build = Callable[[Program, Target], Program]


@dataclass(frozen=True)
class Case:
    """A workload, its schedule, and the ratios to reach with one and two threads."""

    name: str
    workload: str
    schedule: Build
    targets: tuple[float, float]


def _dense(program: Program, target: Target) -> Program:
    return schedules.matmul(program, target, "Y")


CASES = (
    Case("matmul-512", "matmul:m=512,n=512,k=512", schedules.matmul, (1.0, 0.97)),
    Case("matmul-1024", "matmul:m=1024,n=1024,k=1024", schedules.matmul, (1.0, 0.97)),
    Case("dense", "dense:m=128,n=3072,k=768,bias=false", _dense, (1.0, 0.97)),
    Case("conv2d-64", "conv2d:ci=64,co=64,h=56,w=56,k=3,padding=1", schedules.conv2d, (1.0, 0.97)),
    Case("conv2d-128", "conv2d:ci=128,co=128,h=28,w=28,k=3,padding=1", schedules.conv2d, (1.0, 0.97)),
    Case("conv2d-1x1", "conv2d:ci=256,co=64,h=56,w=56,k=1", schedules.conv2d_1x1, (1.0, 0.97)),
    Case("depthwise", "depthwise_conv2d:c=144,h=56,w=56,k=3,padding=1", schedules.depthwise, (2.0, 1.5)),
    Case("softmax", "softmax:rows=128,cols=4096", schedules.by_rows, (1.2, 1.2)),
    Case("layer-norm", "layer_norm:rows=512,cols=768", schedules.by_rows, (1.0, 1.0)),
    Case("dense-bias-relu", "dense:m=128,n=3072,k=768,activation=relu", schedules.dense_bias_relu, (1.0, 1.0)),
)


def _prepared(case: Case, workload: Workload, inputs: dict[str, Any], target: Target) -> Callable[[], None]:
    kernel = compile(case.schedule(workload.program, target), target)
    run, outputs = kernel.prepare(*inputs.values())
    run()
    wrong = workload.check(dict(zip(workload.program.outputs, outputs, strict=True)), inputs)
    if wrong is not None:
        raise SystemExit(f"{case.name}: wrong result: {wrong}")
    return run


def measure(case: Case, machine: Target, seconds: float) -> Iterator[dict[str, Any]]:
    """One row per thread count: ratio, times in milliseconds, share of this machine's peak."""
    workload = parse(case.workload)
    inputs = workload.inputs(seed=0)
    for count, goal in zip((1, 2), case.targets, strict=True):
        if machine.cores < count:
            continue
        target = machine.with_threads(count)
        with threads(count):
            contenders = {"searchlab": _prepared(case, workload, inputs, target), **libraries(workload, inputs, count)}
            with OtherLoad() as others:
                times = race(contenders, seconds, threads=count)
        ours = times["searchlab"].min
        rivals = {n: t.min for n, t in times.items() if n in LIBRARIES}
        row = {
            "case": case.name,
            "metric": f"ratio-{count}t",
            "value": round(min(rivals.values()) / ours, 3),
            "target": goal,
        }
        row["other_load"] = round(others.share, 2)
        row["percent_of_peak"] = round(100 * workload.flops / ours / (peak_flops(target) * count), 1)
        row |= {f"{n}_ms": [round(1e3 * t.min, 4), round(1e3 * t.median, 4)] for n, t in times.items()}
        yield row


# --- compile and start-up time ----------------------------------------------------------------------------------------


def _symbolic_matmul(program: Program) -> Program:
    """The matmul schedule with knobs for tile sizes: scheduled once, substituted per candidate."""
    s = Schedule(program)
    mr, nr, panels_at_once = knob("mr"), knob("nr"), knob("nb")
    i, j, k = s.loops("C")
    panels = s.cache_read("C", "B")
    s.transform_layout(panels, lambda k, j: (j // nr, k, j % nr))
    i0, i1 = s.split(i, [None, mr])
    j0, j1, j2 = s.split(j, [None, panels_at_once, nr])
    s.reorder(j0, i0, j1, k, i1, j2)
    s.compute_at(panels, j0)
    s.vectorize(s.loops(panels)[-1])
    s.unroll(i1)
    s.vectorize(j2)
    s.parallel(j0)
    return s.program


def compile_time() -> dict[str, Any]:
    """From a row of integers to loaded code, over tile sizes a search would try."""
    target = detect().with_threads(2)
    symbolic = _symbolic_matmul(parse("matmul:m=512,n=512,k=512").program)
    samples = []
    for mr in (1, 2, 4, 8):
        for nr in (8, 16, 32, 64):
            for nb in (1, 2, 4):
                start = perf_counter()
                load(build(symbolic.substitute({"mr": mr, "nr": nr, "nb": nb}), target))
                samples.append(1e3 * (perf_counter() - start))
    return {
        "case": "compile",
        "metric": "median_ms",
        "value": round(statistics.median(samples), 1),
        "target": 40,
        "min_ms": round(min(samples), 1),
        "max_ms": round(max(samples), 1),
        "candidates": len(samples),
    }


def parallel_overhead() -> dict[str, Any]:
    """The cost of parallelising a loop of two short iterations: a call on two threads against the same call on one."""
    runs = {}
    for count in (1, 2):
        target = detect().with_threads(count)
        workload = parse("elementwise:rows=2,cols=64,ops=add")
        s = Schedule(workload.program)
        row, column = s.loops("Y")
        s.vectorize(column)
        s.parallel(row)
        runs[str(count)] = compile(s.program, target).prepare(*workload.inputs(seed=0).values())[0]
    times = race(runs, 0.5)
    microseconds = 1e6 * (times["2"].median - times["1"].median)
    return {"case": "parallel", "metric": "overhead_us", "value": round(microseconds, 2), "target": 10}


def _seconds(command: list[str]) -> float:
    best = float("inf")
    for _ in range(5):
        start = perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        best = min(best, perf_counter() - start)
    return round(best, 3)


def start_up() -> Iterator[dict[str, Any]]:
    """Importing the package, and the command line's help; the interpreter's own start is part of both."""
    yield {
        "case": "import",
        "metric": "seconds",
        "value": _seconds([sys.executable, "-c", "import searchlab"]),
        "target": 0.3,
    }
    yield {
        "case": "help",
        "metric": "seconds",
        "value": _seconds([sys.executable, "-m", "searchlab", "--help"]),
        "target": 0.5,
    }


def rows(only: str | None, machine: Target, seconds: float) -> Iterator[dict[str, Any]]:
    for case in CASES:
        if only in (None, case.name):
            yield from measure(case, machine, seconds)
    if only in (None, "compile"):
        yield compile_time()
    if only in (None, "parallel") and machine.cores > 1:
        yield parallel_overhead()
    for row in start_up() if only in (None, "import", "help") else ():
        if only in (None, row["case"]):
            yield row


def _line(row: dict[str, Any]) -> str:
    lower_is_better = not row["metric"].startswith("ratio")
    met = row["value"] <= row["target"] if lower_is_better else row["value"] >= row["target"]
    verdict = "ok  " if met else "MISS"
    head = f"{row['case']:16s} {row['metric']:10s} {row['value']:8.3f}  target {row['target']:<5g} {verdict}"
    if "percent_of_peak" not in row:
        return head
    times = "  ".join(f"{k[:-3]} {v[0]:.3f}/{v[1]:.3f}" for k, v in row.items() if k.endswith("_ms"))
    busy = f"   (others used {row['other_load']:.0%} of the cores)" if row["other_load"] > 0.1 else ""
    return f"{head}  {row['percent_of_peak']:5.1f} % of peak   {times}{busy}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*(c.name for c in CASES), "compile", "parallel", "import", "help"]
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--only", choices=names, metavar="CASE", help=f"one of: {', '.join(names)}")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each race lasts at least")
    parser.add_argument("--target", default="native", help="code for another CPU that this one can run, e.g. x86-64-v3")
    options = parser.parse_args()
    here = detect()
    machine = replace(parse_target(options.target), cores=here.cores, l1=here.l1, l2=here.l2, l3=here.l3)
    if not options.json:
        peak = peak_flops(machine) / 1e9
        print(f"{machine}; peak {peak:.0f} GFLOP/s per core; times are min/median in ms\n", flush=True)
    for row in rows(options.only, machine, options.seconds):
        print(json.dumps(row) if options.json else _line(row), flush=True)


if __name__ == "__main__":
    main()
