"""Caveats of a comparison: few seeds, missing and failed cells, a single task, ties."""

from __future__ import annotations

import math
from collections.abc import Sequence

from searchlab.lab.results import CellResult, Run
from searchlab.lab.statistics.scores import ComparedBy, Score, counted, scores

ENOUGH_SEEDS = 10
TIE_BAND = 0.02


def tie_band(runs: Sequence[Run]) -> float:
    """The tie band: the largest noise measured in a run, but at least 2 %."""
    return max([TIE_BAND, *(r.noise for r in runs if r.noise is not None)])


def notes(cells: Sequence[CellResult], view: ComparedBy | None = None) -> tuple[str, ...]:
    """The caveats of a comparison of these cells, as sentences; empty if there are none."""
    view = view or ComparedBy()
    rows = scores(cells, view)
    return tuple(
        note
        for note in (
            modelled_note(cells),
            _absent(cells),
            *_sizes(rows),
            _missing(rows),
            _failed(rows),
            _ties(rows),
            *version_notes(cells),
        )
        if note
    )


def modelled_note(cells: Sequence[CellResult]) -> str:
    """The note on results that no clock has taken."""
    count = sum(c.cell.modelled for c in cells)
    whose = "all" if count == len(cells) else f"those of {_count(count, 'cell')}"
    return f"costs are modelled cycles, not times: {whose} were emulated without a device" if count else ""


def _absent(cells: Sequence[CellResult]) -> str:
    """The note on unfinished cells."""
    open_ = len(cells) - len(counted(cells))
    return f"{open_} of {len(cells)} cells are not finished and do not count" if open_ else ""


def _sizes(rows: Sequence[Score]) -> list[str]:
    entries, tasks = {r.entry for r in rows}, {r.task for r in rows}
    if not rows:
        return ["no cell is finished: there is nothing to compare"]
    found = []
    if len(entries) == 1:
        found.append(f"'{rows[0].entry}' is the only entry: there is nothing to compare it with")
    if len(tasks) == 1:
        found.append(f"only one task ({rows[0].task}): the results say nothing about others")
    fewest = min(_seeds(rows).values())
    if fewest < ENOUGH_SEEDS:
        found.append(f"{_count(fewest, 'seed')} per task and entry: fewer than {ENOUGH_SEEDS} give a hint, not a claim")
    return found


def _missing(rows: Sequence[Score]) -> str:
    """The note on blocks that some entry lacks, which comparisons leave out."""
    entries = {r.entry for r in rows}
    have: dict[tuple[object, ...], set[str]] = {}
    for r in rows:
        have.setdefault((r.stratum, r.seed), set()).add(r.entry)
    lacking = sum(len(entries) - len(found) for found in have.values())
    full = sum(len(found) == len(entries) for found in have.values())
    if not lacking:
        return ""
    return f"{_count(lacking, 'cell')} missing: {full} of {len(have)} pairs of task and seed exist for all entries"


def _failed(rows: Sequence[Score]) -> str:
    failed = [r for r in rows if not math.isfinite(r.seconds)]
    if not failed:
        return ""
    by_entry = {e: sum(r.entry == e for r in failed) for e in dict.fromkeys(r.entry for r in failed)}
    named = ", ".join(f"{e} {n}" for e, n in by_entry.items())
    return f"{_count(len(failed), 'cell')} found no working program and score 0 ({named})"


def _ties(rows: Sequence[Score]) -> str:
    """The note on entries that all found the same time on each task."""
    times: dict[object, set[float]] = {}
    for r in rows:
        times.setdefault(r.stratum, set()).add(r.seconds)
    several = len({r.entry for r in rows}) > 1
    return (
        "all entries found the same time on each task" if several and all(len(t) == 1 for t in times.values()) else ""
    )


def version_notes(cells: Sequence[CellResult]) -> list[str]:
    """Components that have changed since cells ran, or that compared cells ran in several versions."""
    found: list[str] = []
    for name in dict.fromkeys(name for c in cells for name in c.code):
        earlier = sum(name in c.earlier for c in cells)
        several = len({c.code[name] for c in cells if name in c.code})
        if earlier:
            found.append(f"results of {_count(earlier, 'cell')} come from an earlier version of {name}")
        elif several > 1:
            found.append(f"results come from {several} versions of {name}")
    return found


def _seeds(rows: Sequence[Score]) -> dict[tuple[object, ...], int]:
    found: dict[tuple[object, ...], int] = {}
    for r in rows:
        found[r.entry, r.stratum] = found.get((r.entry, r.stratum), 0) + 1
    return found


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
