"""The time from a candidate to its code: python -m benchmarks.lowering [--json] [--only CASE] [--points N].

Each case is a symbolic schedule with the structure that searches use most (SSRSRS: two tiles of space around one of
reduction, twice) and random integers for it, most of which do not divide.  `substitute`, `lower` and `generate` (LLVM
IR as text) are timed separately, in CPU time; `compile` is the time of LLVM.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from searchlab.ir import Program, knob
from searchlab.llvm.jit import compile_ir
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule
from searchlab.targets import Target, detect
from searchlab.workloads import parse

Row = dict[str, Any]
Numbers = dict[str, int]

SPECS = {
    "matmul": "matmul:m=509,n=512,k=500",
    "conv2d": "conv2d:ci=64,co=60,h=56,w=56,k=3,padding=1",
    "depthwise": "depthwise_conv2d:c=96,h=56,w=56,k=3,padding=1",
}
SPACE_LEVELS, REDUCE_LEVELS = 4, 2
MENU = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)
UNROLL = (0, 16, 64, 512)
KINDS = ("nested", "flat", "unrolled")
GOALS_MS = {"lower": 20.0, "substitute": 5.0}


def _levels(s: Schedule, loop: str, factors: list[Any], nested: bool) -> list[str]:
    """Splits a loop into several: by one split with all factors, or by a split of the rest at every level."""
    if not nested:
        return s.split(loop, [None, *factors], tail=True)
    found = [loop]
    for n in range(len(factors)):
        inside = factors[n]
        for f in factors[n + 1 :]:
            inside = inside * f
        found += s.split(found.pop(), [None, inside], tail=True)
    return found


def ssrsrs(program: Program, *, nested: bool) -> Program:
    """Four levels of space and two of reduction, with a cached output, a parallel outer tile and vectors inside."""
    s = Schedule(program)
    block = next(b for b in program.blocks.values() if b.reduces)
    loops = s.loops(block.name)
    levels: dict[str, list[list[str]]] = {"space": [], "reduce": []}
    for it, loop in zip(block.iters, loops, strict=True):
        count = SPACE_LEVELS if it.kind == "space" else REDUCE_LEVELS
        factors = [knob(f"{loop}{n}") for n in range(1, count)]
        levels[it.kind].append(_levels(s, loop, factors, nested))
    s0, s1, s2, s3 = ([lp[n] for lp in levels["space"]] for n in range(SPACE_LEVELS))
    r0, r1 = ([lp[n] for lp in levels["reduce"]] for n in range(REDUCE_LEVELS))
    s.reorder(*s0, *s1, *r0, *s2, *r1, *s3)
    s.vectorize(s3[-1])
    s.annotate(block.name, "unroll_up_to", knob("unroll"))
    s.parallel(s.fuse(*s0))
    return s.program


def points(program: Program, count: int, *, unrolled: bool) -> Iterator[Numbers]:
    """Random integers for all symbols; with `unrolled`, wide vectors and the largest unrolling."""
    rng = np.random.default_rng(0)
    last = [k for k in program.knobs if k.endswith("3")][-1]
    for _ in range(count):
        found = {k: int(rng.choice(MENU)) for k in program.knobs}
        found["unroll"] = int(UNROLL[-1] if unrolled else rng.choice(UNROLL))
        found[last] = 64 if unrolled else found[last]
        yield found


def _timed(function: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    start = time.process_time()
    result = function(*args)
    return 1e3 * (time.process_time() - start), result


def measure(case: str, program: Program, target: Target, count: int, compiled: int) -> Iterator[Row]:
    """Rows of medians and maxima in milliseconds."""
    times: dict[str, list[float]] = {"substitute": [], "lower": [], "generate": [], "compile": []}
    for n, numbers in enumerate(points(program, count, unrolled=case.endswith("unrolled"))):
        took, concrete = _timed(program.substitute, numbers)
        times["substitute"].append(took)
        took, lowered = _timed(lower, concrete, target)
        times["lower"].append(took)
        took, code = _timed(generate, lowered, target)
        times["generate"].append(took)
        if n < compiled:
            times["compile"].append(_timed(compile_ir, code.ir, target)[0])
    for step, found in times.items():
        if found:
            yield {
                "case": case,
                "step": step,
                "median_ms": round(statistics.median(found), 2),
                "max_ms": round(max(found), 2),
                "target_ms": GOALS_MS.get(step),
                "points": len(found),
            }


def rows(only: str | None, count: int, compiled: int) -> Iterator[Row]:
    for name, spec in SPECS.items():
        for kind in KINDS:
            if only in (None, f"{name}-{kind}", name):
                program = ssrsrs(parse(spec).program, nested=kind == "nested")
                yield from measure(f"{name}-{kind}", program, detect(), count, compiled)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument(
        "--only", metavar="CASE", help=f"one of {', '.join(SPECS)}, or with one of -{', -'.join(KINDS)}"
    )
    parser.add_argument("--points", type=int, default=40, help="candidates per case")
    parser.add_argument("--compiled", type=int, default=10, help="how many of them LLVM compiles too")
    options = parser.parse_args()
    for row in rows(options.only, options.points, options.compiled):
        aim = f"  target {row['target_ms']:g}" if row["target_ms"] else ""
        text = f"{row['case']:20} {row['step']:11} median {row['median_ms']:9.2f} ms   max {row['max_ms']:9.2f} ms{aim}"
        print(json.dumps(row) if options.json else text, flush=True)


if __name__ == "__main__":
    main()
