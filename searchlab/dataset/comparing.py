"""Cost models compared on a data set: each learns all operators but one, and ranks the programs of that one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from searchlab.dataset.judging import RankScore, mean_ranking, ranking
from searchlab.dataset.stored import StoredTask
from searchlab.errors import RecordError
from searchlab.registry import Component, accepted_options
from searchlab.search import MODELS, CostModel, History, Trials
from searchlab.search.returned import predicted

_LEAST = 8  # programs that worked; a task with fewer says nothing about ranks


@dataclass(frozen=True)
class ModelScore:
    """How well a model ranks an operator that it has not seen; `operator` is empty for the mean over all tasks.

    `ranking` is None where the model made no predictions.  `seconds` is the time for training and predicting.
    """

    model: str
    operator: str
    tasks: int
    ranking: RankScore | None
    seconds: float


def compare(tasks: Sequence[StoredTask], models: Sequence[Component], seed: int = 0) -> Iterator[ModelScore]:
    """The scores of models, by operator and in total; a model's rows come together."""
    useful = [t for t in tasks if np.isfinite(t.seconds).sum() >= _LEAST]
    operators = sorted({t.operator for t in useful})
    if len(operators) < 2:
        raise RecordError(
            f"comparing models needs tasks of 2 operators, each with {_LEAST} programs that worked; found:"
            f" {', '.join(operators) or 'none'}"
        )
    for component in models:
        name = component if isinstance(component, str) else next(iter(component))
        each: list[RankScore] = []
        total = 0.0
        for operator in operators:
            start = time.perf_counter()
            found = _rankings(unprepared(component), useful, operator, seed)
            seconds = time.perf_counter() - start
            each, total = [*each, *found], total + seconds
            count = sum(t.operator == operator for t in useful)
            yield ModelScore(name, operator, count, mean_ranking(found) if found else None, seconds)
        yield ModelScore(name, "", len(useful), mean_ranking(each) if each else None, total)


def unprepared(component: Component) -> Component:
    """A model that does not start from shipped trees, which have seen the operator that is left out."""
    name, options = MODELS.parse(component)
    accepted = accepted_options(MODELS.find(name))
    if "pretrained" in accepted:
        options.setdefault("pretrained", False)
    if isinstance(base := options.get("base", accepted.get("base")), str | Mapping):  # also where it is part of another
        options["base"] = unprepared(base)
    return {name: options}


def _rankings(component: Component, tasks: Sequence[StoredTask], left_out: str, seed: int) -> list[RankScore]:
    """How well a model that has learnt all other operators ranks each task of one; nothing if it does not predict."""
    model: CostModel = MODELS.make(component, rng=np.random.default_rng(seed))
    own = [t.trials for t in tasks if t.operator == left_out]
    others = [t.trials for t in tasks if t.operator != left_out]
    nothing = Trials(own[0].task, own[0].space, own[0].points[:0], own[0].seconds[:0])
    model.fit(History.of([*others, nothing]))
    if not model.ready:
        return []
    found = (ranking(predicted(model, model.predict(t.space, t.points), len(t)), t.seconds) for t in own)
    return [one for one in found if one is not None]
