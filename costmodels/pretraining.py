"""Training of the trees that are shipped: settings are chosen, and accuracy is judged, on tasks that were left out.

Two questions are asked of every setting: how well do the trees rank programs of an operator that they have never seen,
and of a shape that they have never seen?
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from costmodels import pretrained
from costmodels.features import features
from costmodels.roofline import estimate
from searchlab.analysis import schema
from searchlab.dataset.judging import RankScore, mean_ranking, ranking
from searchlab.errors import ComponentError
from searchlab.search import Trials
from searchlab.search.knob import Floats
from searchlab.targets import Target

_COMMON = {"eta": 0.1, "subsample": 0.8, "colsample_bytree": 0.3, "tree_method": "hist", "nthread": 1}
# Few and shallow, since every candidate that a search looks at passes through all of them.
SETTINGS: dict[str, dict[str, Any]] = {
    "depth 5": {"max_depth": 5, "rounds": 160},
    "depth 6": {"max_depth": 6, "rounds": 160},
    "depth 6, calm": {"max_depth": 6, "rounds": 160, "min_child_weight": 8, "reg_lambda": 4.0},
}
_SHAPE_FOLDS = 6
_LEAST = 8  # programs that worked; a task with fewer says nothing about ranks
_CLIP = 3.0  # logarithms of times beyond this distance from the median are moved to it


@dataclass(frozen=True, eq=False)
class _Lesson:
    """The programs of one task that worked, as the trees see them."""

    workload: str
    rows: Floats
    labels: Floats
    seconds: Floats
    guess: Floats
    called: int  # programs that call intrinsics

    @property
    def operator(self) -> str:
        return self.workload.partition(":")[0]


def train(tasks: Sequence[Trials], folder: Path, seed: int = 0) -> dict[str, Any]:
    """Trains trees on the programs of many tasks, writes them to a folder, and returns their card."""
    start = time.monotonic()
    lessons = [lesson for trials in tasks for lesson in _lesson(trials)]
    operators = sorted({lesson.operator for lesson in lessons})
    if len(operators) < 2 or len({lesson.workload for lesson in lessons}) < _SHAPE_FOLDS:
        raise ComponentError(
            f"gbt: training needs tasks of 2 operators and {_SHAPE_FOLDS} workloads, each with {_LEAST} programs that"
            f" worked; there are {len(operators)} operators and {len(lessons)} tasks"
        )
    judged = {name: _judged(lessons, settings, seed) for name, settings in SETTINGS.items()}
    chosen = max(judged, key=lambda name: judged[name].accuracy)
    booster = _boosted(lessons, SETTINGS[chosen], seed)
    card = {
        **_about(tasks, lessons, seed),
        "settings": {"name": chosen, **_COMMON, **SETTINGS[chosen]},
        "tried": {name: round(one.accuracy, 4) for name, one in judged.items()},
        **judged[chosen].plain,
        "seconds": round(time.monotonic() - start, 1),
    }
    return pretrained.write(folder, booster, card)


def _lesson(trials: Trials) -> Iterator[_Lesson]:
    """The programs of a task that worked, if there are enough."""
    worked = np.isfinite(trials.seconds)
    if worked.sum() < _LEAST:
        return
    rows, _ = features(trials.space, trials.points[worked], pretrained.VIEW)
    seconds, target = trials.seconds[worked], trials.space.target
    logs = np.log(seconds)
    labels = np.clip(logs - np.median(logs), -_CLIP, _CLIP)
    guess = estimate(rows, 1 if target is None else target.threads)
    columns = schema(pretrained.VIEW).columns
    called = int((rows[:, columns.index("all_calls")] > 0).sum())
    seen = pretrained.inputs(rows, target, columns)
    yield _Lesson(trials.task.partition(" on ")[0], seen, labels, seconds, guess, called)


def _boosted(lessons: Sequence[_Lesson], settings: Mapping[str, Any], seed: int) -> Any:
    import xgboost as xgb

    matrix = xgb.DMatrix(
        np.concatenate([one.rows for one in lessons]), np.concatenate([one.labels for one in lessons]), nthread=1
    )
    parameters = {**_COMMON, **settings, "seed": seed}
    return xgb.train(parameters, matrix, num_boost_round=parameters.pop("rounds"))


# --- judging ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judged:
    """How well trees rank the tasks left out, by operator: of another operator than they know, and of another shape."""

    operator: Mapping[str, RankScore]
    shape: Mapping[str, RankScore]
    estimate: Mapping[str, RankScore]
    tasks: Mapping[str, int]

    @property
    def accuracy(self) -> float:
        """The share of pairs in order, averaged over both questions and all tasks."""
        both = (mean_ranking(self._each(found)).pairs for found in (self.operator, self.shape))
        return float(np.mean(list(both)))

    def _each(self, found: Mapping[str, RankScore]) -> Iterator[RankScore]:
        return (one for name, one in found.items() for _ in range(self.tasks[name]))

    @property
    def plain(self) -> dict[str, Any]:
        """All figures for the card."""
        kinds = {"unseen_operator": self.operator, "unseen_shape": self.shape, "estimate": self.estimate}
        by_operator = {
            name: {"tasks": count, **{kind: _rounded(found[name]) for kind, found in kinds.items()}}
            for name, count in self.tasks.items()
        }
        whole = {kind: _rounded(mean_ranking(self._each(found))) for kind, found in kinds.items()}
        return {"accuracy": whole, "operators": by_operator}


def _judged(lessons: Sequence[_Lesson], settings: Mapping[str, Any], seed: int) -> _Judged:
    operators = sorted({one.operator for one in lessons})
    workloads = sorted({one.workload for one in lessons}, key=lambda w: hashlib.blake2b(w.encode()).digest())
    fold = {workload: n % _SHAPE_FOLDS for n, workload in enumerate(workloads)}
    by_operator = _left_out(lessons, [one.operator for one in lessons], settings, seed)
    by_shape = _left_out(lessons, [fold[one.workload] for one in lessons], settings, seed)
    guessed = [ranking(one.guess, one.seconds) for one in lessons]

    def gathered(rankings: Sequence[RankScore | None]) -> dict[str, RankScore]:
        pairs = list(zip(lessons, rankings, strict=True))
        return {name: mean_ranking(r for one, r in pairs if one.operator == name and r) for name in operators}

    counts = {name: sum(one.operator == name for one in lessons) for name in operators}
    return _Judged(gathered(by_operator), gathered(by_shape), gathered(guessed), counts)


def _left_out(
    lessons: Sequence[_Lesson], groups: Sequence[Any], settings: Mapping[str, Any], seed: int
) -> list[RankScore | None]:
    """How well each task is ranked by trees that were trained without its group."""
    found: list[RankScore | None] = [None] * len(lessons)
    for group in dict.fromkeys(groups):
        booster = _boosted([one for one, own in zip(lessons, groups, strict=True) if own != group], settings, seed)
        for n, (one, own) in enumerate(zip(lessons, groups, strict=True)):
            if own == group:
                found[n] = ranking(booster.inplace_predict(one.rows), one.seconds)
    return found


# --- the card ---------------------------------------------------------------------------------------------------------


def _about(tasks: Sequence[Trials], lessons: Sequence[_Lesson], seed: int) -> dict[str, Any]:
    now = schema(pretrained.VIEW)
    content = hashlib.blake2b(digest_size=8)
    for trials in tasks:
        content.update(trials.task.encode() + trials.seconds.tobytes())
    return {
        "model": "gbt",
        "view": now.name,
        "version": now.version,
        "columns": list(now.columns),
        "tasks": len(lessons),
        "programs": sum(len(one.labels) for one in lessons),
        "called": sum(one.called for one in lessons),
        "machines": sorted({_machine(trials.space.target) for trials in tasks}),
        "versions": _versions(),
        "data": content.hexdigest(),
        "seed": seed,
    }


def _versions() -> dict[str, str]:
    import xgboost as xgb

    found = {name: version(name) for name in ("searchlab", "numpy")}
    return {**found, "xgboost": xgb.__version__, "python": platform.python_version()}


def _machine(target: Target | None) -> str:
    if target is None:
        return "unknown"
    return f"{target.name}, {target.threads} thread{'s' * (target.threads > 1)}"


def _rounded(one: RankScore) -> dict[str, float]:
    return {name: round(value, 4) for name, value in asdict(one).items()}


def table(card: Mapping[str, Any]) -> str:
    """The figures of a card as a table for the documentation."""
    head = (
        "| operator | tasks | pairs in order: estimate / unseen operator / unseen shape"
        " | best of 8: estimate / unseen operator / unseen shape |\n|---|---|---|---|\n"
    )
    rows = {**card["operators"], "all": {"tasks": card["tasks"], **card["accuracy"]}}
    return head + "".join(
        f"| {name} | {row['tasks']} | {_cells(row, 'pairs')} | {_cells(row, 'regret')} |\n"
        for name, row in rows.items()
    )


def _cells(row: Mapping[str, Any], figure: str) -> str:
    return " / ".join(f"{row[kind][figure]:.2f}" for kind in ("estimate", "unseen_operator", "unseen_shape"))
