"""The cost and the results of searches: python -m benchmarks.search [--json] [--only ROW] [--quality | --learn].

`features`: candidates per second whose features are computed; `predict`: with features and trees, over a whole space;
`round`: one evolutionary round; `fit`: trees on 1,000 records.  All for a population of 2,048, in CPU time on one core.
`first`: from a task with hundreds of structures to the first batch that is ready to be measured, in CPU time.
`tune`: a whole search with its final race, wall time.

`--quality` compares the results of short searches with the best known programs, the default schedule and the libraries
(`benchmarks.quality`; about 20 minutes).  `--learn` searches long for better known programs (about two minutes for each
case and space).  Both take `--only CASE`, and keep what they have done in `--results`: finished parts are not repeated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks import quality
from benchmarks.attention import masked_attention
from searchlab.analysis import extractor
from searchlab.ir import knob
from searchlab.lab.study import Study
from searchlab.schedule import Schedule
from searchlab.search import (
    MODELS,
    STRATEGIES,
    CostModel,
    History,
    Sketch,
    Space,
    Task,
    Trials,
    menu,
    space,
    split_knob,
)
from searchlab.targets import detect
from searchlab.workloads import parse

POPULATION = 2048
ROUNDS = 30
_UNROLL = [0, 16, 64, 512]
_TARGETS = {"summary": 400_000, "statements": 150_000}
_SECONDS_TO_COMPILE = 0.3


def matmul_tiles(size: int = 512) -> Sketch:
    """Matmul in Ansor's tile order: ten loops."""
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


_SPACES = {
    "matmul-512": "matmul:m=512,n=512,k=512",
    "conv2d-64": "conv2d:ci=64,co=64,h=56,w=56,k=3,padding=1",
}


def predict() -> Iterator[dict[str, Any]]:
    """Features and trees for points of all sketches of a space."""
    for name, spec in _SPACES.items():
        found = space("sketch", Task(parse(spec), detect()))
        model = _fitted(found)
        points = found.sample(POPULATION, np.random.default_rng(1))
        seconds = _repeated(partial(model.predict, found, points))
        yield _row(f"{name}/gbt", "candidates_per_s", round(POPULATION / seconds.min()), 150_000)


def evolutionary_round() -> Iterator[dict[str, Any]]:
    """A batch of 16 from four generations of 2,048."""
    for name, spec in _SPACES.items():
        found = space("sketch", Task(parse(spec), detect()))
        model = _fitted(found)
        options = {"evolutionary": {"population": POPULATION, "generations": 4}}
        strategy = STRATEGIES.make(options, space=found, rng=np.random.default_rng(2))
        known = _records(found, 256)
        strategy.tell(known.points, known.seconds)
        seconds = _repeated(lambda s=strategy, m=model, f=found: s.ask(16, lambda p: m.predict(f, p)), 10)  # type: ignore[misc]
        yield _row(f"{name}/evolutionary", "seconds_round", round(float(seconds.min()), 3), 0.2)


def fit() -> Iterator[dict[str, Any]]:
    """Fits trees on 1,000 records, including their features."""
    for name, spec in _SPACES.items():
        found = space("sketch", Task(parse(spec), detect()))
        records = _records(found, 1000)
        model = MODELS.make("gbt", rng=np.random.default_rng(0))
        seconds = _repeated(partial(model.fit, History.of([records])), 5)
        yield _row(f"{name}/gbt", "seconds_fit_1000", round(float(seconds.min()), 3), 1.0)


def first() -> Iterator[dict[str, Any]]:
    """The space of masked attention, and the first batch of a search with the defaults."""
    task = Task(masked_attention(), detect())
    start = process_time()
    study = Study(task, "sketch", "gbt", "evolutionary", seed=0)
    building = process_time() - start
    count = len(study.ask())
    row = _row("masked-attention/sketch", "seconds_first_batch", round(process_time() - start, 2), 5)
    seen = [s.compiled("summary", task.target) for s in study.space.sketches]
    yield row | {"building": round(building, 2), "structures": len(seen), "compiled": sum(seen), "candidates": count}


