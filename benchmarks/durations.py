"""Predicted times beside true ones: python -m benchmarks.durations [--json] [--only builds|forecast] [--points N].

`builds` builds candidates, half of them the largest of many, and compares their times with `search.build_time`;
`fit` has the constants of seconds = base + each * instructions that would suit these best.  `forecast` runs a few small
experiments and compares their duration with what `searchlab run --dry-run` would have said.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.backend import build
from searchlab.errors import BuildError
from searchlab.lab.cells import cells
from searchlab.lab.config import from_data
from searchlab.lab.run import run
from searchlab.lab.run.execute.forecast import forecast
from searchlab.search import Task, space
from searchlab.search.build_time import build_s
from searchlab.search.knob import Floats
from searchlab.targets import detect
from searchlab.workloads import parse

BUILDS = (
    "matmul:m=512,n=512,k=512",
    "conv2d:ci=64,co=64,h=56,w=56,k=3,padding=1",
    "conv2d:ci=256,co=64,h=56,w=56,k=1",
    "depthwise_conv2d:c=144,h=56,w=56,k=3,padding=1",
    "softmax:rows=128,cols=4096",
    "dense:m=64,n=4096,k=1024,activation=gelu",
)
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "products": {"workloads": ["matmul:m=256,n=256,k=256"], "sweep": {"space": ["template", "sketch"]}},
    "convolution": {"workloads": ["conv2d:ci=32,co=32,h=28,w=28,k=3,padding=1"], "space": "sketch"},
    "rows": {"workloads": ["softmax:rows=128,cols=1024", "layer_norm:rows=512,cols=768"], "space": "sketch"},
}
_PROMISING = 16  # of so many candidates, the one with the most instructions is built: searches prefer large ones
FORECAST_TARGET = 1.5


def builds(points: int) -> Iterator[dict[str, Any]]:
    """Predicted and true build times by workload, and the constants that fit all of them best."""
    target, rng = detect(), np.random.default_rng(0)
    every: list[tuple[Floats, Floats]] = []
    for spec in BUILDS:
        found = space("sketch", Task(parse(spec), target))
        some = found.sample(points * _PROMISING, rng)
        order = np.argsort(build_s(found, some))[::-1]
        chosen = some[np.concatenate([order[: points // 2], order[points // 2 :: _PROMISING * 2]])]
        took = np.array([_seconds(found.program(p)) for p in chosen])
        kept = np.isfinite(took)
        numbers = np.exp2(found.features(chosen, "code")[:, 0].astype(np.float64)) - 1
        every.append((numbers[kept], took[kept]))
        ratio = np.exp(np.abs(np.log(build_s(found, chosen)[kept] / took[kept])).mean())
        yield {"case": spec, "builds": int(kept.sum()), "seconds": float(took[kept].mean()), "factor": float(ratio)}
    numbers, took = (np.concatenate(column) for column in zip(*every, strict=True))
    base, each = _fit(numbers, took)
    yield {"case": "fit", "base_s": base, "each_s": each}


def _seconds(program: Any) -> float:
    begin = time.process_time()
    try:
        build(program, detect())
    except BuildError:
        return math.inf
    return time.process_time() - begin


def _fit(numbers: Floats, took: Floats) -> tuple[float, float]:
    """The constants with the least error of logarithms."""
    tried = [(a, b) for a in np.geomspace(0.003, 0.1, 30) for b in np.geomspace(1e-6, 1e-3, 60)]
    return min(tried, key=lambda c: float(((np.log(c[0] + c[1] * numbers) - np.log(took)) ** 2).sum()))


def forecasts() -> Iterator[dict[str, Any]]:
    """Forecast and duration of every experiment."""
    for name, given in EXPERIMENTS.items():
        common = {"name": name, "model": "gbt", "budget": {"trials": 24, "batch": 8}, "seeds": [0, 1]}
        experiment = from_data({**common, **given})
        expected = forecast(cells(experiment), []).seconds
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            run(experiment, Path(folder) / "run")
            took = time.perf_counter() - begin
        ratio = expected / took
        met = 1 / FORECAST_TARGET <= ratio <= FORECAST_TARGET
        yield {"case": f"forecast {name}", "forecast_s": expected, "seconds": took, "ratio": ratio, "met": met}


def main() -> None:
    """Prints rows as text or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--only", choices=("builds", "forecast"))
    parser.add_argument("--points", type=int, default=24, help="candidates to build for each workload")
    options = parser.parse_args()
    rows = [] if options.only == "forecast" else [builds(options.points)]
    rows += [] if options.only == "builds" else [forecasts()]
    for row in (row for some in rows for row in some):
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in row.items()}
        shown = (f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in plain.items() if k != "case")
        print(json.dumps(plain) if options.json else f"{plain['case']:48s} {', '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
