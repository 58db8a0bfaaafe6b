"""The quality of searches on this machine: rows for `python -m benchmarks.search --quality`.

Every run is kept in a file of results, so that a long benchmark can be done in parts: finished runs are not repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.lab.study import Study, judge
from searchlab.search import MODELS, History, Points, Task, Trials, space
from searchlab.targets import detect
from searchlab.workloads import parse

TRIALS, BATCH, THREADS = 256, 16, 2
GUIDED = {"model": "gbt", "strategy": "evolutionary"}
RANDOM = {"model": None, "strategy": "random"}
TRANSFER = {"model": "transfer", "strategy": "evolutionary"}


@dataclass(frozen=True)
class Case:
    """A workload, the required ratio to the better of numpy and torch, and a related workload to transfer from."""

    name: str
    workload: str
    goal: float
    relative: str = ""

    @property
    def task(self) -> Task:
        return Task(parse(self.workload), detect(THREADS))


CASES = (
    Case("matmul-512", "matmul:m=512,n=512,k=512", 0.9, "matmul-1024"),
    Case("matmul-1024", "matmul:m=1024,n=1024,k=1024", 0.9, "matmul-512"),
    Case("dense", "dense:m=128,n=3072,k=768,bias=false", 0.9),
    Case("conv2d-64", "conv2d:ci=64,co=64,h=56,w=56,k=3,padding=1", 0.9, "conv2d-128"),
    Case("conv2d-128", "conv2d:ci=128,co=128,h=28,w=28,k=3,padding=1", 0.9, "conv2d-64"),
    Case("depthwise", "depthwise_conv2d:c=144,h=56,w=56,k=3,padding=1", 1.2),
    Case("softmax", "softmax:rows=128,cols=4096", 1.2),
    Case("layer-norm", "layer_norm:rows=512,cols=768", 1.2),
)
BY_NAME = {c.name: c for c in CASES}


class Results:
    """Finished runs, one JSON line each, keyed by case, kind and seed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.found = {(r["case"], r["kind"], r["seed"]): r for r in map(json.loads, lines)}

    def of(self, case: Case, kind: str, seed: int, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        key = (case.name, kind, seed)
        if key not in self.found:
            self.found[key] = {"case": case.name, "kind": kind, "seed": seed, **make()}
            with self.path.open("a") as file:
                file.write(json.dumps(self.found[key]) + "\n")
        return self.found[key]


def searched(case: Case, seed: int, how: dict[str, Any], history: Sequence[Trials] = ()) -> dict[str, Any]:
    """Runs one search: its trials, the final race, and the wall time up to the verified best."""
    with Study(case.task, "sketch", how["model"], how["strategy"], seed=seed, batch=BATCH, history=history) as study:
        study.optimize(trials=TRIALS)
        wall = study.ledger.wall
        final = study.finish()
    trials = study.trials
    return {
        "seconds": trials.seconds.tolist(),
        "sketch": trials.points.sketch.tolist(),
        "options": trials.points.options.tolist(),
        "wall_s": round(wall, 2),
        "ratio": final.ratio,
        "final_s": final.seconds,
        "baselines": dict(final.baselines),
        "other_load": round(final.load, 3),
        "ledger": {k: round(v, 2) for k, v in study.ledger.seconds.items()},
    }


def as_trials(case: Case, runs: Sequence[dict[str, Any]]) -> Trials:
    """The trials of some runs as training data."""
    found = space("sketch", case.task)
    points = Points.concat([Points(np.array(r["sketch"], np.int32), np.array(r["options"], np.int32)) for r in runs])
    return Trials(case.name, found, points, np.concatenate([r["seconds"] for r in runs]))


def to_reach(seconds: Sequence[float], target: float) -> int:
    """The number of trials until `target` was reached; one more than all of them if it was not."""
    hits = np.flatnonzero(np.array(seconds) <= target)
    return int(hits[0]) + 1 if len(hits) else len(seconds) + 1


def rows(cases: Sequence[Case], seeds: int, kinds: Sequence[str], path: Path) -> Iterator[dict[str, Any]]:
    """All rows of the requested kinds: ratio, speed-up over random search, transfer, accuracy of models."""
    results = Results(path)
    for case in cases:
        guided = [results.of(case, "guided", s, partial(searched, case, s, GUIDED)) for s in range(seeds)]
        yield _ratios(case, guided)
        if not {"random", "transfer", "models"} & set(kinds):
            continue
        random = [results.of(case, "random", s, partial(searched, case, s, RANDOM)) for s in range(seeds)]
        targets = [min(r["seconds"]) for r in random]
        yield _reached(case, "trials_share_of_random", guided, targets, TRIALS, 1 / 3)
        if "transfer" in kinds and case.relative:
            yield from _transferred(case, results, guided, targets, seeds)
        if "models" in kinds:
            yield from accuracy(case, random)


def _ratios(case: Case, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = [r["ratio"] for r in runs]
    return {
        "case": case.name,
        "metric": "ratio",
        "value": round(float(np.median(found)), 3),
        "target": case.goal,
        "all": [round(x, 3) for x in found],
        "wall_s": [r["wall_s"] for r in runs],
        "best_ms": [round(1e3 * r["final_s"], 4) for r in runs],
        "other_load": max(r["other_load"] for r in runs),
    }


def _reached(
    case: Case, metric: str, runs: Sequence[dict[str, Any]], targets: Sequence[float], whole: float, goal: float
) -> dict[str, Any]:
    """The trials that the runs took to match random search, as a fraction of `whole`; paired by seed."""
    took = [to_reach(r["seconds"], t) for r, t in zip(runs, targets, strict=True)]
    shares = [t / whole for t in took]
    return {
        "case": case.name,
        "metric": metric,
        "value": round(float(np.median(shares)), 3),
        "target": round(goal, 3),
        "trials": took,
    }


def _transferred(
    case: Case, results: Results, guided: Sequence[dict[str, Any]], targets: Sequence[float], seeds: int
) -> Iterator[dict[str, Any]]:
    relative = BY_NAME[case.relative]
    sources = [results.of(relative, "guided", s, partial(searched, relative, s, GUIDED)) for s in range(seeds)]
    runs = []
    for s in range(seeds):
        history = [as_trials(relative, sources[s : s + 1])]
        runs.append(results.of(case, "transfer", s, partial(searched, case, s, TRANSFER, history)))
    alone = [to_reach(r["seconds"], t) for r, t in zip(guided, targets, strict=True)]
    yield _reached(case, "transfer_share_of_alone", runs, targets, float(np.median(alone)), 0.5)


def accuracy(case: Case, random: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Fraction of correctly ordered pairs of unseen random programs, trained on 1,000 (or all but 200) others."""
    all_trials = as_trials(case, random)
    order = np.random.default_rng(0).permutation(len(all_trials))
    count = min(1000, len(order) - 200)
    train, test = order[:count], order[count:]
    known = Trials(case.name, all_trials.space, all_trials.points[train], all_trials.seconds[train])
    for model, goal in (("gbt", 0.85), ("treegru", None)):
        made = MODELS.make(model, rng=np.random.default_rng(0))
        made.fit(History.of([known]))
        quality = judge(made.predict(known.space, all_trials.points[test]), all_trials.seconds[test])
        assert quality is not None
        yield {
            "case": f"{case.name}/{model}",
            "metric": "pairwise",
            "value": round(quality.pairwise, 3),
            "target": goal,
            "trained_on": count,
            "tested_on": len(test),
        }
