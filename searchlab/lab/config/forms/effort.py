"""Effort: how much an experiment measures, in one word; what a file says itself wins."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.lab.config.text.tree import Map, Place, PlacedList


@dataclass(frozen=True)
class Effort:
    """What one word stands for; `seeds` counts from 0."""

    trials: int
    batch: int
    seeds: int
    repeats: int
    about: str


EFFORTS = {
    "smoke": Effort(8, 4, 1, 3, "check that it runs"),
    "quick": Effort(64, 16, 3, 7, "a first look"),
    "default": Effort(256, 16, 5, 15, "a result"),
    "full": Effort(1024, 32, 10, 15, "a publishable claim"),
}


def fill(tree: Map) -> None:
    """Adds what the effort stands for and the file does not say; a budget in seconds has no limit of trials."""
    effort = EFFORTS.get(str(tree.get("effort", "default")), EFFORTS["default"])
    place = tree.at("effort")
    if "seeds" not in tree:
        tree.put("seeds", PlacedList(place, [(n, place) for n in range(effort.seeds)]), place)
    budget = tree.setdefault("budget", Map(place))
    if isinstance(budget, Map):
        if budget.get("trials") is None and budget.get("seconds") is None:
            budget.put("trials", effort.trials, place)
        if "batch" not in budget:
            budget.put("batch", effort.batch, place)
    _repeats(tree.get("measure"), effort, place)


def _repeats(measure: object, effort: Effort, place: Place) -> None:
    if isinstance(measure, Map):
        for kind in ("local", "ray"):
            options = measure.get(kind)
            if isinstance(options, Map) and "repeats" not in options:
                options.put("repeats", effort.repeats, place)
