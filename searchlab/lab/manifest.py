"""Cells and the manifest of a run, which lists them: each is one search, identified by a hash of its configuration.

The manifest is used to resume a run and to detect that its experiment has changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from searchlab.lab.config.search_settings import SearchSettings
from searchlab.lab.config.subjects import NetworkPart, SubjectSettings

if TYPE_CHECKING:
    from searchlab.lab.code import Code
    from searchlab.lab.config.measuring import Measure
    from searchlab.lab.config.search_settings import Budget, Start
    from searchlab.lab.study.scheduler import Policy
    from searchlab.registry import Component

FORMAT = "searchlab-manifest"
_SETTINGS = ("target", "space", "model", "strategy", "start", "budget", "measure")


@dataclass(frozen=True, eq=False)
class Cell:
    """One search: a subject, the settings of one combination (`entry`), and a seed.

    `factors` are the settings that make up the entry, as text.  `learnt` has digests of the histories' contents.  The
    `id` is computed unless given; the cell of one task of a network has the id of the network's cell, which keeps its
    records.  `kept` cells belong to an earlier form of the experiment and are not run.  `code` has the known versions
    of the components that it ran with, or will run with.
    """

    entry: str
    factors: Mapping[str, str]
    subject: SubjectSettings
    settings: SearchSettings
    seed: int
    learnt: tuple[str, ...] = field(default=(), repr=False)
    id: str = ""
    kept: bool = False
    code: Code = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Computes the id: twelve hex digits of the config's hash, independent of the names of experiment and entry."""
        if not self.id:
            text = json.dumps(self.config, sort_keys=True)
            object.__setattr__(self, "id", hashlib.sha256(text.encode()).hexdigest()[:12])

    def __str__(self) -> str:
        return label(self.entry, self.task, self.seed)

    # --- the subject --------------------------------------------------------------------------------------------------

    @property
    def task(self) -> str:
        """The label of the subject."""
        return self.subject.label

    @property
    def workload(self) -> str | None:
        """The text of the workload; None for tables and networks."""
        return self.subject.workload

    @property
    def table(self) -> str | None:
        """The name or the path of a recorded table."""
        return self.subject.table

    @property
    def digest(self) -> str:
        """Twelve hex digits of the hash of the table's content."""
        return self.subject.digest

    @property
    def parts(self) -> tuple[NetworkPart, ...]:
        """The tasks of a network, or the sizes of a family."""
        return self.subject.parts

    @property
    def family(self) -> str | None:
        """The text of a family of sizes."""
        return self.subject.family

    @property
    def recorded(self) -> bool:
        """Whether all times are looked up in recorded tables."""
        return any(one.table is not None for one in (self.subject, *self.parts))

    @property
    def modelled(self) -> bool:
        """Whether its costs come from a model, in cycles, and not from a clock."""
        return self.measure.kind == "emulated"

    @property
    def searches(self) -> tuple[Cell, ...]:
        """The cell itself, or one cell for each task of the network."""
        return tuple(replace(self, subject=part) for part in self.parts) or (self,)

    # --- the settings -------------------------------------------------------------------------------------------------

    @property
    def target(self) -> Component:
        """The machine that code is generated for."""
        return self.settings.target

    @property
    def space(self) -> Component | None:
        """The search space; None for recorded tables."""
        return self.settings.space

    @property
    def model(self) -> Component:
        """The cost model."""
        return self.settings.model

    @property
    def strategy(self) -> Component:
        """The search strategy."""
        return self.settings.strategy

    @property
    def history(self) -> tuple[str, ...]:
        """The paths of the model's training data; manifests have only digests of the contents."""
        return self.settings.history

    @property
    def start(self) -> Start:
        """How the search starts: with seeds of its space, or with nothing."""
        return self.settings.start

    @property
    def budget(self) -> Budget:
        """The budget of the search of each task."""
        return self.settings.budget

    @property
    def measure(self) -> Measure:
        """How candidates are measured."""
        return self.settings.measure

    @property
    def scheduler(self) -> Policy:
        """The policy that schedules the tasks of a network."""
        return self.budget.scheduler or "gradient"

    @property
    def trials(self) -> int | None:
        """The maximum number of measurements; a network's budget counts once per task."""
        return None if self.budget.trials is None else self.budget.trials * max(1, len(self.parts))

    @property
    def seconds(self) -> float | None:
        """The time limit."""
        return None if self.budget.seconds is None else self.budget.seconds * max(1, len(self.parts))

    # --- plain data ---------------------------------------------------------------------------------------------------

    @cached_property
    def config(self) -> dict[str, Any]:
        """Everything that determines what the cell measures, as plain data; tables and histories by their digests."""
        given = self.settings.plain
        return {
            **self.subject.plain,
            **{k: given[k] for k in ("target", "space", "model", "strategy")},
            **({"history": list(self.learnt)} if self.learnt else {}),
            **({"start": self.start} if self.start != "random" else {}),  # older ids know of no other start
            "budget": self._budget(given["budget"]),
            "measure": _measure(given["measure"]),
            "seed": self.seed,
        }

    def _budget(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The budget as plain data, with only what has a say.

        Networks alone have a scheduling policy and may share a model; thrift matters where something is built.
        """
        found = {**given, "scheduler": self.scheduler if self.parts else None}
        unused = {
            "scheduler": not self.parts,
            "share_model": not (self.parts and self.budget.share_model),
            "thrift": self.recorded or not self.budget.thrift,
        }
        return {k: v for k, v in found.items() if not unused.get(k, False)}

    @property
    def row(self) -> dict[str, Any]:
        """The cell as a row of the manifest, before its code versions are known."""
        row = {"id": self.id, "entry": self.entry, "task": self.task, "seed": self.seed, "factors": dict(self.factors)}
        row |= {"config": self.config} | ({"table": self.table} if self.table else {})
        return row | ({"tables": [p.table for p in self.parts]} if self.parts and self.recorded else {})

    @staticmethod
    def of(row: Mapping[str, Any], settings: SearchSettings | None = None) -> Cell:
        """The cell of a row; keys of later versions are ignored.  `settings` are its parsed settings, if known."""
        config = row["config"]
        return Cell(
            entry=row["entry"],
            factors=row["factors"],
            subject=_subject(row, config),
            settings=settings or SearchSettings.restored(config),
            seed=row["seed"],
            learnt=tuple(config.get("history", ())),
            id=row["id"],
            kept=row.get("kept", False),
            code=row.get("code", {}),
        )


def _measure(given: Mapping[str, Any]) -> dict[str, Any]:
    """How to measure as plain data; older ids know of no devices."""
    return {kind: {k: v for k, v in options.items() if (k, v) != ("devices", None)} for kind, options in given.items()}


def _subject(row: Mapping[str, Any], config: Mapping[str, Any]) -> SubjectSettings:
    """The subject of a row; paths of tables are outside the config, since they do not affect results."""
    given = config.get("parts") or ()
    tables = row.get("tables") or [None] * len(given)
    parts = tuple(
        NetworkPart(p["task"], p.get("workload"), table, p.get("digest", ""), weight=p["weight"])
        for p, table in zip(given, tables, strict=True)
    )
    named = config.get("workload"), row.get("table"), config.get("digest", "")
    return SubjectSettings(row["task"], *named, parts, config.get("family"))


@dataclass(frozen=True)
class Manifest:
    """The cells of a run; `code` has the latest known version of each of its components."""

    name: str
    started: str
    cells: tuple[Cell, ...]
    code: Code = field(default_factory=dict)

    @staticmethod
    def of(data: Mapping[str, Any]) -> Manifest:
        """The manifest that plain data describes."""
        settings: dict[str, SearchSettings] = {}  # the same for all tasks and seeds of an entry, so parsed once
        cells = []
        for row in data["cells"]:
            key = repr([row["config"].get(name) for name in _SETTINGS])
            if key not in settings:
                settings[key] = SearchSettings.restored(row["config"])
            cells.append(Cell.of(row, settings[key]))
        return Manifest(data["name"], data["started"], tuple(cells), data.get("code", {}))


def manifest_data(name: str, cells: Iterable[Cell]) -> dict[str, Any]:
    """The manifest of an experiment as plain data, before code versions and start time are known."""
    return {"format": FORMAT, "version": 1, "name": name, "cells": [cell.row for cell in cells]}


def shared(factors: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The factors that all combinations have in common, which their names omit."""
    every = list(factors)
    return {k: v for k, v in (every[0] if every else {}).items() if all(f.get(k) == v for f in every)}


# --- differences ------------------------------------------------------------------------------------------------------


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
    """The difference between two manifests: cells that are new, gone, or have the same name but another config."""
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
    """The name of a cell in messages."""
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
