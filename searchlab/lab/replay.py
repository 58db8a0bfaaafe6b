"""Replaying a run: its cells are searched again with the recorded times, to check that they make the same proposals.

Nothing is measured.  A cell whose strategy and model are deterministic given their seeds proposes the same candidates
in the same order; otherwise the first trial that differs is reported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.errors import ExportError
from searchlab.lab.cells import cells
from searchlab.lab.code import as_it_was
from searchlab.lab.config import load_resolved
from searchlab.lab.export.finding import chosen
from searchlab.lab.folder.folder import Folder
from searchlab.lab.manifest import Cell
from searchlab.lab.records import Record
from searchlab.lab.results import CellResult
from searchlab.lab.run.execute.assembly import search_of, subject_of
from searchlab.lab.study import Candidate, Search, Study, search_loop
from searchlab.measure import Measurer, Outcome


@dataclass(frozen=True)
class ReplayedCell:
    """The replay of a cell: the number of recorded trials, how many were reproduced, and where it diverges."""

    cell: Cell
    trials: int
    same: int
    departure: str = ""

    @property
    def ok(self) -> bool:
        """Whether the replay reproduced the run."""
        return not self.departure


def replay(folder: str | os.PathLike[str], task: str | None = None, entry: str | None = None) -> Iterator[ReplayedCell]:
    """Replays the cells of a run that have begun, one after another."""
    place = Folder(Path(folder))
    ran = {cell.id: cell.code for cell in place.manifest().cells}  # refuses a folder that is not a run
    found = chosen(cells(load_resolved(place.experiment)), task, entry)
    begun = [c for c in found if place.records_path(c.id).exists()]
    if not begun:
        raise ExportError(f"{place.path}: none of its {len(found)} cells has measurements yet; see `searchlab run`")
    for cell in begun:
        yield replay_cell(replace(cell, code=ran.get(cell.id, {})), place)


def replay_cell(cell: Cell, folder: Folder) -> ReplayedCell:
    """Replays one cell with its recorded times."""
    records = list(folder.records(cell.id).records())
    result = folder.result(cell)
    then, nothing = _as_it_was(cell), _Nothing()
    subject = subject_of(cell.subject, then.settings, cell.seed)
    search = search_of(then, subject, lambda _: nothing, folder.records(cell.id), result)
    way = _Way(search, records)

    def left() -> int:
        if way.done >= len(records):
            return 0
        # Whole batches, as in the run: a strategy may propose other points if it is asked for fewer.
        return search.batch if cell.trials is None else cell.trials - way.done

    departure = ""
    try:
        if not search_loop(search, left, way.measure):
            departure = way.cut_short()
    except _Departed as e:
        departure = str(e)
    except _NotKept:  # the run was stopped within this batch, or within a re-measurement after it
        pass
    return ReplayedCell(cell, len(records), way.same, departure or _other_times(search, result))


def _as_it_was(cell: Cell) -> Cell:
    """The cell with its space and its model as they were in the version that it ran."""
    now = cell.settings
    space = None if now.space is None else as_it_was("space", now.space, cell.code)
    return replace(cell, settings=replace(now, space=space, model=as_it_was("model", now.model, cell.code)))


class _Way:
    """Compares a replay with the run; `same` counts the trials that agree."""

    def __init__(self, search: Search, records: Sequence[Record]) -> None:
        self.same = 0
        self._search, self._rounds = search, _rounds(records)

    @property
    def done(self) -> int:
        """The number of trials of the replay."""
        return sum(len(r.seconds) for r in self._search.rounds)

    def measure(self, candidates: Sequence[Candidate]) -> Sequence[Outcome]:
        """The recorded times of a batch, if the run has the same batch."""
        study = self._search.studies[candidates[0].part]
        there = self._there(study)
        if departure := _departure(study, candidates, there, self.done):
            raise _Departed(departure)
        if any(c.job.id not in there for c in candidates):
            self.same += len(there)
            raise _NotKept("the run was stopped within this batch")
        self.same += len(candidates)
        return self._search.measure(candidates)

    def cut_short(self) -> str:
        """How a replay that ended early diverges from the run."""
        found = (_departure(study, (), self._there(study), self.done) for study in self._search.studies)
        return next(filter(None, found), "")

    def _there(self, study: Study) -> Mapping[str, Record]:
        """The records of a study's current batch."""
        return self._rounds.get((study.subject.name, len(study.rounds)), {})


class _Departed(Exception):
    """A replay proposes different candidates than the run."""


class _Nothing(Measurer[Any]):
    """A measurer that measures nothing: the study finds all times in its store."""

    def measure(self, jobs: Sequence[Any]) -> Iterator[Outcome]:
        raise _NotKept(f"a replay does not measure, but {len(jobs)} candidates have no record")


class _NotKept(ExportError):
    """A measurement that the replay needs is not in the run's records."""


def _rounds(records: Sequence[Record]) -> dict[tuple[str, int], dict[str, Record]]:
    """The records of each batch by job; a batch is identified by its task and number."""
    found: dict[tuple[str, int], dict[str, Record]] = {}
    for r in records:
        found.setdefault((r.task, r.place.round), {})[r.job] = r
    return found


def _departure(study: Study, candidates: Sequence[Candidate], there: Mapping[str, Record], done: int) -> str:
    """How a batch differs from the run's; if the run did not finish the batch, further candidates are accepted."""
    proposed = {c.job.id for c in candidates}
    lost = [r for job, r in there.items() if job not in proposed]
    if not lost:
        return ""
    first = next((n for n, c in enumerate(candidates) if c.job.id not in there), len(candidates))
    place = f"round {len(study.rounds)}, trial {done + first}"
    new = study.space.text(candidates[first].point) if first < len(candidates) else "nothing"
    return f"{place}: proposes {new}, where the run measured {_text(study, lost[0])}"


def _text(study: Study, record: Record) -> str:
    return study.space.text(study.space.chosen(record.knobs))


def _other_times(search: Search, result: CellResult | None) -> str:
    """Where the order of trials differs from the run."""
    if result is None:
        return ""
    seconds = np.concatenate([np.empty(0), *(r.seconds for r in search.rounds)])
    count = min(len(seconds), len(result.seconds))
    differ = np.flatnonzero(seconds[:count] != result.seconds[:count])
    if not len(differ):
        return ""
    n = int(differ[0])
    return f"trial {n}: took {seconds[n]:.4g} s, in the run it was {result.seconds[n]:.4g} s"
