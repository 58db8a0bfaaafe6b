"""From records to trials of other tasks: points of regenerated spaces, each with its fastest time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from searchlab import targets
from searchlab.errors import ConfigError, SearchLabError
from searchlab.lab.code import as_it_was
from searchlab.lab.history import origins
from searchlab.lab.records import Record, RecordStore
from searchlab.search import SPACES, Points, Space, Task, Trials, space
from searchlab.workloads import parse

_Place = tuple[str, str, str, str]  # key of the workload, machine, settings of the space, its version


@dataclass(frozen=True, eq=False)
class KnownTrials:
    """Trials of one workload on one machine (`target`, a fingerprint), and the number of `records` behind them."""

    trials: Trials
    target: str
    records: int


@dataclass(frozen=True, eq=False)
class Past:
    """What a run folder or a file of records holds; `unfit` counts records that no longer fit their space."""

    known: tuple[KnownTrials, ...]
    unfit: int


@dataclass(frozen=True, eq=False)
class Lessons:
    """Trials of other tasks, and numbers of measurements: `used`, the task's `own`, and `unfit`."""

    trials: tuple[Trials, ...]
    used: int
    own: int
    unfit: int

    def __str__(self) -> str:
        tasks = len({t.task for t in self.trials})
        left = f"{self.own} of this task and {self.unfit} that no longer fit their space are left out"
        return f"the history gives {self.used} measurements of {tasks} other tasks; {left}"


def lessons(history: Sequence[str], digests: Sequence[str], task: Task) -> Lessons:
    """The training data for a search of `task`, without its own measurements, which would leak the answers."""
    pasts = [past(path, digest) for path, digest in zip(history, digests, strict=True)]
    key, machine = task.workload.key, task.target.fingerprint()
    known = [k for p in pasts for k in p.known]
    others = [k for k in known if (k.trials.task, k.target) != (key, machine)]
    used = sum(k.records for k in others)
    own = sum(k.records for k in known) - used
    return Lessons(tuple(k.trials for k in others), used, own, sum(p.unfit for p in pasts))


@lru_cache(maxsize=8)
def past(path: str, digest: str) -> Past:
    """The trials of a source, read once per process; ConfigError if its contents no longer match `digest`."""
    if origins.digest(path) != digest:
        raise ConfigError(f"the history {path} has changed since the experiment was read; run the experiment again")
    groups: dict[_Place, list[Record]] = {}
    for record, config in _records(path):
        groups.setdefault(_place(record, config), []).append(record)
    read = [_known(place, records) for place, records in groups.items()]
    known = tuple(k for k in read if k is not None)
    return Past(known, sum(map(len, groups.values())) - sum(k.records for k in known))


def _records(path: str) -> Iterator[tuple[Record, Mapping[str, Any]]]:
    """Records, each with workload, target and space in the form of a configuration."""
    for part in origins.parts(path):
        for record in RecordStore(part.file).records():
            yield record, _settings(part.config, record)


def _settings(config: Mapping[str, Any], record: Record) -> Mapping[str, Any]:
    """The settings that a record was searched with; the cell of a network has records of several workloads."""
    return config if "workload" in config else {**_config(record), **config}


def _config(record: Record) -> dict[str, Any]:
    """The settings in the record itself: the space without options, and the machine by name or as the local one."""
    name = record.cpu if record.cpu in targets.known() else "native"
    return {"workload": record.workload, "target": {name: {"threads": record.threads}}, "space": record.space}


def _place(record: Record, config: Mapping[str, Any]) -> _Place:
    made_of = json.dumps([config["workload"], config["target"], config["space"]])
    return record.task, record.target, made_of, record.space_version


def _known(place: _Place, records: Sequence[Record]) -> KnownTrials | None:
    """The records of a place as trials; None if none of them fits."""
    task, machine, made_of, version = place
    made = _space(task, made_of, version)
    if made is None:
        return None
    found = [(p, r.outcome().fastest) for r in records if (p := _point(made, r)) is not None]
    if not found:
        return None
    points, seconds = Points.concat([p for p, _ in found]), np.array([s for _, s in found])
    return KnownTrials(_merged(Trials(task, made, points, seconds)), machine, len(found))


def _space(task: str, made_of: str, version: str) -> Space | None:
    """The space as it was in that version, if it can still be generated."""
    workload, target, component = json.loads(made_of)
    try:
        found = Task(parse(workload), targets.parse(target))
        name, _ = SPACES.parse(component)
        made = space(as_it_was("space", component, {f"space {name}": version}), found)
        known = (made.version, *SPACES.find(name).earlier)
    except SearchLabError:
        return None
    return made if found.workload.key == task and version in known else None


def _point(made: Space, record: Record) -> Points | None:
    try:
        return made.chosen(record.knobs)
    except SearchLabError:
        return None


def _merged(trials: Trials) -> Trials:
    """Every point once, in order of first occurrence, with the fastest time of all its measurements."""
    keys = trials.space.key(trials.points)
    _, first, where = np.unique(keys, return_index=True, return_inverse=True)
    fastest = np.full(len(first), np.inf)
    np.minimum.at(fastest, where, trials.seconds)
    order = np.argsort(first)
    return Trials(trials.task, trials.space, trials.points[first[order]], fastest[order])
