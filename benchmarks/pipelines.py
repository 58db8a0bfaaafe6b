"""The value of LLVM passes: compile and run time of typical kernels under several pipelines, interleaved.

python -m benchmarks.pipelines [--json] [--only CASE].  Times are relative to the pipeline in use (`jit.PIPELINE`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import perf_counter
from typing import Any

from benchmarks.codegen import CASES, Case
from searchlab.backend import build, load
from searchlab.bench import race
from searchlab.llvm import jit
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.targets import detect
from searchlab.workloads import parse

PIPELINES: dict[str, tuple[str, ...]] = {
    "in use": jit.PIPELINE,
    "sroa": ("sroa",),
    "sroa+instcombine": ("sroa", "instcombine"),
    "with newgvn": (*jit.PIPELINE, "newgvn"),
    "with dse": (*jit.PIPELINE, "dse"),
    "O1": ("O1",),
    "O2": ("O2",),
    "O3": ("O3",),
}


def _kernels(case: Case) -> tuple[dict[str, Callable[[], None]], dict[str, float]]:
    target = detect().with_threads(1)
    workload = parse(case.workload)
    program = case.schedule(workload.program, target)
    artifact = build(program, target)
    ir = generate(lower(program, target), target).ir
    inputs = workload.inputs(seed=0)
    runs, seconds = {}, {}
    for name, pipeline in PIPELINES.items():
        best = float("inf")
        for _ in range(5):
            start = perf_counter()
            code = jit.compile_ir(ir, target, pipeline=pipeline)
            best = min(best, perf_counter() - start)
        seconds[name] = best
        runs[name] = load(replace(artifact, code=code)).prepare(*inputs.values())[0]
    return runs, seconds


def rows(only: str | None) -> Iterator[dict[str, Any]]:
    for case in CASES:
        if only in (None, case.name):
            runs, seconds = _kernels(case)
            times = race(runs, 1.0)
            for name in PIPELINES:
                slower = times[name].min / times["in use"].min
                yield {"case": case.name, "metric": f"run time: {name}", "value": round(slower, 3), "target": None,
                       "compile_ms": round(1e3 * seconds[name], 2)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--only", choices=[c.name for c in CASES], metavar="CASE")
    options = parser.parse_args()
    for row in rows(options.only):
        text = f"{row['case']:16s} {row['metric']:28s} {row['value']:6.3f}   compile {row['compile_ms']:7.2f} ms"
        print(json.dumps(row) if options.json else text, flush=True)


if __name__ == "__main__":
    main()