def tune() -> Iterator[dict[str, Any]]:
    """Searches on matmul 512 with 2 threads, from the start to the final race against the libraries."""
    task = Task(parse(_SPACES["matmul-512"]), detect(2))
    for trials, goal in ((64, 20), (128, None), (256, 60)):
        start = perf_counter()
        with Study(task, "sketch", "gbt", "evolutionary", seed=0) as study:
            study.optimize(trials=trials)
            final = study.finish()
        wall = perf_counter() - start
        ledger = {k: round(v, 1) for k, v in study.ledger.seconds.items() if v >= 0.05}
        row = _row(f"matmul-512/{trials}-trials", "seconds_wall", round(wall, 1), goal)
        yield row | {"per_trial": round(wall / trials, 3), "ratio": final.ratio, "ledger": ledger}


def _records(found: Space, count: int) -> Trials:
    """Random points with times that have learnable structure."""
    points = found.sample_new(count, np.random.default_rng(0)).points
    guess = MODELS.make("roofline").predict(found, points)
    return Trials("t", found, points, np.exp(guess + 0.1 * np.random.default_rng(1).standard_normal(count)))


def _fitted(found: Space) -> CostModel:
    model = MODELS.make("gbt", rng=np.random.default_rng(0))
    model.fit(History.of([_records(found, 1000)]))
    return model


def _repeated(run: Callable[[], Any], rounds: int = ROUNDS) -> Any:
    run()
    seconds = []
    for _ in range(rounds):
        start = process_time()
        run()
        seconds.append(process_time() - start)
    return np.array(seconds)


def _row(case: str, metric: str, value: float, target: float | None) -> dict[str, Any]:
    return {"case": case, "metric": metric, "value": value, "target": target}


ROWS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "features": features, "predict": predict, "round": evolutionary_round, "fit": fit, "first": first,
    "tune": tune,
}  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    target = row["target"]
    low = row["metric"].startswith(("seconds", "wall"))
    reached = target is not None and (row["value"] <= target if low else row["value"] >= target)
    verdict = "" if target is None else f"target {target:<9,g} {'ok  ' if reached else 'MISS'}"
    more = "  ".join(f"{k} {v}" for k, v in row.items() if k not in ("case", "metric", "value", "target"))
    return f"{row['case']:26s} {row['metric']:24s} {row['value']:>12,}  {verdict}  {more}".rstrip()


def _rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if options.quality or options.learn:
        every = _cases(options)
        cases = [every[options.only]] if options.only else list(every.values())
        if options.learn:
            return quality.learn(cases, options.spaces, options.trials, options.results)
        return quality.rows(cases, options.seeds, options.results)
    return (row for name, make in ROWS.items() if options.only in (None, name) for row in make())


def _cases(options: argparse.Namespace) -> dict[str, quality.Case]:
    return quality.OTHER if options.other else quality.CASES


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--only", metavar="NAME", help="one row, or one case of --quality and --learn")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--quality", action="store_true", help="how good searches are, instead of how fast")
    kind.add_argument("--learn", action="store_true", help="look for better programs to compare with")
    parser.add_argument("--other", action="store_true", help="other shapes of the same operators")
    parser.add_argument("--seeds", type=int, default=5, help="searches of each case (--quality)")
    parser.add_argument("--spaces", nargs="*", choices=quality.SPACES, default=quality.SPACES, help="spaces of --learn")
    parser.add_argument("--trials", type=int, default=quality.LONG, help="trials of a search (--learn)")
    parser.add_argument("--results", type=Path, default=Path("search-quality.jsonl"), help="where results are kept")
    options = parser.parse_args()
    names = _cases(options) if options.quality or options.learn else ROWS
    if options.only not in (None, *names):
        parser.error(f"--only {options.only}: there is {', '.join(names)}")
    return options


def main() -> None:
    options = _options()
    if options.quality or options.learn:
        quality.cap_libraries()
    for row in _rows(options):
        print(json.dumps(row) if options.json else _line(row), flush=True)


if __name__ == "__main__":
    main()
