"""Spaces with tensor intrinsics against the same without: python -m benchmarks.tensorised [--json] [--only CASE].

For each case and space two searches with the same model, strategy, seed and number of trials: one in the space that
calls intrinsics, one in the space without (`intrinsics: never`).  What both found is raced side by side.

`best`    the time of the best without calls, divided by that of the best with calls; above 1 calls are faster
`trials`  the number of trials of the search without calls, divided by the number after which the search with calls was
          as fast as the other at its end, up to the noise; 0 if it never was

The rows of case `all` are geometric means over the cases of a space.  All of it takes about six minutes; `--space` and
`--only` take parts of it.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from searchlab.bench import OtherLoad, prepare_program, race
from searchlab.ir import Program
from searchlab.lab.study import Study
from searchlab.runtime.memory import placed
from searchlab.search import SPACES, Task
from searchlab.targets import CpuTarget, cpu_of, detect
from searchlab.workloads import parse

BEST, TRIALS = 1.15, 2.0  # the targets of the two figures
WITH, WITHOUT = "with", "without"
NOISE = 1.02  # a level is reached by a time that is longer by no more than noise makes it


@dataclass(frozen=True)
class SearchCase:
    """A workload, and the option with which a space calls intrinsics for it."""

    name: str
    workload: str
    intrinsics: str = "auto"


CASES = (
    SearchCase("matmul-u8", "matmul:m=256,n=256,k=256,dtype=uint8"),
    SearchCase("qconv2d", "qconv2d:ci=64,co=64,h=28,w=28,k=3,padding=1,zero=128,out_zero=128"),
    SearchCase("qdense", "qdense:m=64,n=512,k=768,zero=128,out_zero=128"),
    SearchCase("matmul-f32", "matmul:m=384,n=384,k=384", "always"),
)


@dataclass(frozen=True)
class SearchEnd:
    """What a search found: the time of every trial, and the best program."""

    seconds: Sequence[float]
    program: Program

    @property
    def best_s(self) -> float:
        """The shortest time."""
        return min(self.seconds)


def search(case: SearchCase, space: str, intrinsics: str, target: CpuTarget, trials: int, seed: int) -> SearchEnd:
    """A search from random candidates, with the model and the strategy that are the defaults."""
    task = Task(parse(case.workload), target)
    with Study(task, {space: {"intrinsics": intrinsics}}, seed=seed, start="random") as study:
        best = study.optimize(trials=trials)
        return SearchEnd(study.trials.seconds.tolist(), best.program)


def trials_to(seconds: Sequence[float], level: float) -> float:
    """The number of trials after which a search was at a level; infinite if it never was."""
    there = np.flatnonzero(np.asarray(seconds) <= NOISE * level)
    return float(there[0] + 1) if len(there) else math.inf


def compared(case: SearchCase, space: str, target: CpuTarget, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The two rows of a case and a space."""
    kinds = {WITH: case.intrinsics, WITHOUT: "never"}
    found = {k: search(case, space, v, target, options.trials, options.seed) for k, v in kinds.items()}
    w = parse(case.workload)
    inputs = {name: placed(x) for name, x in w.inputs().items()}
    runs = {k: prepare_program(f.program, w, inputs, target, w.weights)[0] for k, f in found.items()}
    with OtherLoad() as others:
        times = race(runs, options.seconds, threads=target.threads)
    name, load = f"{case.name}/{space}", {"other_load": round(others.share, 2)}
    times_ms = {f"{k}_ms": round(1e3 * t.min, 4) for k, t in times.items()}
    yield _row(name, "best", times[WITHOUT].min / times[WITH].min, BEST) | times_ms | load
    needed = trials_to(found[WITH].seconds, found[WITHOUT].best_s)
    searched_ms = {f"{k}_searched_ms": round(1e3 * f.best_s, 4) for k, f in found.items()}
    yield _row(name, "trials", options.trials / needed, TRIALS) | searched_ms


def rows(options: argparse.Namespace, machine: CpuTarget) -> Iterator[dict[str, Any]]:
    """The rows of all cases in all spaces, or of one, and their means."""
    target = machine.with_threads(1)
    for space in [options.space] if options.space else SPACES.names():
        every: dict[str, list[float]] = {"best": [], "trials": []}
        for case in (c for c in CASES if options.only in (None, c.name)):
            for row in compared(case, space, target, options):
                every[row["metric"]].append(row["value"])
                yield row
        for metric, target_value in (("best", BEST), ("trials", TRIALS)):
            logs = np.log(np.maximum(every[metric], 1e-3))
            yield _row(f"all/{space}", metric, float(np.exp(logs.mean())), target_value)


def _row(case: str, metric: str, value: float, goal: float) -> dict[str, Any]:
    return {"case": case, "metric": metric, "value": round(value, 3), "target": goal}


def _line(row: dict[str, Any]) -> str:
    verdict = "ok  " if row["value"] >= row["target"] else "MISS"
    more = "  ".join(f"{k} {v}" for k, v in row.items() if k not in ("case", "metric", "value", "target"))
    head = f"{row['case']:26s} {row['metric']:8s} {row['value']:8.3f}  target {row['target']:<5g} {verdict}"
    return f"{head}  {more}".rstrip()


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a row for every case, space and metric."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object for each row")
    parser.add_argument("--only", choices=[c.name for c in CASES], help="one case")
    parser.add_argument("--space", choices=SPACES.names(), metavar="NAME", help="one space")
    parser.add_argument("--trials", type=int, default=64, help="of each search")
    parser.add_argument("--seed", type=int, default=0, help="of all searches")
    parser.add_argument("--seconds", type=float, default=0.7, help="of each race")
    options = parser.parse_args(arguments)
    for row in rows(options, cpu_of(detect())):
        print(json.dumps(row) if options.json else _line(row), flush=True)


if __name__ == "__main__":
    main()
