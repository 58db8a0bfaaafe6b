"""Which combinations an experiment compares: the product of its sweep's axes and of its ablation's variants."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from searchlab.lab.config.settings import SETTINGS, Malformed, assign
from searchlab.lab.config.text.tree import Map, Place, Problems, placed, unplaced

MOST = 100_000
FULL = "full"


@dataclass(frozen=True)
class Choice:
    """One value of an axis: the settings it changes, and its name if it was given one."""

    changes: Map
    name: str = ""


@dataclass(frozen=True)
class Combination:
    """Settings to compare: `swept` as the sweep left them, `settings` after the ablation's variant.

    `names` are those that values of the sweep were given, `named` the settings that such values stand for.
    """

    swept: Map
    settings: Map
    names: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()
    variant: str = ""


def combinations(tree: Mapping[str, Any], problems: Problems | None = None) -> list[Combination]:
    """All combinations of an experiment whose sweep and ablation are in their one form.

    Changes that cannot be made are noted as problems, and their combinations left out.
    """
    start = tree.place if isinstance(tree, Map) else Place("experiment")
    noted = problems if problems is not None else Problems()
    base = Map(start, ((k, placed(tree.get(k), start), _at(tree, k, start)) for k in SETTINGS))
    axes, variants = sweep_axes(tree.get("sweep"), start), ablation(tree.get("ablate"), start)
    count = math.prod(map(len, axes)) * len(variants)
    if count > MOST:
        noted.add(_at(tree, "sweep", start), f"{count} combinations are too many; at most {MOST}")
        noted.raise_any()
    found = list(_product(base, axes, variants, noted))
    if problems is None:
        noted.raise_any()
    return found


def _product(
    base: Map, axes: list[list[Choice]], variants: list[tuple[Choice, ...]], problems: Problems
) -> Iterator[Combination]:
    changed = [frozenset(k.partition(".")[0] for c in axis for k in c.changes) for axis in axes]
    for chosen in itertools.product(*axes):
        swept = _changed(base, chosen, problems)
        if swept is None:
            continue
        names = tuple(c.name for c in chosen if c.name)
        named = frozenset().union(*(own for own, c in zip(changed, chosen, strict=True) if c.name))
        for variant in variants:
            settings = _changed(swept, variant, problems)
            if settings is not None:
                yield Combination(swept, settings, names, named, variant[-1].name if variant else "")


def _at(tree: Mapping[str, Any], key: str, default: Place) -> Place:
    return tree.at(key) if isinstance(tree, Map) else default


def _changed(settings: Map, choices: tuple[Choice, ...], problems: Problems) -> Map | None:
    """The settings after all changes, whole ones before parts of them; None where one cannot be made."""
    result = placed(settings, settings.place)
    for choice in choices:
        for key in sorted(choice.changes, key=lambda k: k.count(".")):
            try:
                assign(result, key, choice.changes[key], choice.changes.at(key))
            except Malformed as e:
                problems.add(choice.changes.at(key), str(e))
                return None
    assert isinstance(result, Map)
    return result


# --- sweeps -----------------------------------------------------------------------------------------------------------


def sweep_axes(sweep: Any, place: Place) -> list[list[Choice]]:
    """The axes of a sweep: one for every key of the grid, one for all of zip, one for the list."""
    given = placed(unplaced(sweep), place) if sweep is not None and not isinstance(sweep, Map) else sweep
    if not given:
        return []
    axes = []
    for key, values in (given.get("grid") or {}).items():
        axes.append([Choice(Map(values.place, [(key, v, values.at(n))])) for n, v in enumerate(values)])
    if together := given.get("zip"):
        length = len(next(iter(together.values())))
        rows = range(length)
        axes.append([Choice(Map(given.place, ((k, v[n], v.at(n)) for k, v in together.items()))) for n in rows])
    if listed := given.get("list"):
        axes.append([_listed(item) for item in listed])
    return axes


def _listed(item: Map) -> Choice:
    changes = Map(item.place, ((k, v, item.at(k)) for k, v in item.items() if k != "name"))
    return Choice(changes, str(item.get("name", "")))


# --- ablations --------------------------------------------------------------------------------------------------------


def ablation(ablate: Any, place: Place) -> list[tuple[Choice, ...]]:
    """The variants of an ablation, each as changes one after the other; the last one names it."""
    if not ablate:
        return [()]
    given = ablate if isinstance(ablate, Map) else placed(ablate, place)
    base = given.get("base", FULL)
    first = (Choice(base),) if isinstance(base, Map) else ()
    full = (*first, Choice(Map(place), FULL if isinstance(base, Map) else base))
    return [full, *((*first, *v) for v in _variants(given))]


def _variants(given: Map) -> Iterator[tuple[Choice, ...]]:
    remove, replace, path = given.get("remove") or {}, given.get("replace") or {}, given.get("path") or []
    alone = given.get("leave_one_out", True)
    if alone:
        for name, changes in remove.items():
            yield (Choice(changes, f"without {name}"),)
    for name, changes in replace.items():
        yield (Choice(changes, name),)
    for steps in range(len(path) + 1 if path else 0):
        added = path[:steps]
        missing = [n for n in remove if n not in added]
        if len(missing) > (1 if alone else 0):  # what lacks one factor is among those above, what lacks none is full
            yield (*(Choice(remove[n]) for n in missing), Choice(Map(given.place), "+".join(("bare", *added))))
