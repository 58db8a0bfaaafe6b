"""From the forms that a file may use to one form each, so that what follows knows only that one."""

from __future__ import annotations

import re
from typing import Any

from searchlab.lab.auto import AUTO
from searchlab.lab.config.forms.workload_forms import normal_workloads
from searchlab.lab.config.settings import SETTINGS, Malformed, normal, say
from searchlab.lab.config.subjects import looked_up, without_programs
from searchlab.lab.config.text.tree import Map, Place, PlacedList, Problems
from searchlab.registry import nearest

_RANGE = re.compile(r"\s*(\d{1,18})\s*\.\.\s*(\d{1,18})\s*")
_MOST_SEEDS = 100_000
_SWEEP_FORMS = ("grid", "zip", "list")
_NOT_SWEPT = {
    "workloads": "list several under 'workloads': each is searched with every combination",
    "seeds": "list several under 'seeds': every combination is searched with each",
}


def normalise(tree: Map, problems: Problems) -> None:
    """Brings everything that has several forms to one, and adds the settings that are not given."""
    if "workloads" in tree:
        tree["workloads"] = normal_workloads(tree["workloads"], tree.at("workloads"), problems)
    _settings(tree, problems)
    if "seeds" in tree:
        tree["seeds"] = normal_seeds(tree["seeds"], tree.at("seeds"), problems)
    if tree.get("sweep") is not None:
        tree["sweep"] = _sweep(tree["sweep"], tree.at("sweep"), problems)
    if tree.get("ablate") is not None:
        tree["ablate"] = _ablate(tree["ablate"], tree.at("ablate"), problems)
    if isinstance(tree.get("expect"), Map):
        tree["expect"] = PlacedList(tree.at("expect"), [(tree["expect"], tree.at("expect"))])


def _settings(tree: Map, problems: Problems) -> None:
    recorded = any(map(looked_up, tree.get("workloads") or ()))
    defaults = {
        "target": "native",
        "space": None if any(map(without_programs, tree.get("workloads") or ())) else "sketch",
        "model": AUTO,
        "strategy": AUTO,
        "history": None,
        "start": "random" if recorded else "seeds",
        "measure": "replay" if recorded else "local",
    }
    for key, default in defaults.items():
        place = tree.at(key)
        try:
            tree.put(key, normal(key, tree.get(key, default), place), place)
        except Malformed as e:
            problems.add(place, str(e))
            tree.put(key, normal(key, default, place), place)


# --- seeds ------------------------------------------------------------------------------------------------------------


def normal_seeds(given: Any, place: Place, problems: Problems) -> PlacedList:
    """Seeds in their one form: a list of numbers, each once."""
    items = given if isinstance(given, PlacedList) else PlacedList(place, [(given, place)])
    if not items:
        problems.add(place, "seeds is empty; accepted: one number, a range such as 0..9, or a list of both")
    found: dict[int, Place] = {}
    for number, item in enumerate(items):
        where = items.at(number)
        for seed in _seed(item, where, problems):
            if seed in found:
                problems.add(where, f"seed {seed} is listed twice")
            found[seed] = where
    return PlacedList(items.place, found.items() or [(0, place)])  # so that what else is wrong is found, too


def _seed(item: Any, place: Place, problems: Problems) -> range:
    if isinstance(item, int) and not isinstance(item, bool) and item >= 0:
        return range(item, item + 1)
    match = _RANGE.fullmatch(item) if isinstance(item, str) else None
    if match is None:
        problems.add(place, f"a seed is a whole number from 0, or a range such as 0..9, not {say(item)}")
        return range(0)
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + _MOST_SEEDS:
        what = "is empty: it ends before it begins" if last < first else f"has more than {_MOST_SEEDS} seeds"
        problems.add(place, f"the range {item} {what}")
        return range(0)
    return range(first, last + 1)


# --- sweeps and ablations ---------------------------------------------------------------------------------------------


def _sweep(given: Any, place: Place, problems: Problems) -> Map:
    if isinstance(given, PlacedList):
        given = Map(place, [("list", given, place)])
    elif isinstance(given, Map) and not given.keys() & set(_SWEEP_FORMS):
        given = Map(place, [("grid", given, place)])
    if not isinstance(given, Map):
        problems.add(
            place, f"sweep is a mapping such as {{strategy: [random, local]}}, or a list of such, not {say(given)}"
        )
        return Map(place)
    for key in ("grid", "zip"):
        if key in given:
            _lists(key, given, problems)
    if "list" in given:
        _listed(given, problems)
    return given


