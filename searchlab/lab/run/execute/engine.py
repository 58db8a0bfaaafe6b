"""Runs the unfinished cells of an experiment in worker processes, then the run-offs."""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from searchlab.errors import RecordError
from searchlab.lab.cells import cells as cells_of
from searchlab.lab.folder.folder import LOG_FORMAT, Folder
from searchlab.lab.folder.folder_lock import FolderLock
from searchlab.lab.manifest import Cell
from searchlab.lab.run import cores
from searchlab.lab.run.execute.crew import Crew, Here
from searchlab.lab.run.execute.events import CellEnded, Event, Noted
from searchlab.lab.run.execute.interrupt import Interrupt
from searchlab.lab.run.execute.observer import Observer
from searchlab.lab.run.execute.policy import CONTINUE, OnError
from searchlab.lab.run.execute.prepare import prepare, renew
from searchlab.lab.run.execute.run_state import RunState
from searchlab.lab.run.runoff.holding import hold_apart
from searchlab.lab.run.runoff.runoff import pending

if TYPE_CHECKING:
    from searchlab.lab.config import Experiment

_log = logging.getLogger(__name__)
_WAIT_S = 0.2


@dataclass(frozen=True)
class RunSummary:
    """The summary of a run: cells that were done before, are done now, failed (with their errors), or are left.

    It counts as `interrupted` only if cells or run-offs were left to do.
    """

    folder: Path
    before: int
    done: int
    failed: tuple[CellEnded, ...] = ()
    left: int = 0
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 0 if nothing failed, 1 if a cell did, 130 if the run was interrupted."""
        return 130 if self.interrupted else 1 if self.failed else 0


def run(
    experiment: Experiment,
    folder: str | os.PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    on_error: OnError = CONTINUE,
    fresh: bool = False,
    allow_drift: bool = False,
    source: str = "",
    command: str = "",
    observer: Observer | None = None,
) -> RunSummary:
    """Runs the unfinished cells of an experiment.

    `folder` defaults to runs/<name>.  `jobs` is the number of concurrent cells.  None: one per idle core for recorded
    tables, and one at a time where candidates are timed; 0 runs them in this process, for debuggers.
    """
    place = Folder(Path(folder if folder is not None else Path("runs") / experiment.name))
    cells = cells_of(experiment)
    cores.check(cells, jobs)
    renewed = ""
    if fresh and place.exists:
        with FolderLock(place.lock):
            renewed = renew(place, experiment, cells, allow_drift)
    with FolderLock(place.lock) as lock, _logging(place):
        manifest = prepare(place, experiment, cells, source, command, allow_drift)
        _log.info("%s", command or f"run {experiment.name}")
        board = RunState([c for c in manifest.cells if not c.kept], list(place.results()))
        todo = [cell for cell in cells if board.rows[cell.id].state != "done"]
        for cell in todo:
            if not cell.recorded:
                place.records(cell.id).index  # noqa: B018  (warns here of records that cells will skip)
        watcher = observer or Observer()
        watcher.began(board)
        if renewed:
            _log.info("%s", renewed)
            watcher.noted(renewed)
        try:
            return _Engine(place, board, on_error, watcher, lock.fd).run(todo, jobs)
        finally:
            watcher.ended()


class _Engine:
    def __init__(self, folder: Folder, board: RunState, on_error: OnError, observer: Observer, lock: int) -> None:
        self._folder, self._board, self._on_error, self._observer = folder, board, on_error, observer
        self._lock = lock
        self._before = board.count("done")
        self._failed: dict[str, CellEnded] = {}
        self._tries: Counter[str] = Counter()

    def run(self, cells: Sequence[Cell], jobs: int | None) -> RunSummary:
        """Runs recorded cells first, concurrently; then timed ones, undisturbed; then the run-offs."""
        recorded = [c for c in cells if c.recorded]
        timed = [c for c in cells if not c.recorded]
        with Interrupt(self._observer.stopping) as interrupt:
            for group, single in ((recorded, True), (timed, False)):
                if group and not interrupt.stop.is_set() and not self._over:
                    self._group(group, single, jobs, interrupt)
            if not interrupt.stop.is_set() and not self._over:
                self._run_offs(jobs, interrupt)
            interrupted = interrupt.stop.is_set()
        return self._summary(interrupted)

    def _group(self, cells: Sequence[Cell], single: bool, jobs: int | None, interrupt: Interrupt) -> None:
        size = cores.side_by_side(cells, jobs)
        if jobs == 0:
            with Here(self._folder, interrupt.stop) as here:
                self._work(cells, here, interrupt)
            return
        local = not single and cells[0].measure.kind == "local"
        shares = cores.shares(size, apart=local)
        with Crew(self._folder, shares, self._lock, single) as crew, cores.aside() if local else nullcontext():
            self._work(cells, crew, interrupt)

    def _run_offs(self, jobs: int | None, interrupt: Interrupt) -> None:
        """Runs the run-offs; those that fail are left to the next run."""
        if not pending(self._folder):
            return
        if jobs == 0:
            from searchlab.lab.run.runoff.holder import hold

            hold(self._folder, self._note, interrupt.stop)
        else:
            hold_apart(self._folder, self._lock, interrupt.stop, self._note, lambda: self._observer.idle(self._board))

    def _note(self, text: str) -> None:
        _log.info("%s", text)
        self._observer.noted(text)

    def _work(self, cells: Sequence[Cell], crew: Crew | Here, interrupt: Interrupt) -> None:
        todo, told = deque(cells), False
        while todo or crew.busy:
            if interrupt.stop.is_set() or self._over:
                todo.clear()
                if not told:
                    crew.stop()
                    told = True
            while todo and crew.busy < crew.size:
                crew.start(todo.popleft())
            for event in crew.events(_WAIT_S):
                if (again := self._take(event, cells)) is not None and not told:
                    todo.appendleft(again)
            self._observer.idle(self._board)

    def _take(self, event: Event, cells: Sequence[Cell]) -> Cell | None:
        """Processes an event; returns the cell to be retried, if any."""
        row = self._board.update(event)
        if isinstance(event, Noted):
            _log.info("cell %s: %s", event.cell, event.text)
        if not isinstance(event, CellEnded):
            self._observer.changed(row, event, self._board)
            return None
        if event.fatal:
            raise RecordError(f"cell {event.cell}: {event.error}")
        _log.info(
            "cell %s (%s, %s, seed %d): %s", event.cell, row.cell.entry, row.cell.task, row.cell.seed, event.state
        )
        if event.state == "failed":
            self._tries[event.cell] += 1
            if self._tries[event.cell] <= self._on_error.retries:
                self._observer.retried(row, self._tries[event.cell], self._board)
                return next(c for c in cells if c.id == event.cell)
            self._failed[event.cell] = event
        self._observer.changed(row, event, self._board)
        return None

    @property
    def _over(self) -> bool:
        return self._on_error.stop and bool(self._failed)

    def _summary(self, interrupted: bool) -> RunSummary:
        done, failed = self._board.count("done"), tuple(self._failed.values())
        left = len(self._board.rows) - done - len(failed)
        interrupted = interrupted and (left > 0 or bool(pending(self._folder)))
        return RunSummary(self._folder.path, self._before, done - self._before, failed, left, interrupted)


@contextmanager
def _logging(folder: Folder) -> Iterator[None]:
    """Redirects all logging of searchlab to the run's log."""
    handler = logging.FileHandler(folder.log, encoding="utf-8")
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logger = logging.getLogger("searchlab")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
        handler.close()
