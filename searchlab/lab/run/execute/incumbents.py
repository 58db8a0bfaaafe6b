"""The incumbent of a cell's search in the form that its result stores."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from searchlab.lab.results import PartWinner, Winner
from searchlab.lab.study import Finish, Search, Study

if TYPE_CHECKING:
    from searchlab.lab.manifest import Cell
    from searchlab.lab.study import JointStudy


def best_of(cell: Cell, search: Search, final: Finish | None) -> Winner:
    """The best of a search; `final` is the final race, if there was one."""
    if isinstance(search, Study):
        return _single(search, final)
    parts = tuple(_part(cell, search, n, final) for n in range(len(cell.parts)))
    return Winner(
        max(p.best.trial for p in parts),
        {p.task: p.best.knobs for p in parts},
        "; ".join(f"{p.task}: {p.best.point}" for p in parts),
        search.best_s if final is None else final.seconds,
        parts,
        table=None if final is None else final.table,
    )


def _single(study: Study, final: Finish | None) -> Winner:
    best, space = study.incumbent, study.space
    keys = space.key(study.trials.points)
    (trial, *_) = np.flatnonzero(keys == space.key(best.point)[0]).tolist()
    seconds = best.seconds if final is None else final.seconds
    fallback = None if final is None else final.fallback
    return Winner(trial, space.choice(best.point), space.text(best.point), seconds, fallback=fallback)


def _part(cell: Cell, search: JointStudy, n: int, final: Finish | None) -> PartWinner:
    part, last = cell.parts[n], None if final is None else final.parts[n]
    best = _single(search.studies[n], last)
    best = replace(best, trial=search.trial(n, best.trial))
    return PartWinner(part.label, part.weight, best, dict(last.baselines) if last else {})
