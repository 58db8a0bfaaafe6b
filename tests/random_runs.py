"""Random programs under random schedules, compiled and compared with what the unscheduled program computes.

    python tests/random_runs.py --count 20000 --first 0 --jobs 2

A schedule's primitives may refuse anything; what they accept must compile (unless it is more code than may be
generated) and give the right result.  Every fault is told with its seed, its trace and both programs.
"""

from __future__ import annotations

import argparse
import os
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
from checked_run import run_checked
from random_programs import random_inputs, random_program
from random_schedules import random_schedule

from searchlab.codegen.kernel import compile
from searchlab.codegen.lower import lower
from searchlab.errors import BudgetError
from searchlab.ir import interpret
from searchlab.ir.program import Program
from searchlab.schedule import trace_json
from searchlab.targets import Target, detect, parse

STEPS = 16  # primitives of one schedule, at most
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    start, faults, figures = time.monotonic(), 0, Counter[str]()
    end = options.first + options.count
    pieces = [range(n, min(n + 100, end)) for n in range(options.first, end, 100)]
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=10) as pool:
        for number, (found, part) in enumerate(pool.map(run, pieces), 1):
            figures += part
            faults += len(found)
            for message in found:
                print(message, flush=True)
            if number % 5 == 0 or number == len(pieces):
                told = ", ".join(f"{k}: {v}" for k, v in figures.items())
                print(f"{faults} faults after {time.monotonic() - start:.0f} s ({told})", flush=True)
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
