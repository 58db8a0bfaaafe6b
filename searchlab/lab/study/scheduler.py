"""Chooses which of several tasks to tune next: round-robin, or where the objective falls fastest.

The gradient rule estimates how much the objective falls per round spent on a task: from the task's recent improvement,
from an optimistic extrapolation of its rounds so far, and from the speed that similar tasks have reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from searchlab.lab.study.objective import Objective, Patient

Policy = Literal["gradient", "round-robin"]
_STEP = 1e-4  # relative step of the objective's derivative
_GOLDEN = 1.618
_AHEAD = 5  # rounds ahead of its group after which a slow task no longer represents it


@dataclass(frozen=True)
class TaskProgress:
    """The progress of one task: its flops, its kind, and its best time after every round."""

    kind: str
    flops: float
    best_s: tuple[float, ...] = ()

    @property
    def rounds(self) -> int:
        """The number of rounds spent on it."""
        return len(self.best_s)

    @property
    def group(self) -> tuple[str, int]:
        """The group of similar tasks: the same kind and about the same amount of work."""
        return self.kind, int(math.log(self.flops + 1, _GOLDEN))

    def after(self, best_s: float) -> TaskProgress:
        """The progress after one more round."""
        return TaskProgress(self.kind, self.flops, (*self.best_s, best_s))


@dataclass
class TaskScheduler:
    """Chooses tasks by their progress.

    alpha   weight of recent improvement relative to the predicted one
    beta    factor of the best speed of similar tasks within which a task is expected to come
    window  number of rounds that count as recent
    epsilon share of random choices
    """

    objective: Objective
    policy: Policy = "gradient"
    alpha: float = 0.2
    beta: float = 2.0
    window: int = 3
    epsilon: float = 0.0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def choose(self, tasks: Sequence[TaskProgress], open_: Sequence[bool] | None = None) -> int | None:
        """The task to spend the next round on, among those still open; None if there is none.

        Every task gets one round first.
        """
        left = [n for n in range(len(tasks)) if (open_ is None or open_[n]) and not self._resting(tasks[n])]
        if not left:
            return None
        fewest = min(left, key=lambda n: tasks[n].rounds)
        if self.policy == "round-robin" or tasks[fewest].rounds == 0:
            return fewest
        if self.epsilon and self.rng.random() < self.epsilon:
            return int(self.rng.choice(left))
        slopes = self.gradients(tasks)
        lowest = min(slopes[n] for n in left)
        ties = [n for n in left if slopes[n] <= lowest]
        return ties[0] if len(ties) == 1 else int(self.rng.choice(ties))

    def _resting(self, task: TaskProgress) -> bool:
        """Whether a patient objective has given up on the task."""
        if not isinstance(self.objective, Patient) or task.rounds <= self.objective.rounds:
            return False
        return task.best_s[-1] >= task.best_s[-1 - self.objective.rounds]

    def gradients(self, tasks: Sequence[TaskProgress]) -> list[float]:
        """The predicted change of the objective per further round of each task; the most negative is the best."""
        now = [t.best_s[-1] if t.rounds else math.inf for t in tasks]
        return [self._slope(n, tasks, now) for n in range(len(tasks))]

    def _slope(self, n: int, tasks: Sequence[TaskProgress], now: list[float]) -> float:
        task = tasks[n]
        if not math.isfinite(now[n]):
            return -math.inf  # nothing has worked yet: the first working program is worth any price
        if not all(map(math.isfinite, now)):
            return 0.0
        back = task.best_s[-1 - min(self.window, task.rounds - 1)]
        recent = (now[n] - back) / self.window if math.isfinite(back) else -now[n]
        outlook = min(-now[n] / task.rounds, self.beta * task.flops / self._fastest(n, tasks) - now[n])
        return self._weight(n, now) * (self.alpha * recent + (1 - self.alpha) * outlook)

    def _weight(self, n: int, now: list[float]) -> float:
        """The objective's derivative with respect to one task's time, by a finite difference."""
        step = _STEP * now[n]
        moved = [*now[:n], now[n] - step, *now[n + 1 :]]
        return (self.objective(now) - self.objective(moved)) / step

    def _fastest(self, n: int, tasks: Sequence[TaskProgress]) -> float:
        """The highest speed (flops per second) that the task or a similar one has reached."""
        group = [t for t in tasks if t.group == tasks[n].group and t.rounds and math.isfinite(t.best_s[-1])]
        speeds = [t.flops / t.best_s[-1] for t in group]
        least = min(t.rounds for t in group)
        counted = [
            s
            for t, s in zip(group, speeds, strict=True)
            if not (t.rounds > least + _AHEAD and s < max(speeds) / self.beta)
        ]
        return max(counted)