def _lists(form: str, sweep: Map, problems: Problems) -> None:
    given = sweep[form]
    if not isinstance(given, Map):
        problems.add(sweep.at(form), f"{form} is a mapping of settings to lists, not {say(given)}")
        sweep[form] = Map(sweep.place)
        return
    for key, values in list(given.items()):
        if not check_key(key, given.at(key), "sweep", problems):
            del given[key]
        elif not isinstance(values, PlacedList) or not values:
            what = say(values) if values else "nothing"
            problems.add(given.at(key), f"a sweep over '{key}' takes a list of values, not {what}")
            del given[key]
        elif key == "history":
            given[key] = PlacedList(
                values.place, [(_history(v, values.at(n), problems), values.at(n)) for n, v in enumerate(values)]
            )
    lengths = {len(v) for v in given.values()}
    if form == "zip" and len(lengths) > 1:
        sizes = ", ".join(f"{k} has {len(v)}" for k, v in given.items())
        problems.add(sweep.at(form), f"lists under zip are of equal length; {sizes}")
        sweep[form] = Map(sweep.place)


def _listed(sweep: Map, problems: Problems) -> None:
    items = sweep["list"]
    if not isinstance(items, PlacedList) or not items:
        what = say(items) if items else "nothing"
        problems.add(sweep.at("list"), f"a list of combinations holds mappings of settings, not {what}")
        sweep["list"] = PlacedList(sweep.place)
        return
    kept = []
    for number, item in enumerate(items):
        if _changes(item, items.at(number), "sweep", problems, named=True):
            kept.append((item, items.at(number)))
    sweep["list"] = PlacedList(items.place, kept)


def _ablate(given: Any, place: Place, problems: Problems) -> Map:
    if not isinstance(given, Map):
        problems.add(place, f"ablate is a mapping such as {{remove: {{model: {{model: none}}}}}}, not {say(given)}")
        return Map(place)
    base = given.get("base", "full")
    if not isinstance(base, str | Map):
        problems.add(given.at("base"), f"base is a name or a mapping of settings, not {say(base)}")
    if not isinstance(base, str) and not (isinstance(base, Map) and _changes(base, given.at("base"), "base", problems)):
        del given["base"]
    for form in ("remove", "replace"):
        _variants(form, given, problems)
    factors = list(given.get("remove") or {})
    if isinstance(given.get("path"), PlacedList):
        _path(given["path"], factors, problems)
    if not factors and not given.get("replace"):
        problems.add(place, "ablate has nothing to compare with; name at least one factor under 'remove' or 'replace'")
    return given


def _variants(form: str, ablate: Map, problems: Problems) -> None:
    given = ablate.get(form)
    if given is not None and not isinstance(given, Map):
        example = "{model: {model: none}}"
        problems.add(ablate.at(form), f"{form} maps names to settings, such as {example}, not {say(given)}")
        ablate[form] = given = Map(ablate.place)
    for name, changes in list((given or {}).items()):
        if not _changes(changes, ablate[form].at(name), f"{form} '{name}'", problems):
            del ablate[form][name]


def _path(path: PlacedList, factors: list[str], problems: Problems) -> None:
    for number, name in enumerate(path):
        if name not in factors:
            known = nearest(str(name), factors, "factors of remove")
            problems.add(path.at(number), f"path: unknown factor '{name}'{known}")
        elif name in path[:number]:
            problems.add(path.at(number), f"path: '{name}' is listed twice")


def _changes(given: Any, place: Place, where: str, problems: Problems, named: bool = False) -> bool:
    if not isinstance(given, Map) or not given:
        form = "a mapping of settings, such as {strategy: random}"
        problems.add(place, f"{where}: {form}, not {say(given) if given else 'nothing'}")
        return False
    good = [check_key(k, given.at(k), where, problems) for k in given if not (named and k == "name")]
    if "history" in given:
        given["history"] = _history(given["history"], given.at("history"), problems)
    if named and not isinstance(given.get("name", ""), str):
        problems.add(given.at("name"), f"{where}: a name is text, not {say(given['name'])}")
    return all(good)


def _history(given: Any, place: Place, problems: Problems) -> Any:
    """A history with absolute paths, as changes are taken to other files, where relative ones would mean others."""
    try:
        return normal("history", given, place)
    except Malformed as e:
        problems.add(place, str(e))
        return None


def check_key(key: str, place: Place, where: str, problems: Problems) -> bool:
    """Whether a key, perhaps a dotted one, leads to a setting."""
    head, *rest = key.split(".")
    if head in SETTINGS and all(rest):
        return True
    if head in _NOT_SWEPT:
        problems.add(place, f"{where}: '{key}' is not a setting; {_NOT_SWEPT[head]}")
    else:
        known = nearest(head, SETTINGS, "accepted")
        problems.add(place, f"{where}: unknown setting '{key}'{known}, and their options, as in strategy.population")
    return False
