"""The best programs of a run folder, task by task."""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from searchlab.errors import ExportError
from searchlab.lab.folder.folder import Folder
from searchlab.lab.folder.found import Found, record_task
from searchlab.lab.results import CellResult, to_take
from searchlab.lab.run.runoff.runoff import results
from searchlab.registry import nearest

C = TypeVar("C")  # a cell, or a result of one


def best_programs(
    folder: str | os.PathLike[str],
    task: str | None = None,
    entry: str | None = None,
    top: int = 1,
    sizes: bool = True,
) -> dict[str, list[Found]]:
    """The best programs of each task, the recommended one first.

    That is the fastest of those that won their search, or the default schedule if it beat them all; up to `top` - 1
    others follow, fastest first.  Without `sizes`, the searches of single sizes of families are left out, and there may
    be nothing else.
    """
    place = Folder(Path(folder))
    known = [r for r in results(place).values() if sizes or r.cell.family is None]
    if not known and not sizes:
        return {}
    wanted = chosen([one for result in known for one in result.searches], task, entry)
    tasks = dict.fromkeys(r.task for r in wanted)
    found = {t: _of_task([r for r in wanted if r.task == t], place, top) for t in tasks}
    if not any(found.values()):
        raise ExportError(f"{place.path}: no search has found a working program yet; see `searchlab status`")
    return {t: programs for t, programs in found.items() if programs}


def best_program(folder: str | os.PathLike[str], task: str | None = None) -> Found:
    """The best program of a run's only task, or of the named task."""
    found = best_programs(folder, task)
    if len(found) > 1:
        raise ExportError(f"{folder} has several tasks: name one of {', '.join(found)}")
    ((first, *_),) = found.values()
    return first


def chosen(cells: Iterable[C], task: str | None, entry: str | None) -> list[C]:
    """The cells of a task and an entry, each named in full or by a part of the name."""
    found = list(cells)
    for kind, wanted in (("task", task), ("entry", entry)):
        if wanted is not None:
            names = list(dict.fromkeys(str(getattr(cell, kind)) for cell in found))
            meant = {wanted} if wanted in names else {n for n in names if wanted in n}
            if not meant:
                raise ExportError(f"no {kind} '{wanted}'{nearest(wanted, names)}")
            found = [cell for cell in found if getattr(cell, kind) in meant]
    return found


def _of_task(results: list[CellResult], place: Folder, top: int) -> list[Found]:
    winners = [f for r in results if (f := Found.best(r, place)) is not None]
    if not winners:
        return []
    # A cell that did not finish has one search time and no final race: selection bias would put it first.
    winners.sort(key=lambda f: (not f.confirmed, f.seconds))
    first, *rest = [*_kept(results, place), *winners]
    if top > 1:
        for result in results:
            rest += heapq.nsmallest(top, _measured(result, place), key=lambda f: f.seconds)
    return _different([first, *sorted(rest, key=lambda f: (f.seconds, not f.confirmed))])[:top]


def _kept(results: list[CellResult], place: Folder) -> list[Found]:
    """The default schedule, if every search that ended lost against it: the best of these is what it beat."""
    taken = to_take(results)
    found = None if taken is None else Found.taken(taken, place)
    return [found] if found is not None and found.origin == "default" else []


def _measured(result: CellResult, place: Folder) -> Iterator[Found]:
    """Every measurement of a cell that worked, with the figure that its search minimised."""
    cell = result.cell
    for r in place.records(cell.id).records(record_task(cell), "ok"):
        seconds = r.seconds if cell.recorded else r.outcome().fastest
        yield Found(cell, place, seconds, r.knobs, False, result.baselines, r)


def _different(programs: list[Found]) -> list[Found]:
    """Each program once, in its confirmed version if there is one."""
    kept: dict[str, Found] = {}
    for f in programs:
        key = json.dumps([f.origin, f.cell.space, f.cell.target, f.choice], sort_keys=True)
        if key not in kept or (f.confirmed and not kept[key].confirmed):
            kept[key] = f
    first, *rest = kept.values()
    return [first, *sorted(rest, key=lambda f: f.seconds)]
