"""Overrides on the command line: `key=value`, dotted keys, values as YAML; commas make a sweep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from searchlab.errors import ConfigError
from searchlab.lab.config.experiment import Source
from searchlab.lab.config.settings import SETTINGS, Malformed, assign, normal
from searchlab.lab.config.text.reading import read
from searchlab.lab.config.text.tree import Map, Place, PlacedList, Problems
from searchlab.registry import nearest

_MAPPINGS = ("budget", "report")  # besides settings, what a dotted key may lead into
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_PARAMETER = re.compile(r"\s*\w+\s*=")


@dataclass(frozen=True)
class Override:
    """One override; a `swept` one has a list of values."""

    key: str
    value: Any
    place: Place
    swept: bool = False

    @property
    def head(self) -> str:
        """The setting that the key is, or is a part of."""
        return self.key.partition(".")[0]


def parse(texts: Sequence[str], problems: Problems) -> list[Override]:
    """The overrides; what cannot be read is noted as a problem."""
    found = []
    for text in texts:
        place = Place(f"override '{text}'")
        key, equals, value = (s.strip() for s in text.partition("="))
        head, *rest = key.split(".")
        if not equals or not key:
            problems.add(place, "an override is key=value, such as strategy=random or budget.trials=64")
        elif head not in Source.model_fields:
            problems.add(place, f"unknown key '{head}'{nearest(head, Source.model_fields, 'accepted')}")
        elif head == "include":
            problems.add(place, "files are included by files, not by overrides")
        elif rest and (head not in (*SETTINGS, *_MAPPINGS) or not all(rest)):
            hint = "; a sweep is written strategy=random,local" if head == "sweep" else ""
            problems.add(place, f"'{head}' has no parts that can be overridden by '{key}'{hint}")
        elif not value:
            problems.add(place, "the value is missing; write null for none")
        else:
            found += _read(key, head, value, place, problems)
    return found


def _read(key: str, head: str, value: str, place: Place, problems: Problems) -> list[Override]:
    parts = split(value, workloads=head == "workloads")
    try:
        values = [read(part, place.file, place) for part in parts]
        if key == "history":
            values = [normal(key, v, place) for v in values]
    except (ConfigError, Malformed) as e:
        problems.add(place, str(e).removeprefix(f"{place}: "))
        return []
    if len(values) == 1:
        return [Override(key, values[0], place)]
    return [Override(key, PlacedList(place, [(v, place) for v in values]), place, swept=head in SETTINGS)]


def split(text: str, workloads: bool = False) -> list[str]:
    """Parts between commas that no bracket or quote holds; a workload's parameters stay with it."""
    parts, closers, quote = [""], [], ""
    for c in text:
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in _PAIRS:
            closers.append(_PAIRS[c])
        elif closers and c == closers[-1]:
            closers.pop()
        elif c == "," and not closers:
            parts.append("")
            continue
        parts[-1] += c
    if not workloads:
        return parts
    joined = parts[:1]
    for part in parts[1:]:
        if _PARAMETER.match(part):
            joined[-1] += f",{part}"
        else:
            joined.append(part)
    return joined


def apply_whole(tree: Map, overrides: Sequence[Override]) -> None:
    """Puts whole values in place, before forms are made one and what is missing is added."""
    for o in overrides:
        if "." not in o.key and not o.swept:
            tree.put(o.key, o.value, o.place)


def apply_sweeps(tree: Map, overrides: Sequence[Override], problems: Problems) -> list[Override]:
    """Changes sweeps: a setting that is given one value is no longer swept over; gives what changes parts of others."""
    parts = []
    for o in overrides:
        if o.head not in SETTINGS and "." not in o.key:
            continue
        if not _unswept(tree, o, problems):
            continue
        if o.swept:
            sweep = tree.setdefault("sweep", Map(o.place))
            sweep.setdefault("grid", Map(o.place)).put(o.key, o.value, o.place)
        elif "." in o.key:
            parts.append(o)
    return parts


def apply_parts(tree: Map, overrides: Sequence[Override], problems: Problems) -> None:
    """Changes parts of settings."""
    for o in overrides:
        try:
            assign(tree, o.key, o.value, o.place)
        except Malformed as e:
            problems.add(o.place, str(e))


def _unswept(tree: Map, o: Override, problems: Problems) -> bool:
    sweep = tree.get("sweep") or {}
    (sweep.get("grid") or {}).pop(o.key, None)
    held = [*(sweep.get("zip") or {}), *(k for item in sweep.get("list") or () for k in item)]
    if o.key in held:
        problems.add(
            o.place, f"the file's sweep gives '{o.key}' values together with others; override sweep= as a whole"
        )
        return False
    return True
