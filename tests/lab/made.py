"""Made-up runs: results with known truth, for tests of what reads runs (`from lab.made import made_run`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from searchlab.lab.config import Budget, LocalMeasure, Measure
from searchlab.lab.config.restoring import restored
from searchlab.lab.config.search_settings import SearchSettings
from searchlab.lab.config.subjects import SubjectSettings
from searchlab.lab.manifest import Cell
from searchlab.lab.results import CellResult, Floats, RoundSummary, Run, Winner
from searchlab.lab.study import Quality

LEDGER = {"propose": 0.1, "predict": 0.05, "fit": 0.15, "build": 0.3, "check": 0.05, "run": 0.3, "other": 0.05}


def made_run(
    entries: Sequence[str] | Mapping[str, float] = ("random", "evolutionary"),
    tasks: Sequence[str] | Mapping[str, float] = ("matmul", "conv2d"),
    seeds: Sequence[int] | int = 10,
    trials: int = 40,
    rng: np.random.Generator | None = None,
    *,
    noise: float = 0.05,
    failing: float = 0.05,
    factors: Mapping[str, Mapping[str, str]] | None = None,
    baselines: Mapping[str, float] | None = None,
    recorded: bool = False,
    machine: str = "made-up-cpu",
    name: str = "made",
    budget_s: float = 60.0,
) -> Run:
    """A run in which every cell approaches its entry's limit.

    `entries` may map an entry to its factor (final times are about factor x the task's time, 1.0 unless given);
    `tasks` may map a task to its best time (1 ms, 2 ms, ... unless given).  `noise` is the spread between seeds,
    `failing` the share of trials that fail, `baselines` the factor of every baseline on every task.  With `recorded`,
    cells know their optimum.
    """
    rng = rng if rng is not None else np.random.default_rng(0)
    worth = dict(entries) if isinstance(entries, Mapping) else dict.fromkeys(entries, 1.0)
    bests = dict(tasks) if isinstance(tasks, Mapping) else {t: 1e-3 * (n + 1) for n, t in enumerate(tasks)}
    numbers = range(seeds) if isinstance(seeds, int) else seeds
    cells = [
        made_cell(
            entry, task, seed, best * factor * float(np.exp(noise * abs(rng.standard_normal()))), trials, rng,
            failing=failing,
            factors=(factors or {}).get(entry, {"space": "sketch", "model": "gbt", "strategy": entry}),
            baselines={b: f * best for b, f in (baselines or {}).items()},
            optimum_s=best if recorded else None,
            budget_s=budget_s,
        )
        for entry, factor in worth.items()
        for task, best in bests.items()
        for seed in numbers
    ]  # fmt: skip
    config = {"name": name, "seeds": list(numbers), "budget": {"trials": trials}}
    return Run(
        name,
        tuple(cells),
        experiment=restored({"workloads": ["matmul"], **config, "name": "made"}),
        config=config,
        source=f"name: {name}\n",
        command=f"searchlab run {name}.yaml",
        machine={"cpu": machine, "cores": 2},
        versions={"searchlab": "0.1.0", "numpy": np.__version__},
        started="2026-01-02T03:04:05+00:00",
        recorded=recorded,
    )


def saying(run: Run, **more: Any) -> Run:
    """The run of an experiment that says more."""
    assert run.experiment is not None
    return replace(run, experiment=restored({**run.experiment.resolved(), **more}))


def made_cell(
    entry: str,
    task: str,
    seed: int,
    limit_s: float,
    trials: int,
    rng: np.random.Generator,
    *,
    failing: float = 0.05,
    factors: Mapping[str, str] | None = None,
    baselines: Mapping[str, float] | None = None,
    optimum_s: float | None = None,
    budget_s: float = 60.0,
    batch: int = 8,
) -> CellResult:
    """A finished cell whose trials come down towards a limit, which the last trial that worked reaches."""
    seconds = limit_s * (1 + 4 * np.exp(-4 * np.arange(trials) / max(trials, 1)) * rng.random(trials))
    failed = rng.random(trials) < failing
    if trials:
        failed[-1] = False
        seconds[-1] = limit_s
    status = tuple("run" if f else "ok" for f in failed)
    seconds = np.where(failed, np.inf, seconds)
    best = None
    if trials:
        best = Winner(int(np.argmin(seconds)), {"sketch": 0, "tile": 8}, "s0 tile=8", float(seconds.min()))
    return CellResult(
        cell=bare_cell(entry, task, seed, factors=dict(factors or {"strategy": entry})),
        state="done",
        seconds=seconds,
        elapsed=np.linspace(0.0, budget_s, trials + 1)[1:],
        status=status,
        rounds=made_rounds(seconds, batch, rng),
        ledger={k: v * budget_s for k, v in LEDGER.items()},
        best=best,
        baselines=dict(baselines or {}),
        optimum_s=optimum_s,
    )


def bare_cell(entry: str, task: str, seed: int, **more: Any) -> Cell:
    """A cell that says what it is called, and hardly anything about how it was searched."""
    measure = Measure(local=LocalMeasure())
    settings = SearchSettings("native", "sketch", "none", "random", (), "random", Budget(trials=16), measure)
    given = {"id": f"{entry}-{task}-{seed}", "factors": {}, **more}
    return Cell(entry=entry, subject=SubjectSettings(task), settings=settings, seed=seed, **given)


def renamed(result: CellResult, **changes: Any) -> CellResult:
    """The result of a cell that is called otherwise."""
    return replace(result, cell=replace(result.cell, **changes))


def scaled(result: CellResult, scale: float) -> CellResult:
    """The result with all its times scaled."""
    assert result.best is not None
    return replace(timed(result, result.best.seconds * scale), seconds=result.seconds * scale)


def timed(result: CellResult, seconds: float) -> CellResult:
    """The result with another time of the best."""
    assert result.best is not None
    return replace(result, best=replace(result.best, seconds=seconds))


def made_rounds(seconds: Floats, batch: int, rng: np.random.Generator) -> tuple[RoundSummary, ...]:
    """Rounds of a batch each; the model knows nothing in the first and ever more later."""
    found: list[RoundSummary] = []
    for number, start in enumerate(range(0, len(seconds), batch)):
        known = 1 - 0.5 * np.exp(-0.5 * number)
        quality = Quality(
            count=len(seconds[start : start + batch]),
            pairwise=float(min(1.0, known + 0.02 * rng.standard_normal())),
            recall=float(known * 0.8),
            regret=float(0.5 * (1 - known)),
            correlation=float(2 * known - 1),
        )
        done = min(start + batch, len(seconds))
        best_s = float(seconds[:done].min())
        found.append(RoundSummary(number, done, best_s, quality if number else None))
    return tuple(found)


def failed_cell(entry: str, task: str, seed: int, error: str = "no candidate worked") -> CellResult:
    """A cell in which nothing worked."""
    return CellResult(
        bare_cell(entry, task, seed, factors={"strategy": entry}), state="failed",
        seconds=np.empty(0), elapsed=np.empty(0), status=(), error=error,
    )  # fmt: skip
