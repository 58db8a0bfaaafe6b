"""What a search spends on looking at candidates: python -m benchmarks.search [--json] [--only ROW].

`features`: candidates a second whose features are computed, in CPU time on one core, for a population of 2,048.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from searchlab.analysis import extractor
from searchlab.ir import knob
from searchlab.schedule import Schedule
from searchlab.search import Sketch, menu, split_knob
from searchlab.workloads import parse

POPULATION = 2048
ROUNDS = 30
_UNROLL = [0, 16, 64, 512]
_TARGETS = {"summary": 400_000, "statements": 150_000}
_SECONDS_TO_COMPILE = 0.3


def matmul_tiles(size: int = 512) -> Sketch:
    """Matmul in Ansor's order of tiles: ten loops."""
    s = Schedule(parse(f"matmul:m={size},n={size},k={size}").program)
    i, j, k = s.loops("C")
    rows = s.split(i, [knob(f"i{n}") for n in range(4)])
    columns = s.split(j, [knob(f"j{n}") for n in range(4)])
    k0, k1 = s.split(k, [knob("k0"), knob("k1")])
    s.reorder(rows[0], columns[0], rows[1], columns[1], k0, rows[2], columns[2], k1, rows[3], columns[3])
    s.parallel(rows[0])
    s.vectorize(columns[3])
    s.annotate("C", "unroll_up_to", knob("unroll"))
    knobs = (split_knob("i", size, 4, 64), split_knob("j", size, 4, 64), split_knob("k", size, 2))
    return Sketch("matmul-512", (*knobs, menu("unroll", _UNROLL)), program=s.program)


def conv2d_tiles(channels: int = 64, side: int = 56) -> Sketch:
    """3x3 convolution in the same order: 21 loops, the outermost fused, and the padding inside them."""
    s = Schedule(parse(f"conv2d:ci={channels},co={channels},h={side},w={side},k=3,padding=1").program)
    n, *loops = s.loops("Y")
    parts = {"c": 4, "h": 4, "w": 4, "ci": 2, "kh": 2, "kw": 2}
    made = {
        name: s.split(loop, [knob(f"{name}{n}") for n in range(count)])
        for loop, (name, count) in zip(loops, parts.items(), strict=True)
    }
    space, sums = ("c", "h", "w"), ("ci", "kh", "kw")
    order = [(space, 0), (space, 1), (sums, 0), (space, 2), (sums, 1), (space, 3)]
    s.reorder(n, *(made[name][level] for names, level in order for name in names))
    outer = s.fuse(n, made["c"][0], made["h"][0])
    s.parallel(outer)
    s.vectorize(made["w"][3])
    s.annotate("Y", "unroll_up_to", knob("unroll"))
    s.compute_at("P", outer)
    extents = {"c": channels, "h": side, "w": side, "ci": channels, "kh": 3, "kw": 3}
    knobs = [split_knob(name, extents[name], count) for name, count in parts.items()]
    return Sketch("conv2d-64", (*knobs, menu("unroll", _UNROLL)), program=s.program)


def features() -> Iterator[dict[str, Any]]:
    """Every view of the two nests."""
    for sketch in (matmul_tiles(), conv2d_tiles()):
        assert sketch.program is not None
        values = sketch.values(sketch.draw(POPULATION, np.random.default_rng(0)))
        for view in ("summary", "statements", "tree", "loops", "curves"):
            start = process_time()
            extract = extractor(sketch.program, view)
            compiling = process_time() - start
            seconds = _repeated(partial(extract, values))
            case = f"{sketch.name}/{view}"
            yield _row(case, "candidates_per_s", round(POPULATION / seconds.min()), _TARGETS.get(view))
            yield _row(case, "seconds_to_compile", round(compiling, 3), _SECONDS_TO_COMPILE)


def _repeated(run: Callable[[], Any]) -> Any:
    run()
    seconds = []
    for _ in range(ROUNDS):
        start = process_time()
        run()
        seconds.append(process_time() - start)
    return np.array(seconds)


def _row(case: str, metric: str, value: float, target: float | None) -> dict[str, Any]:
    return {"case": case, "metric": metric, "value": value, "target": target}


ROWS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {"features": features}


def _line(row: dict[str, Any]) -> str:
    target = row["target"]
    reached = target is not None and (row["value"] <= target) == row["metric"].startswith("seconds")
    verdict = "" if target is None else f"target {target:<9,g} {'ok' if reached else 'MISS'}"
    return f"{row['case']:26s} {row['metric']:20s} {row['value']:>12,}  {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--only", choices=ROWS, metavar="ROW", help=f"one of {', '.join(ROWS)}")
    options = parser.parse_args()
    for name, make in ROWS.items():
        if options.only in (None, name):
            for row in make():
                print(json.dumps(row) if options.json else _line(row), flush=True)


if __name__ == "__main__":
    main()
