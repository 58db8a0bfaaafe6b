"""Network: several studies with one budget, and a scheduler that says whose turn it is.

    network = Network(studies, weights=(4, 1), scheduler="gradient")
    network.optimize(trials=512)
    network.seconds  # the best time of every task

It is asked and told as a study is.  Its times are those of one run of the whole network: that of a trial is what the
network would take with its candidate, and with the best of all other tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from searchlab.errors import SpaceError
from searchlab.lab.study.ledger import Ledger
from searchlab.lab.study.objective import Latency, Objective
from searchlab.lab.study.scheduler import Policy, TaskProgress, TaskScheduler
from searchlab.lab.study.study import Round, Study
from searchlab.lab.study.subject import Candidate, TaskSubject
from searchlab.measure import Outcome


class JointStudy:
    """Studies of a network's tasks; `weights` says how often each occurs in one run of it.

    A study that has nothing left to propose gets no more turns.
    """

    def __init__(
        self,
        studies: Sequence[Study],
        weights: Sequence[float],
        scheduler: Policy = "gradient",
        objective: Objective | None = None,
        seed: int = 0,
    ) -> None:
        if len(studies) != len(weights) or not studies:
            raise SpaceError(f"a network has a weight for each of its tasks, not {len(weights)} for {len(studies)}")
        self.studies, self.weights = tuple(studies), tuple(weights)
        self.objective = objective or Latency(self.weights)
        self.batch = max(study.batch for study in studies)
        self.rounds: list[Round] = []
        self._scheduler = TaskScheduler(self.objective, scheduler, rng=np.random.default_rng(seed))
        self._tasks = [TaskProgress(*_kind(study)) for study in studies]
        self._open = [True] * len(studies)
        self._turn = 0

    def optimize(self, trials: int) -> float:
        """Measures until so many trials of all tasks are done, or nothing is left; gives the network's time."""
        while (left := trials - self.trials) > 0 and (candidates := self.ask(left)):
            self.tell(candidates, self.measure(candidates))
        return self.best_s

    # --- the loop of a study ------------------------------------------------------------------------------------------

    def ask(self, count: int) -> list[Candidate]:
        """Candidates of the task whose turn it is; none if no task has any left."""
        while (turn := self._scheduler.choose(self._tasks, self._open)) is not None:
            self._turn = turn
            if found := self.turn.ask(min(count, self.turn.batch)):
                return found
            self._open[turn] = False
        return []

    def measure(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """What measuring the candidates that were asked for last gave."""
        return self.turn.measure(candidates)

    def tell(self, candidates: Sequence[Candidate], outcomes: Sequence[Outcome]) -> Round:
        """The study whose turn it is learns from its batch; gives the round in times of the network."""
        before = self.seconds
        done = self.turn.tell(candidates, outcomes)
        self._tasks[self._turn] = self._tasks[self._turn].after(self.turn.best_s)
        seconds = np.array(self._in_place(before, done.seconds.tolist()))
        number, trials, part = len(self.rounds), self.trials, self._turn
        self.rounds.append(replace(done, number=number, seconds=seconds, best_s=self.best_s, trials=trials, part=part))
        return self.rounds[-1]

    def _in_place(self, others: Sequence[float], times: Sequence[float]) -> list[float]:
        """The network's time with each candidate in the place of its task's best."""
        turn = self._turn
        return [self._time([*others[:turn], seconds, *others[turn + 1 :]]) for seconds in times]

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def turn(self) -> Study:
        """The study that was asked last."""
        return self.studies[self._turn]

    @property
    def turns(self) -> list[int]:
        """Whose turn each round was."""
        return [done.part for done in self.rounds if done.part is not None]

    @property
    def trials(self) -> int:
        """How many trials all studies have together."""
        return sum(len(study.trials) for study in self.studies)

    @property
    def seconds(self) -> tuple[float, ...]:
        """The best time of every task."""
        return tuple(study.best_s for study in self.studies)

    @property
    def best_s(self) -> float:
        """The time of the network with the best of every task; infinite while a task has none."""
        return self._time(self.seconds)

    @property
    def ledger(self) -> Ledger:
        """Where the time went, of all studies; they share it."""
        return self.studies[0].ledger

    def trial(self, part: int, number: int) -> int:
        """Which trial of the network the trial `number` of a task was."""
        ends = np.cumsum([0, *(len(r.seconds) for r in self.rounds)])
        mine = [n for r, turn in enumerate(self.turns) if turn == part for n in range(ends[r], ends[r + 1])]
        return mine[number]

    def _time(self, seconds: Sequence[float]) -> float:
        return self.objective(seconds) if all(map(math.isfinite, seconds)) else math.inf


def _kind(study: Study) -> tuple[str, float]:
    subject = study.subject
    if isinstance(subject, TaskSubject):
        return subject.task.workload.name, float(subject.task.workload.flops)
    return subject.name, 1.0
