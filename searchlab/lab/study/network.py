"""Tuning several tasks with one budget: a study each, and a scheduler that says whose turn it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from searchlab.lab.study.objective import Latency, Objective
from searchlab.lab.study.scheduler import Policy, Progress, TaskScheduler
from searchlab.lab.study.study import Study
from searchlab.lab.study.subject import TaskSubject


@dataclass(frozen=True)
class Tuned:
    """What tuning gave: the best time of every task, the objective after every round, and whose round it was."""

    seconds: tuple[float, ...]
    objective: tuple[float, ...]
    turns: tuple[int, ...]


def tune(
    studies: Sequence[Study],
    weights: Sequence[float],
    trials: int,
    policy: Policy = "gradient",
    objective: Objective | None = None,
    seed: int = 0,
    on_round: Callable[[int, float], object] | None = None,
) -> Tuned:
    """Spends `trials` measurements on the studies' tasks, a batch at a time, where they help most.

    `weights` says how often each task occurs in one run of the network.
    """
    if len(studies) != len(weights) or not studies:
        raise ValueError(f"{len(studies)} tasks with {len(weights)} weights")
    goal = objective or Latency(tuple(weights))
    scheduler = TaskScheduler(goal, policy, rng=np.random.default_rng(seed))
    tasks = [Progress(*_kind(study)) for study in studies]
    open_ = [True] * len(studies)
    values: list[float] = []
    turns: list[int] = []
    while (left := trials - sum(len(s.trials) for s in studies)) > 0:
        turn = scheduler.choose(tasks, open_)
        if turn is None:
            break
        study = studies[turn]
        candidates = study.ask(min(study.batch, left))
        if not candidates:
            open_[turn] = False
            continue
        study.tell(candidates, study.measure(candidates))
        tasks[turn] = tasks[turn].after(study.best_s)
        turns.append(turn)
        now = [s.best_s for s in studies]
        values.append(goal(now) if all(map(math.isfinite, now)) else math.inf)
        if on_round is not None:
            on_round(turn, values[-1])
    return Tuned(tuple(s.best_s for s in studies), tuple(values), tuple(turns))


def _kind(study: Study) -> tuple[str, float]:
    subject = study.subject
    if isinstance(subject, TaskSubject):
        return subject.task.workload.name, float(subject.task.workload.flops)
    return subject.name, 1.0
