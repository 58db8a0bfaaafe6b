"""Random programs under random schedules, compiled and compared with what the unscheduled program computes.

    python tests/random_runs.py --count 20000 --first 0 --jobs 2

A schedule's primitives may refuse anything; what they accept must compile (unless it is more code than may be
generated) and give the right result.  Every fault is told with its seed, its trace and both programs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from checked_run import run_checked
from random_programs import random_inputs, random_program
from random_schedules import random_schedule

from searchlab.backend import compile
from searchlab.errors import BudgetError
from searchlab.ir import interpret
from searchlab.ir.program import Program
from searchlab.lower.passes import lower
from searchlab.schedule import trace_json
from searchlab.targets import Target, detect, parse

STEPS = 16  # primitives of one schedule, at most
PIECE = 500  # programs that one process runs
Arrays = dict[str, np.ndarray]


def fault(seed: int, figures: Counter[str] | None = None) -> str | None:
    """What is wrong with one program, with all that is needed to see it again."""
    rng = np.random.default_rng([13, seed])
    plain = random_program(rng)
    inputs = random_inputs(plain, rng)
    expected = interpret(plain, inputs)
    figures = Counter() if figures is None else figures
    program = random_schedule(plain, rng, int(rng.integers(1, STEPS + 1)), figures)
    figures["programs"] += 1
    try:
        found = _difference(program, inputs, expected, seed)
    except BudgetError:
        figures["too much code"] += 1
        return None
    except Exception:
        found = traceback.format_exc(limit=-5)
    if found is None:
        return None
    return f"seed {seed} for {target(seed)}: {found}\n{trace_json(program)}\n{plain}\n{program}"


def target(seed: int) -> Target:
    """Registers of two widths, one thread and two."""
    here = detect()
    if here.arch == "x86_64":
        here = parse("x86-64-v3" if here.vector_bits >= 256 and seed % 3 else "x86-64-v2")
    return replace(here, cores=2, threads=1 + seed % 2)


def _difference(program: Program, inputs: Arrays, expected: Arrays, seed: int) -> str | None:
    if not program.layouts and not _same(interpret(program, inputs), expected):
        return "the scheduled program computes something else"
    where = target(seed)
    # first with every access checked: what is stored outside an array may change no result, and end the process later
    if not _same(run_checked(lower(program, where), program, inputs), expected):
        return "its plain loops compute something else"
    made = compile(program, where)(*(inputs[n] for n in program.inputs))
    outputs = dict(zip(program.outputs, made if isinstance(made, tuple) else (made,), strict=True))
    return None if _same(outputs, expected) else "its code computes something else"


def _same(found: Arrays, expected: Arrays) -> bool:
    """Equal but for rounding: values are integers, and exact as long as they are not huge."""
    for name, e in expected.items():
        largest = np.abs(e[np.isfinite(e)]).max(initial=1)
        if not np.allclose(found[name], e, rtol=0, atol=1e-6 * largest):
            return False
    return True


def run(seeds: range) -> tuple[list[str], Counter[str]]:
    """The faults of several programs, and how much was tried."""
    figures: Counter[str] = Counter()
    found = [message for seed in seeds if (message := fault(seed, figures)) is not None]
    return found, figures


def run_apart(seeds: range) -> tuple[list[str], Counter[str]]:
    """The same in a process of its own, which may end in any way, and gives back the memory of the code it has made."""
    command = [sys.executable, __file__, f"--first={seeds.start}", f"--count={len(seeds)}", "--jobs=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [f"the process for {seeds} ended with {done.returncode}: {done.stderr[-2000:]}"], Counter()
    found, figures = json.loads(done.stdout)
    return found, Counter(figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; 0: in this one, told as JSON")
    options = parser.parse_args()
    start, end = time.monotonic(), options.first + options.count
    if not options.jobs:
        print(json.dumps(run(range(options.first, end))))
        return
    faults, figures = 0, Counter[str]()
    pieces = [range(n, min(n + PIECE, end)) for n in range(options.first, end, PIECE)]
    with ThreadPoolExecutor(options.jobs) as pool:
        for found, part in pool.map(run_apart, pieces):
            figures += part
            faults += len(found)
            told = ", ".join(f"{k}: {v}" for k, v in sorted(figures.items()))
            print(*found, f"{faults} faults after {time.monotonic() - start:.0f} s ({told})", sep="\n", flush=True)
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
