"""Experiments of run folders, read without looking up what they name: it need not be installed or there any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from searchlab.lab.config.experiment import Experiment
from searchlab.lab.config.forms.normalising import normal_seeds
from searchlab.lab.config.settings import EARLIER, EARLIER_BUDGET
from searchlab.lab.config.subjects import looked_up
from searchlab.lab.config.text.tree import Place, Problems, placed, unplaced

_NEEDED = ("name", "workloads", "report", "expect")  # the parts that readers of a run rely on
_PLACE = Place("experiment")


def restored(data: Mapping[str, Any]) -> Experiment:
    """The experiment that `Experiment.resolved` wrote; settings that this version does not take are at their defaults.

    ValidationError says what is wrong with the parts that readers of a run rely on.
    """
    given = EARLIER | {key: unplaced(value) for key, value in data.items() if key in Experiment.model_fields}
    given["budget"] = _earlier_budget(given) | (given["budget"] if isinstance(given.get("budget"), dict) else {})
    given["seeds"] = unplaced(normal_seeds(placed(given.get("seeds", 0), _PLACE), _PLACE, Problems()))
    given.setdefault("measure", _default_measure(given))
    try:
        return Experiment.model_validate(given)
    except ValidationError as e:
        wrong = {error["loc"][0] for error in e.errors()} if not _needed(e) else set()
        if not wrong:
            raise
    kept = {key: value for key, value in given.items() if key not in wrong}
    return Experiment.model_validate({"seeds": [0], "measure": _default_measure(given), **kept})


def _earlier_budget(given: Mapping[str, Any]) -> dict[str, float]:
    """What a budget of an earlier version did not say; nothing is built for tables, whose budgets leave it out."""
    recorded = any(map(looked_up, given.get("workloads") or ()))
    return {} if recorded else EARLIER_BUDGET


def _needed(error: ValidationError) -> bool:
    return any(e["loc"][0] in _NEEDED for e in error.errors())


def _default_measure(given: Mapping[str, Any]) -> dict[str, Any]:
    workloads = given.get("workloads")
    recorded = isinstance(workloads, list) and any(map(looked_up, workloads))
    return {"replay": {}} if recorded else {"local": {}}
