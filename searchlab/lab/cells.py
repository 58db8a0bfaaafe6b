"""Cells: one resolved combination on one task with one seed, known by a hash of what it is.

    for cell in cells(load("experiment.yaml")):
        print(cell.id, cell.entry, cell.task, cell.seed)

The manifest of a run lists them all, so that a run can be resumed, and a file that has changed since is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from searchlab.lab.config.combinations import combinations
from searchlab.lab.config.measuring import Measure
from searchlab.lab.config.models import Budget, Experiment
from searchlab.lab.config.naming import entries
from searchlab.lab.config.subjects import Subject, subjects
from searchlab.lab.config.tree import plain
from searchlab.lab.history.sources import digest
from searchlab.registry import Component

FORMAT = "searchlab-manifest"


@dataclass(frozen=True, eq=False)
class Cell:
    """What one search needs: exactly one of `workload` (text) and `table` (a name or path that tables.load takes)."""

    entry: str
    factors: Mapping[str, str]
    task: str
    workload: str | None
    table: str | None
    target: Component
    space: Component | None
    model: Component
    strategy: Component
    budget: Budget
    measure: Measure
    seed: int
    digest: str = field(default="", repr=False)  # of what the table holds
    history: tuple[str, ...] = ()  # paths of run folders and files of records
    learnt: tuple[str, ...] = field(default=(), repr=False)  # digests of what these hold

    @cached_property
    def config(self) -> dict[str, Any]:
        """All that decides what the cell measures, as plain data; tables and histories are known by what they hold."""
        subject = {"workload": self.workload} if self.workload else {"table": self.task, "digest": self.digest}
        history = {"history": list(self.learnt)} if self.learnt else {}
        return {
            **subject,
            "target": self.target,
            "space": self.space,
            "model": self.model,
            "strategy": self.strategy,
            **history,
            "budget": self.budget.model_dump(mode="json"),
            "measure": self.measure.model_dump(mode="json"),
            "seed": self.seed,
        }

    @cached_property
    def id(self) -> str:
        """Twelve hex digits of the config; the experiment's name and the cell's own are no part of it."""
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:12]


def cells(experiment: Experiment) -> tuple[Cell, ...]:
    """All cells: seed by seed and task by task, so that what an interrupted run has done can be compared."""
    found = combinations(experiment.model_dump(mode="json"))
    settings = [(e.name, e.factors, _settings(c.settings)) for c, e in zip(found, entries(found), strict=True)]
    return tuple(
        Cell(entry=name, factors=factors, seed=seed, **_subject(subject), **given)
        for seed in experiment.seeds
        for subject in subjects(experiment.workloads)
        for name, factors, given in settings
    )


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    budget, measure = json.dumps(given["budget"]), json.dumps(given["measure"])
    return {
        **plain(given),
        "history": tuple(given["history"]),
        "learnt": tuple(digest(path) for path in given["history"]),
        "budget": Budget.model_validate_json(budget),
        "measure": Measure.model_validate_json(measure),
    }


def _subject(subject: Subject) -> dict[str, Any]:
    return {
        "task": subject.label, "workload": subject.workload, "table": subject.table, "digest": subject.digest
    }  # fmt: skip


# --- manifests --------------------------------------------------------------------------------------------------------


def manifest(experiment: Experiment) -> dict[str, Any]:
    """The cells of an experiment as plain data, to be written before anything runs."""
    rows = [
        {"id": c.id, "entry": c.entry, "task": c.task, "seed": c.seed, "factors": dict(c.factors), "config": c.config}
        | ({"table": c.table} if c.table else {})
        for c in cells(experiment)
    ]
    return {"format": FORMAT, "version": 1, "name": experiment.name, "cells": rows}


@dataclass(frozen=True)
class Drift:
    """How an experiment differs from the manifest of its run; cells as "entry on task, seed n"."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        parts = [(self.changed, "changed"), (self.removed, "gone"), (self.added, "new")]
        return "; ".join(f"{len(c)} cells {what}, such as {c[0]}" for c, what in parts if c)


def drift(old: Mapping[str, Any], new: Mapping[str, Any]) -> Drift:
    """What differs between two manifests: cells that are new, gone, or the same by name but not by config."""
    before = {c["id"]: c for c in old["cells"]}
    after = {c["id"]: c for c in new["cells"]}
    gone = {_label(c): c for i, c in before.items() if i not in after}
    come = {_label(c): c for i, c in after.items() if i not in before}
    return Drift(
        tuple(label for label in come if label not in gone),
        tuple(label for label in gone if label not in come),
        tuple(
            f"{label} ({_difference(c['config'], come[label]['config'])})" for label, c in gone.items() if label in come
        ),
    )


def _label(cell: Mapping[str, Any]) -> str:
    return f"{cell['entry']} on {cell['task']}, seed {cell['seed']}"


def _difference(old: Mapping[str, Any], new: Mapping[str, Any], inside: str = "") -> str:
    found = []
    for key in dict.fromkeys((*old, *new)):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict) and a != b:
            found.append(_difference(a, b, f"{inside}{key}."))
        elif a != b:
            found.append(f"{inside}{key}: {json.dumps(a)} -> {json.dumps(b)}")
    return ", ".join(found)
