"""Holds run-offs; `python -m searchlab.lab.run.runoff.holder FOLDER` is a process for it, which ends with the run."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from searchlab.errors import SearchLabError
from searchlab.lab.folder.folder import LOG_FORMAT, Folder
from searchlab.lab.folder.found import Found
from searchlab.lab.run.runoff.runoff import RunOff, RunoffGroup, pending, write

if TYPE_CHECKING:
    from searchlab.bench.contests import ContestRow, Maker
    from searchlab.ir.program import Program

_EACH_S, _MOST_S, _ROUNDS = 0.15, 1.0, 8  # for every program
_FEW = 8  # programs; a race of fewer takes as long as one of this many, since its noise does not depend on their number
_STEADY = 0.01  # noise above which the race continues
_COPIES = 2  # each program is loaded twice, so that its placement in memory does not decide
_KEEP = "so that its results keep each cell's own times"

_log = logging.getLogger(__name__)

Say = Callable[[str], None]


def hold(folder: Folder, say: Say, stop: threading.Event) -> None:
    """Holds all pending run-offs until `stop` is set; a failed one does not prevent the others."""
    for group in pending(folder):
        if stop.is_set():
            return
        say(f"run-off on {group.task}: the best programs of {len(group.found)} cells, interleaved")
        try:
            found = race(folder, group, say)
            write(folder, group, found)
        except Exception as e:  # user programs and components may raise anything, and other groups can still race
            _log.exception("run-off on %s", group.task)
            say(f"no run-off on {group.task}, {_KEEP}: {type(e).__name__}: {e}")
        else:
            if found.wrong:
                say(f"no run-off on {group.task}, {_KEEP}: {next(iter(found.wrong.values()))}")


def race(folder: Folder, group: RunoffGroup, say: Say = lambda text: None) -> RunOff:
    """Times the programs that the cells of a group found, each once, with the default schedule and the libraries."""
    from searchlab.bench import noise

    claims = [f for r in group.found if (f := Found.best(r, folder)) is not None]
    programs, wrong = _programs(claims)
    if wrong:  # no times would count
        return RunOff(group.task, {}, group.points, wrong=wrong)
    default = claims[0].default_program
    row = _row({digest: found[0] for digest, found in programs.items()}, default, say)
    by_cell = {f.cell.id: digest for digest, found in programs.items() for f in found}
    return RunOff(
        group.task,
        {cell: row.times[digest].min for cell, digest in by_cell.items() if digest in row.times},
        group.points,
        {name: t.min for name, t in row.times.items() if name not in programs},
        noise([t.spread for name, t in row.times.items() if name in programs]),
        row.other_load,
        {cell: row.wrong[digest] for cell, digest in by_cell.items() if digest in row.wrong},
        default.hash,
    )


def _row(programs: Mapping[str, Found], default: Program, say: Say) -> ContestRow:
    """The result of a race of named programs against the default schedule and the libraries, with all cores locked."""
    from searchlab.bench import DEFAULT, Steady, contest
    from searchlab.measure import CoreLock

    first = next(iter(programs.values()))
    workload, target = first.workload, first.target
    makers: dict[str, Maker] = {name: _maker(found.program, found) for name, found in programs.items()}
    makers[DEFAULT] = _maker(default, first)
    with CoreLock.all(say):
        size = max(_FEW, len(makers))
        steady = Steady(_STEADY, _MOST_S * size)
        return contest(workload, target, makers, None, _EACH_S * size, _ROUNDS, steady, _COPIES)


def _programs(claims: Sequence[Found]) -> tuple[dict[str, list[Found]], dict[str, str]]:
    """The cells that found each program, and the errors of cells without one."""
    programs: dict[str, list[Found]] = {}
    wrong: dict[str, str] = {}
    for f in claims:
        try:
            programs.setdefault(f.program.hash, []).append(f)
        except SearchLabError as e:
            wrong[f.cell.id] = str(e)
    return programs, wrong


def _maker(program: Program, found: Found) -> Maker:
    from searchlab.backend import build
    from searchlab.bench import prepare_program

    built = cache(lambda: build(program, found.target))
    return lambda inputs, out: prepare_program(built(), found.workload, inputs, found.target, out=out)


# --- the process ------------------------------------------------------------------------------------------------------


def _leave_with_parent() -> None:
    os.read(0, 1)  # nothing is ever written: this returns when the run is gone
    os._exit(1)


def main() -> None:
    """Holds the run-offs of a folder and reports in lines of JSON; ends when its standard input closes."""
    logging.basicConfig(format=LOG_FORMAT, level=logging.INFO)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # output of libraries goes to the log
        hold(Folder(Path(sys.argv[1])), lambda text: print(json.dumps(text), file=out, flush=True), threading.Event())


if __name__ == "__main__":
    main()
