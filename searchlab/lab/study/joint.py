"""JointStudy: several studies that share one budget, and a scheduler that chooses the next one.

    network = JointStudy(studies, weights=(4, 1), scheduler="gradient")
    network.optimize(trials=512)
    network.seconds  # the best time of every task

It has the ask/tell interface of a study.  Its times are those of one run of the whole network: the time of a trial is
that of the network with the trial's candidate for its task and the best known candidates for all other tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from searchlab.errors import SpaceError
from searchlab.lab.study.finish import Finish
from searchlab.lab.study.ledger import Ledger
from searchlab.lab.study.loop import Round, search_loop
from searchlab.lab.study.objective import Objective
from searchlab.lab.study.scheduler import Policy, TaskProgress, TaskScheduler
from searchlab.lab.study.study import Study
from searchlab.lab.study.subject import Candidate, NetworkSubject
from searchlab.measure import Outcome


class JointStudy:
    """Studies of a network's tasks; `weights` says how often each task occurs in one run of the network.

    A study that has nothing left to propose gets no more turns.  With `share_model`, the model of every task is trained
    on the trials of all of them, as Ansor's is; models on knobs cannot be shared, since knobs differ between tasks.
    """

    def __init__(
        self,
        studies: Sequence[Study],
        weights: Sequence[float],
        scheduler: Policy = "gradient",
        objective: Objective | None = None,
        seed: int = 0,
        share_model: bool = False,
    ) -> None:
        self.studies, self.weights = tuple(studies), tuple(weights)
        self.subject = NetworkSubject("network", tuple(study.subject for study in studies), self.weights)
        self.objective = objective or self.subject.latency
        self.batch = max(study.batch for study in studies)
        self.rounds: list[Round] = []
        self._scheduler = TaskScheduler(self.objective, scheduler, rng=np.random.default_rng(seed))
        self._tasks = [TaskProgress(*study.subject.kind) for study in studies]
        self._open = [True] * len(studies)
        if share_model:
            self._share()

    def _share(self) -> None:
        for study in self.studies:
            if study.model is not None and study.model.view == "knobs":
                raise SpaceError(f"{study.subject.name}: a model on knobs cannot be shared: knobs differ between tasks")
            study.others = tuple(other for other in self.studies if other is not study)

    def optimize(self, trials: int) -> float:
        """Measures until all tasks together have this many trials, or nothing is left; returns the network's time."""
        search_loop(self, lambda: trials - self.trials)
        return self.best_s

    # --- the loop of a study ------------------------------------------------------------------------------------------

    def ask(self, count: int) -> list[Candidate]:
        """Candidates of the scheduled task, labelled with its number; none if no task has any left."""
        while (turn := self._scheduler.choose(self._tasks, self._open)) is not None:
            study = self.studies[turn]
            if found := study.ask(min(count, study.batch)):
                return [replace(candidate, part=turn) for candidate in found]
            self._open[turn] = False
        return []

    def measure(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """The outcomes of candidates of one task, in their order."""
        return self.studies[candidates[0].part].measure(candidates)

    def tell(self, candidates: Sequence[Candidate], outcomes: Sequence[Outcome]) -> Round:
        """Passes a batch to the study of its task; returns the round in times of the network."""
        part, before = candidates[0].part, self.seconds
        study = self.studies[part]
        done = study.tell(candidates, outcomes)
        self._tasks[part] = self._tasks[part].after(study.best_s)
        seconds = np.array([self._time([*before[:part], s, *before[part + 1 :]]) for s in done.seconds.tolist()])
        number, trials = len(self.rounds), self.trials
        self.rounds.append(replace(done, number=number, seconds=seconds, best_s=self.best_s, trials=trials, part=part))
        return self.rounds[-1]

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def turns(self) -> list[int]:
        """The task of each round."""
        return [done.part for done in self.rounds if done.part is not None]

    @property
    def trials(self) -> int:
        """The number of trials of all studies together."""
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
        """The time breakdown of all studies, which share one ledger."""
        return self.studies[0].ledger

    def trial(self, part: int, number: int) -> int:
        """The network-wide number of trial `number` of a task."""
        ends = np.cumsum([0, *(len(r.seconds) for r in self.rounds)])
        mine = [n for r, turn in enumerate(self.turns) if turn == part for n in range(ends[r], ends[r + 1])]
        return mine[number]

    def finish(self, seconds: float = 1.0, most: float = 2.5) -> Finish:
        """Runs the final races of all tasks in sequence; references count only if they have a time for every task."""
        parts = tuple(study.finish(seconds=seconds, most=most) for study in self.studies)
        latency = self.subject.latency
        others = latency.by_name([part.baselines for part in parts])
        return Finish(0, latency([part.seconds for part in parts]), others, parts=parts, weights=self.weights)

    def _time(self, seconds: Sequence[float]) -> float:
        return self.objective(seconds) if all(map(math.isfinite, seconds)) else math.inf


Search = Study | JointStudy
