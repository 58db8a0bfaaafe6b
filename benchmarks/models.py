"""Compiled models: python -m benchmarks.models [--json] [--only CASE].

`vm-overhead` is the time that the machine adds to a kernel: a graph of many kernels that do nothing, minus the time of
the same kernels in a native loop; with memory from a pool, and at fixed places in an arena.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from searchlab.graph import CompiledModel, GraphBuilder, GraphModule, compile
from searchlab.ir import size
from searchlab.llvm import abi
from searchlab.llvm.jit import compile_ir
from searchlab.runtime.runs import repeater
from searchlab.targets import detect

CALLS, ROUNDS, RUNS = 1000, 15, 20
TARGET_US = 2.0
_EMPTY = f"define void @NAME({', '.join(abi.PARAMETERS)}) nounwind {{\n  ret void\n}}\n"


def chain(calls: int) -> GraphModule:
    """A graph of small calls one after the other, at a size that is known when it runs."""
    n = size("n")
    b = GraphBuilder(ranges={n: (1, 64)})
    x = b.input("x", (n,))
    for _ in range(calls):
        x = b.relu(x)
    return b.build(x)


def emptied(module: GraphModule, policy: str) -> CompiledModel:
    """The model with kernels that return at once."""
    target = detect(threads=1)
    made = compile(module, target, options={"memory": policy, "fuse": "never"})
    kernels = {
        name: replace(k, code=compile_ir(_EMPTY.replace("NAME", name), target))
        for name, k in made.parts.kernels.items()
    }
    return CompiledModel(replace(made.parts, kernels=kernels), made.lowered)


def fastest(run: Callable[[], object]) -> float:
    """Seconds of one run: the fastest of several rounds of several."""
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(RUNS):
            run()
        seconds.append((time.perf_counter() - begin) / RUNS)
    return min(seconds)


def overhead(policy: str) -> tuple[float, float]:
    """Microseconds that the machine adds to a kernel, and those of a whole call of a model with one kernel."""
    x = np.ones(16, "float32")
    long, short = emptied(chain(CALLS), policy), emptied(chain(1), policy)
    (name,) = short.parts.kernels
    words = np.zeros(4, np.int64)
    entry = short.kernel_address(name)
    native, at = repeater(), words.ctypes.data
    alone = fastest(lambda: native(entry, at, at, 0, 0, 0, 0, 1, CALLS))
    whole, one = fastest(lambda: long(x)), fastest(lambda: short(x))
    return (whole - one - alone) / (CALLS - 1) * 1e6, one * 1e6


def rows(only: str | None) -> Iterator[dict[str, Any]]:
    """The results, a row for each metric of each case."""
    if only in (None, "vm-overhead"):
        for policy in ("pool", "bounds"):
            each, one = overhead(policy)
            yield {"case": "vm-overhead", "metric": f"us_per_kernel_{policy}", "value": each, "target": TARGET_US}
            yield {"case": "vm-overhead", "metric": f"us_per_model_call_{policy}", "value": one, "target": None}


CASES = ("vm-overhead",)


def main() -> None:
    """Prints the rows of all cases, or of one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--only", choices=CASES, metavar="CASE", help=f"one of: {', '.join(CASES)}")
    options = parser.parse_args()
    for row in rows(options.only):
        aim = f"  (target {row['target']:g})" if row["target"] is not None else ""
        text = f"{row['case']:14} {row['metric']:26} {row['value']:10.4g}{aim}"
        print(json.dumps(row) if options.json else text, flush=True)


if __name__ == "__main__":
    main()
