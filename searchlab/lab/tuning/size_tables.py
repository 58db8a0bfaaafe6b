"""Tables of programs for open sizes, made of what the searches of single sizes found.

The best programs of each size are applied to the program with the open size and compared at all sizes, as those of a
family are.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from searchlab import targets
from searchlab.defaults import default_schedule
from searchlab.errors import SpaceError
from searchlab.graph.tasks import TaskFamily, plain_sizes, program_key, with_plain_sizes
from searchlab.ir.jsonform import to_json
from searchlab.ir.program import Program
from searchlab.lab.config.measuring import Timing
from searchlab.lab.export.finding import best_programs
from searchlab.lab.folder.found import Found
from searchlab.lab.manifest import Cell
from searchlab.lab.run.execute.measurers import Measurers
from searchlab.lab.study.size_dispatch import AnySizeProgram
from searchlab.lab.study.table_choice import AnySizeRival, Outcomes, TableChoice, choose_table
from searchlab.lab.tuning.kept_tables import KeptTable, keep_tables, kept_tables
from searchlab.lab.tuning.whole_model import Note, silent
from searchlab.measure import Job, Measurer

_TOP = 3  # programs of each size that are compared


def make_tables(
    families: Iterable[TaskFamily], folder: str | os.PathLike[str], target: targets.Target, note: Note = silent
) -> tuple[KeptTable, ...]:
    """Makes the tables of families whose sizes a run has searched, and keeps them in its folder.

    A table is not measured again unless there are other programs to compare.  Where no program runs for every size,
    there is none.
    """
    place, found = Path(folder), _found(Path(folder), target)
    known = {table.key: table for table in kept_tables(place) if table.target == target.fingerprint()}
    measurers = Measurers()
    try:
        for family in families:
            rivals, refused = _rivals(family, found, target)
            digest = hashlib.sha256(" ".join(r.program.hash for r in rivals).encode()).hexdigest()[:12]
            if len(rivals) < 2 or (family.key in known and known[family.key].rivals == digest):
                continue
            note(f"comparing programs for {family.label}")
            like = next(iter(found.values()))[0].cell
            outcomes = _outcomes(family, target, like, measurers.of(like, note))
            try:
                chosen = choose_table(family, rivals, refused, outcomes)
            except SpaceError as e:
                note(f"{e}; the default schedule is used")
                continue
            known[family.key] = _kept(family, chosen, target, digest)
    finally:
        measurers.close()
    if known:
        keep_tables(place, known.values())
    return tuple(known.values())


def _found(folder: Path, target: targets.Target) -> dict[str, list[Found]]:
    """The best programs of every task that a run has searched for a target, by the key of the task."""
    found: dict[str, list[Found]] = {}
    for programs in best_programs(folder, top=_TOP).values():
        for one in programs:
            if not one.cell.recorded and one.target.fingerprint() == target.fingerprint():
                found.setdefault(program_key(one.workload.program, one.workload.weights), []).append(one)
    return found


def _rivals(
    family: TaskFamily, found: Mapping[str, Sequence[Found]], target: targets.Target
) -> tuple[list[AnySizeRival], list[str]]:
    """The default schedule and the best programs of each size, as programs for any size, each once."""
    default = default_schedule(family.program, target, sorted(family.weights))
    made = {default.hash: AnySizeRival(AnySizeProgram(0, "default schedule", hash=default.hash), default)}
    refused: list[str] = []
    for size, _ in family.representatives:
        workload = family.at(size)
        for one in found.get(program_key(workload.program, workload.weights), ()):
            if one.origin == "default":
                continue
            try:
                program = one.for_any_size(family.program)
            except SpaceError as e:
                refused.append(f"{family.size}={size}: {e}")
                continue
            origin = AnySizeProgram(size, one.point, one.choice, program.hash)
            made.setdefault(program.hash, AnySizeRival(origin, program))
    return list(made.values()), refused


def _outcomes(family: TaskFamily, target: targets.Target, like: Cell, measurer: Measurer[Any]) -> Outcomes:
    """Measurements of programs for any size, as the candidates of a cell are measured."""
    measuring = like.measure.settings
    assert isinstance(measuring, Timing)

    def measured(programs: Sequence[Program], size: int) -> list[tuple[float, str]]:
        workload = family.at(size)
        jobs = [
            Job(f"{p.hash}:{size}", workload, target, p, limits=measuring.limits, protocol=measuring.protocol)
            for p in programs
        ]
        done = {outcome.id: outcome for outcome in measurer.measure(jobs)}
        return [(done[job.id].fastest, done[job.id].error) for job in jobs]

    return measured


def _kept(family: TaskFamily, choice: TableChoice, target: targets.Target, digest: str) -> KeptTable:
    names = plain_sizes(family.program)
    texts = [to_json(with_plain_sizes(program, names)) for program in choice.programs]
    weights = np.array([weight for _, weight in family.representatives])
    default = float(choice.times[0] @ weights / weights.sum())
    return KeptTable(
        family.key,
        target.fingerprint(),
        family.label,
        names[family.size],
        tuple(i.high for i in choice.ranges[:-1]),
        tuple(texts[i.program] for i in choice.ranges),
        tuple(choice.origins[i.program].point for i in choice.ranges),
        float(choice.times[list(choice.per_size), range(len(weights))] @ weights / weights.sum()),
        default if math.isfinite(default) else None,
        digest,
        choice.refused,
    )
