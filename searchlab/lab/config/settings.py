"""Settings of a search in their one form, and how a dotted key changes one of them.

Overrides, sweeps and ablations all change settings in this one way: `strategy`, `strategy.population`, `budget.trials`,
`measure.local.repeats` or `measure.repeats`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from searchlab.lab.config.measuring import KINDS
from searchlab.lab.config.text.tree import Map, Place, PlacedList, placed
from searchlab.registry import nearest

COMPONENTS = ("space", "model", "strategy")
NAMED = ("target", *COMPONENTS, "measure")  # a name with options
# what overrides, sweeps and ablations may change
SETTINGS = ("target", *COMPONENTS, "history", "start", "budget", "measure")
# settings of runs from before there was a choice, which therefore do not say so
EARLIER = {"start": "random"}
EARLIER_BUDGET = {"thrift": 0.0}


class Malformed(ValueError):
    """A value has none of the forms that its key accepts."""


def normal(key: str, value: Any, place: Place) -> Any:
    """A setting in its one form: a name, or {name: options} where it has any; `measure` always has them.

    A history is a list of absolute paths.
    """
    if key == "history":
        return _paths(value, place)
    if key not in NAMED:
        return placed(value, place)
    if value is None and key == "model":
        return "none"
    if value is None and key == "space":
        return None
    if key == "target" and isinstance(value, str) and ":" in value:
        value = _target(value, place)
    name, options = split(key, value)
    if key == "measure":
        if name not in KINDS:
            raise Malformed(f"unknown way to measure '{name}'{nearest(name, KINDS, 'accepted')}")
        return Map(place, [(name, placed(options, place), place)])
    return Map(place, [(name, placed(options, place), place)]) if options else name


def split(key: str, value: Any) -> tuple[str, Mapping[str, Any]]:
    """Name and options of a value with a name."""
    if isinstance(value, str) and value:
        return value, {}
    if isinstance(value, Mapping) and len(value) == 1:
        ((name, options),) = value.items()
        if options is None:
            return name, {}
        if isinstance(options, Mapping):
            return name, options
        raise Malformed(f"the options of {key} '{name}' are a mapping such as {{option: value}}, not {say(options)}")
    kinds = f"; accepted: {', '.join(KINDS)}" if key == "measure" else ""
    form = " or 'module:Class'" if key in COMPONENTS else ""
    several = f" with {len(value)} names ({', '.join(map(str, value))})" if isinstance(value, Mapping) and value else ""
    what = f"a mapping{several}" if several else say(value)
    raise Malformed(f"{key} is one name, or {{name: {{options}}}}{form}, not {what}{kinds}")


def say(value: Any) -> str:
    """A value in a message."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def assign(settings: Map, key: str, value: Any, place: Place) -> None:
    """Changes one setting; `settings` holds all of them in their one form."""
    head, *rest = key.split(".")
    if not rest:
        settings.put(head, normal(head, value, place), place)
        return
    if head in NAMED:
        name, options = split(head, settings[head])
        if rest[0] == name and len(rest) > 1:
            rest = rest[1:]
        elif head == "measure" and rest[0] in KINDS:
            raise Malformed(f"'{key}': measure is {name} here, not {rest[0]}")
        changed = placed(options, settings.at(head))
        _put(changed, key, rest, value, place)
        settings.put(head, Map(settings.at(head), [(name, changed, settings.at(head))]), settings.at(head))
        return
    if settings.get(head) is not None and not isinstance(settings[head], Mapping):
        raise Malformed(f"'{key}': {head} is {say(settings[head])}, which has no parts")
    changed = placed(settings.get(head) or {}, settings.at(head))
    _put(changed, key, rest, value, place)
    settings.put(head, changed, settings.at(head))


def _put(tree: Map, key: str, path: list[str], value: Any, place: Place) -> None:
    for step in path[:-1]:
        below = tree.get(step)
        if isinstance(below, str):
            below = Map(place, [(below, Map(place), place)])  # a component inside options gets options of its own
        if below is None:
            below = Map(place)
        if not isinstance(below, Map):
            raise Malformed(f"'{key}': '{step}' is {say(below)}, which has no '{path[-1]}'")
        tree.put(step, below, tree.at(step) if step in tree else place)
        tree = below
    tree.put(path[-1], placed(value, place), place)


def _paths(given: Any, place: Place) -> PlacedList:
    one = given is not None and not isinstance(given, list | tuple)
    items = placed([given] if one else given or [], place)
    for item in items:
        if not isinstance(item, str) or not item or "\0" in item:
            form = "history is a run folder or a file of records, or a list of such"
            raise Malformed(f"{form}, not {say(item)}")
    return PlacedList(items.place, [(os.path.normpath(items.at(n).path(t)), items.at(n)) for n, t in enumerate(items)])


def _target(text: str, place: Place) -> Map:
    name, _, rest = text.partition(":")
    options = Map(place)
    for part in rest.split(","):
        key, equals, value = (s.strip() for s in part.partition("="))
        if not equals:
            raise Malformed(f"target '{text}': '{part}' is not of the form option=value, as in native:threads=2")
        options.put(key, int(value) if value.isdecimal() else value, place)
    return Map(place, [(name.strip(), options, place)])
