"""Cells: one resolved combination on one task with one seed, known by a hash of what it is.

    for cell in cells(load("experiment.yaml")):
        print(cell.id, cell.entry, cell.task, cell.seed)

The manifest of a run lists them all, so that a run can be resumed, and a file that has changed since is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from searchlab.lab.config.experiment import Experiment
from searchlab.lab.config.measuring import Measure
from searchlab.lab.config.search_settings import Budget, SearchSettings
from searchlab.lab.config.subjects import NetworkPart, SubjectSettings, subjects
from searchlab.lab.history.origins import digest
from searchlab.registry import Component

if TYPE_CHECKING:
    from searchlab.lab.study.scheduler import Policy

FORMAT = "searchlab-manifest"


@dataclass(frozen=True, eq=False)
class Cell:
    """What one search needs: a `workload` (text), a `table` (a name or path that tables.load takes), or `parts`.

    The parts are tasks of a network; a cell that is `within` another one searches one of them.
    """

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
    parts: tuple[NetworkPart, ...] = ()
    within: str = field(default="", repr=False)

    @cached_property
    def config(self) -> dict[str, Any]:
        """All that decides what the cell measures, as plain data; tables and histories are known by what they hold."""
        history = {"history": list(self.learnt)} if self.learnt else {}
        return {
            **self._subject,
            "target": self.target,
            "space": self.space,
            "model": self.model,
            "strategy": self.strategy,
            **history,
            "budget": self._budget,
            "measure": self.measure.model_dump(mode="json"),
            "seed": self.seed,
        }

    @cached_property
    def id(self) -> str:
        """Twelve hex digits of the config; the experiment's name and the cell's own are no part of it."""
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def _subject(self) -> dict[str, Any]:
        if self.parts:
            return {"network": self.task, "parts": [part.plain for part in self.parts]}
        return {"workload": self.workload} if self.workload else {"table": self.task, "digest": self.digest}

    @property
    def _budget(self) -> dict[str, Any]:
        """Who takes turns matters to networks alone."""
        found = self.budget.model_dump(mode="json")
        return (
            {**found, "scheduler": self.scheduler} if self.parts else {k: found[k] for k in found if k != "scheduler"}
        )

    # --- networks -----------------------------------------------------------------------------------------------------

    @property
    def scheduler(self) -> Policy:
        return self.budget.scheduler or "gradient"

    @property
    def owner(self) -> str:
        """The id of the cell that keeps the records."""
        return self.within or self.id

    @property
    def recorded(self) -> bool:
        """Whether it looks all times up."""
        return self.table is not None or any(part.table is not None for part in self.parts)

    @property
    def searches(self) -> tuple[Cell, ...]:
        """The cell itself, or one for each task of the network."""
        if not self.parts:
            return (self,)
        return tuple(
            replace(
                self, task=p.label, workload=p.workload, table=p.table, digest=p.digest, parts=(), within=self.id
            )
            for p in self.parts
        )  # fmt: skip

    @property
    def trials(self) -> int | None:
        """How many measurements it may take: a network's budget counts for each of its tasks."""
        return None if self.budget.trials is None else self.budget.trials * max(1, len(self.parts))

    @property
    def seconds(self) -> float | None:
        """How long it may take."""
        return None if self.budget.seconds is None else self.budget.seconds * max(1, len(self.parts))


def cells(experiment: Experiment) -> tuple[Cell, ...]:
    """All cells: seed by seed and task by task, so that what an interrupted run has done can be compared."""
    settings = [(e.name, e.factors, _settings(e.settings)) for e in experiment.entries]
    return tuple(
        Cell(entry=name, factors=factors, seed=seed, **_subject(subject), **given)
        for seed in experiment.seeds
        for subject in subjects(experiment.workloads)
        for name, factors, given in settings
    )


def _settings(given: SearchSettings) -> dict[str, Any]:
    own = {f.name: getattr(given, f.name) for f in fields(given)}
    return {**own, "learnt": tuple(digest(path) for path in given.history)}


def _subject(subject: SubjectSettings) -> dict[str, Any]:
    return {
        "task": subject.label,
        "workload": subject.workload,
        "table": subject.table,
        "digest": subject.digest,
        "parts": subject.parts,
    }


def shared(factors: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """What all combinations have in common, which their names do not say."""
    every = list(factors)
    return {k: v for k, v in (every[0] if every else {}).items() if all(f.get(k) == v for f in every)}


# --- manifests --------------------------------------------------------------------------------------------------------


def manifest(experiment: Experiment) -> dict[str, Any]:
    """The cells of an experiment as plain data, to be written before anything runs."""
    rows = [
        {"id": c.id, "entry": c.entry, "task": c.task, "seed": c.seed, "factors": dict(c.factors), "config": c.config}
        | ({"table": c.table} if c.table else {})
        | ({"tables": [p.table for p in c.parts]} if c.parts and c.recorded else {})
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


def label(entry: str, task: str, seed: int) -> str:
    """What a cell is called in messages."""
    return f"{entry} on {task}, seed {seed}"


def _label(cell: Mapping[str, Any]) -> str:
    return label(cell["entry"], cell["task"], cell["seed"])


def _difference(old: Mapping[str, Any], new: Mapping[str, Any], inside: str = "") -> str:
    found = []
    for key in dict.fromkeys((*old, *new)):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict) and a != b:
            found.append(_difference(a, b, f"{inside}{key}."))
        elif a != b:
            found.append(f"{inside}{key}: {json.dumps(a)} -> {json.dumps(b)}")
    return ", ".join(found)
