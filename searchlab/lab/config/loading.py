"""From a file and overrides to a checked experiment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from searchlab.lab.config.checks.checking import check_settings, check_whole, without_absent
from searchlab.lab.config.checks.fitting import fit
from searchlab.lab.config.experiment import Experiment, Source
from searchlab.lab.config.forms import effort
from searchlab.lab.config.forms.normalising import normalise
from searchlab.lab.config.forms.translating import faults
from searchlab.lab.config.settings import EARLIER, EARLIER_BUDGET, SETTINGS
from searchlab.lab.config.text import overrides
from searchlab.lab.config.text.including import read_file
from searchlab.lab.config.text.tree import Map, Place, Problems, find, placed, unplaced


def load(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment of a YAML file, with `key=value` overrides; everything that is wrong is raised together."""
    tree = read_file(path)
    if "name" not in tree:
        name = re.sub(r"[^A-Za-z0-9._+-]+", "-", Path(path).stem).strip("-._+") or "experiment"
        tree.put("name", name, tree.place)
    return _experiment(tree, overrides)


def load_resolved(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment that a run folder has, as `dump` wrote it, now or in an earlier version."""
    tree = read_file(path)
    for key, value in EARLIER.items():
        if key not in tree:
            tree.put(key, value, tree.place)
    budget = tree.get("budget")
    for key, thrift in EARLIER_BUDGET.items():
        if isinstance(budget, Map) and key not in budget:
            budget.put(key, thrift, budget.place)
    return _experiment(tree, overrides)


def from_data(data: Mapping[str, Any], overrides: Sequence[str] = ()) -> Experiment:
    """The experiment that plain data describes, as a file would; paths are relative to the current folder."""
    return _experiment(placed({"name": "experiment", **data}, Place("experiment")), overrides)


def dump(experiment: Experiment) -> str:
    """The experiment as YAML that says everything and includes nothing; `load` gives the same experiment."""
    import yaml

    return str(yaml.safe_dump(experiment.resolved(), sort_keys=False, allow_unicode=True, width=100))


def _experiment(tree: Map, texts: Sequence[str]) -> Experiment:
    problems = Problems()
    given = overrides.parse(texts, problems)
    overrides.apply_whole(tree, given)
    normalise(tree, problems)
    parts = overrides.apply_sweeps(tree, given, problems)
    fit(tree, problems)  # before parts are changed, which are those of the components that fit
    overrides.apply_parts(tree, parts, problems)
    effort.fill(tree)
    wrong: set[str | int] = set()
    try:
        made = Experiment.model_validate(unplaced(tree))
    except ValidationError as e:
        for path, message in faults(e, Source):
            problems.add(find(tree, path, tree.place), message)
            wrong.add(path[0])
    found = check_settings(tree, problems) if wrong.isdisjoint(("sweep", "ablate")) else []
    if not problems.found:
        made.combined(found)
        if any(o.head in (*SETTINGS, "sweep", "ablate") for o in given):
            made = without_absent(made)
        check_whole(tree, made, problems)
    problems.raise_any()
    return made
