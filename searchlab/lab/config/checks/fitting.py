"""Replaces settings that are `auto` or missing by those that suit the workloads, the same in all combinations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from searchlab.lab import auto
from searchlab.lab.config.settings import Malformed, split
from searchlab.lab.config.subjects import without_programs
from searchlab.lab.config.text.tree import Map, PlacedList, Problems


def fit(tree: Map, problems: Problems) -> None:
    """Puts a model and a strategy in the place of every `auto`, wherever a file or an override says it."""
    builds = not any(map(without_programs, tree.get("workloads") or ()))
    _resolve(tree, "model", auto.model(builds), problems)
    modelled = any(_name("model", holder[key]) != auto.NO_MODEL for holder, key in _holders(tree, "model"))
    _resolve(tree, "strategy", auto.strategy(builds, modelled), problems)


def _resolve(tree: Map, setting: str, fitting: str, problems: Problems) -> None:
    for holder, key in _holders(tree, setting):
        if _name(setting, holder[key]) == auto.AUTO:
            if split(setting, holder[key])[1]:
                problems.add(holder.at(key), f"{setting} 'auto' takes no options; name the {setting} that they are for")
            holder[key] = fitting


def _name(setting: str, value: Any) -> str:
    """The name of a component; empty for what is none, which is refused elsewhere."""
    if value is None and setting == "model":
        return auto.NO_MODEL
    try:
        return split(setting, value)[0]
    except Malformed:
        return ""


def _holders(tree: Map, setting: str) -> Iterator[tuple[Any, Any]]:
    """Where the setting is given a value: a mapping or a list, and the key of the value in it."""
    sweep, ablate = _inside(tree, "sweep"), _inside(tree, "ablate")
    for values in (_inside(sweep, form).get(setting) for form in ("grid", "zip")):
        if isinstance(values, PlacedList):
            yield from ((values, n) for n in range(len(values)))
    variants = [v for form in ("remove", "replace") for v in _inside(ablate, form).values()]
    for changes in (tree, ablate.get("base"), *(sweep.get("list") or ()), *variants):
        if isinstance(changes, Map) and setting in changes:
            yield changes, setting


def _inside(tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The mapping of a key, an empty one where nothing is given."""
    return tree.get(key) or {}
