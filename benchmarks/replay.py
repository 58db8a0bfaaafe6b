"""Strategies on recorded spaces: python -m benchmarks.replay [--json] [--seeds N] ...

The score of a run is the mean over k = 1..K of (E(k) - best_k) / (E(k) - optimum), where best_k is the best time among
the first k measurements and E(k) the expected best of k random points: 0 is random search, 1 is finding the optimum
immediately.  Failed measurements count.  K is 200.  Strategies that need a cost model get a forest that is refitted
before every batch; it predicts its mean minus the spread of its trees, which favours unexplored regions.  The recorded
GPU tables are not part of the project: --data names their folder.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from searchlab.lab.statistics.community_score import K, RandomSearch
from searchlab.measure.recorded.tables import Table, load, shipped
from searchlab.search import Points, Scorer, Sketch, Space, Strategy, menu, split_knob
from searchlab.search.knob import Floats
from searchlab.strategies import (
    Annealing,
    Bandit,
    Bayesian,
    Evolutionary,
    Forest,
    Genetic,
    Gradient,
    Grid,
    Local,
    Mcts,
    Metropolis,
    Optuna,
    Random,
)  # fmt: skip
from searchlab.strategies.surrogates import Ranks

FOUR = ("convolution_milo@A100", "dedispersion_milo@MI250X", "gemm@RTX_3090", "pnpoly@RTX_3090")
HELD_OUT = ("convolution@RTX_3090", "convolution_milo@MI250X", "dedispersion_milo@A100")
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "gpu-replay"


@dataclass(frozen=True)
class Contender:
    """A strategy with its options; `model` gives it a forest, `goal` is the score to reach on the four tables."""

    strategy: type[Strategy]
    options: dict[str, Any]
    model: bool = False
    goal: float | None = None


CONTENDERS = {
    "random": Contender(Random, {}),
    "grid": Contender(Grid, {}),
    "local": Contender(Local, {}),
    "genetic": Contender(Genetic, {}, goal=0.0),
    "annealing-plain": Contender(Annealing, {}, goal=0.0),
    "annealing": Contender(Annealing, {}, True, goal=0.0),
    "evolutionary": Contender(Evolutionary, {}, True, goal=0.0),
    "metaschedule": Contender(Evolutionary, {"variant": "metaschedule"}, True, goal=0.0),
    "metropolis": Contender(Metropolis, {}, True, goal=0.0),
    "gradient-plain": Contender(Gradient, {}),
    "gradient": Contender(Gradient, {}, True),
    "mcts-plain": Contender(Mcts, {}),
    "mcts": Contender(Mcts, {}, True),
    "bayesian": Contender(Bayesian, {}, goal=0.55),
    "bayesian-forest": Contender(Bayesian, {"surrogate": "forest"}, goal=0.0),
    "bandit": Contender(Bandit, {}, goal=0.0),
    "optuna-tpe": Contender(Optuna, {}),
}


@dataclass(frozen=True)
class Replay:
    """A recorded table as a benchmark."""

    table: Table

    @cached_property
    def numbers(self) -> Floats:
        """All rows encoded for a surrogate."""
        return Ranks(self.table.space)(self.table.space.points())

    @cached_property
    def random(self) -> RandomSearch:
        """The random search that runs are scored against."""
        return RandomSearch(self.table.seconds, K)

    def run(self, contender: Contender, seed: int, batch: int) -> float:
        """The score of a strategy with this seed."""
        space = self.table.space
        strategy = contender.strategy(space, np.random.default_rng([seed, 0]), **contender.options)
        rng = np.random.default_rng([seed, 1])
        measured = np.empty(0)
        while len(measured) < min(K, len(self.table)):
            score = self._scorer(strategy, rng) if contender.model else None
            points = strategy.ask(min(batch, K - len(measured)), score)
            if not len(points):
                break
            seconds = self.table.seconds[space.row(points)]
            strategy.tell(points, seconds)
            measured = np.append(measured, seconds)
        return self.random.score(measured)

    def _scorer(self, strategy: Strategy, rng: np.random.Generator) -> Scorer | None:
        """A forest trained on everything the strategy was told; all rows are predicted at once and looked up."""
        worked = np.isfinite(strategy.seconds)
        if worked.sum() < 2:
            return None
        space, forest = self.table.space, Forest(rng, trees=32)
        logs = np.log(np.where(worked, strategy.seconds, strategy.seconds[worked].max()))
        forest.fit(self.numbers[space.row(strategy.points)], logs)
        said = forest.ask(self.numbers)[0]
        predicted = said.mean(axis=0) - said.std(axis=0)

        def score(points: Points) -> Floats:
            return predicted[space.row(points)]

        return score


def tables(options: argparse.Namespace) -> Iterator[tuple[str, Replay]]:
    for name in options.spaces:
        path = options.data / name
        if name in shipped():
            yield name, Replay(load(name))
        elif path.with_name(f"{name}.csv.xz").is_file():
            yield name, Replay(load(path))
        else:
            print(f"skipped {name}: there is no {path}.csv.xz", file=sys.stderr)


def interval(scores: Floats) -> list[float]:
    """A 95 % bootstrap interval for the mean."""
    draws = np.random.default_rng(0).choice(scores, size=(2000, len(scores))).mean(axis=1)
    return [round(float(x), 3) for x in np.percentile(draws, [2.5, 97.5])]


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    replays = list(tables(options))
    for name in options.strategies:
        means, contender = {}, CONTENDERS[name]
        for space, replay in replays:
            start = process_time()
            scores = np.array([replay.run(contender, s, options.batch) for s in range(options.seeds)])
            means[space] = float(scores.mean())
            spent = round((process_time() - start) / options.seeds, 2)
            yield _row(space, name, scores.mean(), None, interval=interval(scores), batch=options.batch, cpu_s=spent)
        four = [means[s] for s in FOUR if s in means]
        if len(four) == len(FOUR):
            yield _row("mean-of-four", name, np.mean(four), contender.goal, batch=options.batch, seeds=options.seeds)


def evolutionary_round() -> dict[str, Any]:
    """CPU seconds of one round of the default evolutionary search with a cheap model, on the tiles of a matmul."""
    knobs = (*(split_knob(n, 512, p, 64) for n, p in (("i", 4), ("j", 4), ("k", 2))), menu("unroll", [0, 16, 64, 512]))
    space = Space([Sketch(f"sketch{n}", knobs) for n in range(3)], "matmul-like")
    strategy, spent = Evolutionary(space, np.random.default_rng(0)), []
    for _ in range(12):
        start = process_time()
        points = strategy.ask(64, lambda p: space.encode(p).sum(axis=1))
        spent.append(process_time() - start)
        strategy.tell(points, 1.0 + np.arange(len(points)))
    return _row("matmul-like", "round_cpu_s", np.median(spent), 0.1)


def _row(case: str, metric: str, value: Any, target: float | None, **more: Any) -> dict[str, Any]:
    return {"case": case, "metric": metric, "value": round(float(value), 3), "target": target, **more}


def _line(row: dict[str, Any]) -> str:
    good = row["target"] is not None and (row["value"] >= row["target"]) != (row["metric"] == "round_cpu_s")
    verdict = "" if row["target"] is None else "ok  " if good else "MISS"
    goal = "" if row["target"] is None else f"target {row['target']:<7g}"
    shown = "  ".join(f"{k} {v}" for k, v in row.items() if k not in ("case", "metric", "value", "target"))
    return f"{row['case']:26s} {row['metric']:16s} {row['value']:>+8.3f}  {goal:15s}{verdict:5s} {shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--seeds", type=int, default=50, help="runs of every strategy on every space")
    parser.add_argument("--batch", type=int, default=4, help="how many points are asked for at once")
    known = [*FOUR, *HELD_OUT, *shipped()]
    parser.add_argument(
        "--spaces", nargs="+", default=list(FOUR), choices=known, metavar="SPACE", help=", ".join(known)
    )
    parser.add_argument("--strategies", nargs="+", default=["bayesian"], choices=[*CONTENDERS], metavar="STRATEGY",
                        help=", ".join(CONTENDERS))  # fmt: skip
    parser.add_argument("--data", type=Path, default=DATA, help="folder of recorded GPU tables")
    options = parser.parse_args()
    if "evolutionary" in options.strategies:
        row = evolutionary_round()
        print(json.dumps(row) if options.json else _line(row), flush=True)
    for row in rows(options):
        print(json.dumps(row) if options.json else _line(row), flush=True)


if __name__ == "__main__":
    main()
