"""Holds run-offs, in a process of its own: `python -m searchlab.lab.run.racing FOLDER` says what it does, and ends with the run."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from searchlab.errors import SearchLabError
from searchlab.lab.run.folder import Folder
from searchlab.lab.run.runoff import Group, RunOff, pending, write

if TYPE_CHECKING:
    from searchlab.bench.rows import Maker, Row
    from searchlab.lab.export.finding import Found

_EACH_S, _ROUNDS = 0.15, 8  # for every program
_NOISE = 0.9  # the share of programs whose two halves differ less than what is called the noise

Say = Callable[[str], object]


def hold(folder: Folder, say: Say) -> None:
    """Holds all run-offs that are pending."""
    for group in pending(folder):
        say(f"run-off on {group.task}: the bests of {len(group.found)} cells, side by side")
        write(folder, group, race(folder, group, say))


def race(folder: Folder, group: Group, say: Say = lambda text: None) -> RunOff:
    """Times what the cells of a group found, each program once, with the default schedule and the libraries."""
    from searchlab.bench import contest, prepare
    from searchlab.lab.export.finding import Found
    from searchlab.lab.study.finish import DEFAULT, LIBRARIES
    from searchlab.measure import CoreLock

    claims = [Found(cell, folder, r.final_s, r.best["knobs"], True) for cell, r in group.found if r.best is not None]
    programs, wrong = _programs(claims)
    workload, target = claims[0].workload, claims[0].target
    makers: dict[str, Maker] = {digest: _maker(found[0]) for digest, found in programs.items()}
    makers[DEFAULT] = lambda inputs: prepare(workload, inputs, target)
    with CoreLock(sorted(os.sched_getaffinity(0)), on_wait=say):
        row = contest(workload, target, makers, None, _EACH_S * len(makers), _ROUNDS)
    by_cell = {f.cell.id: digest for digest, found in programs.items() for f in found}
    wrong |= {cell: row.wrong[digest] for cell, digest in by_cell.items() if digest in row.wrong}
    return RunOff(
        group.task,
        {cell: row.times[digest].min for cell, digest in by_cell.items() if digest in row.times},
        group.points,
        {name: row.times[name].min for name in (DEFAULT, *LIBRARIES) if name in row.times},
        _noise(row, programs),
        row.other_load,
        wrong,
    )


def _programs(claims: Sequence[Found]) -> tuple[dict[str, list[Found]], dict[str, str]]:
    """Who found each program, and why some cells have none."""
    programs: dict[str, list[Found]] = {}
    wrong: dict[str, str] = {}
    for f in claims:
        try:
            programs.setdefault(f.program.hash, []).append(f)
        except SearchLabError as e:
            wrong[f.cell.id] = str(e)
    return programs, wrong


def _maker(found: Found) -> Maker:
    from searchlab.bench import prepare_program

    return lambda inputs: prepare_program(found.program, found.workload, inputs, found.target)


def _noise(row: Row, names: Iterable[str]) -> float:
    spreads = [row.times[n].spread for n in names if n in row.times]
    return float(np.quantile(spreads, _NOISE)) if spreads else 0.0


# --- the process ------------------------------------------------------------------------------------------------------


def _leave_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def _print(text: str) -> None:
    print(json.dumps(text), flush=True)


def main() -> None:
    """Holds the run-offs of a folder; ends when its standard input closes."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    hold(Folder(Path(sys.argv[1])), _print)


if __name__ == "__main__":
    main()
