"""Runs one cell: a study until its budget is used, then the final race; its state is saved throughout."""

from __future__ import annotations

import errno
import logging
import math
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from searchlab.errors import RecordError
from searchlab.lab.folder.folder import Folder
from searchlab.lab.results import CellResult, RoundSummary
from searchlab.lab.run.execute.assembly import search_of, subject_of
from searchlab.lab.run.execute.elapsed import Elapsed
from searchlab.lab.run.execute.events import CellEnded, CellProgress, Doing, Event, Noted, Started
from searchlab.lab.run.execute.incumbents import best_of
from searchlab.lab.run.execute.measurers import Measurers
from searchlab.lab.run.execute.stopping import Stopped, Watch
from searchlab.lab.study import Candidate, FamilyStudy, Finish, Round, SpaceSubject, search_loop
from searchlab.measure import CoreLock, Measurer, Outcome
from searchlab.search.progress import listening

if TYPE_CHECKING:
    from searchlab.lab.manifest import Cell

_log = logging.getLogger(__name__)
_TELL_S = 0.1  # between two reports
_SAVE_S = 2.0  # between two saved states; measurements are stored at once, in the records
_FINAL_S = 0.5  # of the final race of a cell, which chooses among its finalists; the run-off takes longer
# Errors that would affect every other cell as well.
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})

Tell = Callable[[Event], object]


def run_cell(cell: Cell, folder: Folder, stop: threading.Event, tell: Tell, measurers: Measurers) -> CellResult:
    """Runs a cell to its end, or until `stop` is set, and returns its result, which has been saved by then.

    An exception marks the cell as failed.  Only the error of a full disk, which would affect every other cell too, is
    raised.
    """
    tell(Started(cell.id))
    nothing = CellResult.waiting(cell)
    search: _CellSearch | None = None
    trace = ""

    try:
        with ExitStack() as open_:
            open_.enter_context(listening(_Slowly(lambda text: tell(Doing(cell.id, text)))))
            open_.enter_context(measurers.closed_on_error())
            search = _CellSearch(cell, folder, measurers, stop, tell, open_)
            found = search.run()
    except Exception as e:  # components may raise anything, and a failing cell must not end the run
        if (full := _no_disk(e)) is not None:
            raise full from e
        trace = traceback.format_exc()
        _log.error("cell %s failed\n%s", cell.id, trace)
        so_far = nothing if search is None else search.result("failed")
        found = replace(so_far, state="failed", error=f"{type(e).__name__}: {e}")
    try:
        folder.write_result(found)
    except OSError as e:
        if (full := _no_disk(e)) is not None:
            raise full from e
        raise
    tell(_ended(found, 0 if search is None else search.measured, trace))
    return found


class _Slowly:
    """Passes messages on, rate-limited to what a reader can follow."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell, self._last = tell, -math.inf

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if now - self._last >= _TELL_S:
            self._last = now
            self._tell(text)


def _no_disk(error: BaseException) -> RecordError | None:
    """The error of a full disk, if that is the cause of another error."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError) or cause.errno not in _DISK:
        return None
    if isinstance(error, RecordError):
        return error
    return RecordError(f"cannot write: {cause.strerror}; files written so far are kept")


def _ended(found: CellResult, measured: int, trace: str) -> CellEnded:
    return CellEnded(
        found.id,
        found.state,
        len(found.seconds),
        measured,
        found.final_s,
        found.failures,
        found.baselines,
        found.optimum_s,
        found.taken_s,
        found.error,
        trace,
    )


class _CellSearch:
    """The running search of a cell, and its result so far."""

    def __init__(
        self, cell: Cell, folder: Folder, measurers: Measurers, stop: threading.Event, tell: Tell, open_: ExitStack
    ) -> None:
        self.cell, self.folder = cell, folder
        self.measured = 0
        self._measurers, self._stop, self._tell = measurers, stop, tell
        self._told = self._saved = -math.inf
        self.subject = subject_of(cell.subject, cell.settings, cell.seed)
        self._before = self._begin()
        self._watch = Watch(stop, self.subject.now, self._arrived)
        store = open_.enter_context(folder.records(cell.id, fsync=not self.subject.recorded))
        self.search = search_of(cell, self.subject, self._measurer, store, self._before)
        earlier = self._before.elapsed.tolist() if self._before is not None else ()
        self._elapsed = Elapsed(self.subject.now, earlier)
        self._status: list[str] = []
        self._seconds: list[float] = []
        self._introduce()

    def _measurer(self, subject: SpaceSubject) -> Measurer[Any]:
        """The watched measurer of a subject; all tasks and successive cells share one."""
        shared = self._measurers.of(self.cell, self._note) if subject.builds else None
        return self._watch.over(subject.measurer(shared))

    def _note(self, text: str) -> None:
        self._tell(Noted(self.cell.id, text))

    def _introduce(self) -> None:
        """Notes what a model has seen before, and that a strategy has no model to search by."""
        study = self.search.studies[0]
        if study.model is not None and (seen := study.model.seen(study.space)):
            self._note(f"model '{study.model.name}' starts from {seen}")
        if study.strategy.needs_model and study.model is None:
            self._note(f"strategy '{study.strategy.name}' has no cost model here, so all candidates are random")

    def _begin(self) -> CellResult | None:
        """The result of an earlier run; a table is searched from the beginning, which costs no measurements."""
        if self.subject.recorded:
            self.folder.records_path(self.cell.id).unlink(missing_ok=True)
            return None
        return self.folder.result(self.cell)

    def run(self) -> CellResult:
        """Searches until the budget is used and then races the finalists, or until it is stopped."""
        try:
            if not search_loop(self.search, self._next, self._measure, self._round):
                self._exhausted()
            self._compare()
        except Stopped:
            return self.result("interrupted")
        if self._stop.is_set() and self._left() > 0:
            return self.result("interrupted")
        return self._finished()

    def _compare(self) -> None:
        """Measures what was found for a family at all of its sizes, before the final races take the cores."""
        if isinstance(self.search, FamilyStudy) and not self._stop.is_set() and math.isfinite(self.search.best_s):
            with self._watch.batch():
                self.search.compare()

    def _exhausted(self) -> None:
        """Notes why a cell ended before its budget was used."""
        of = "" if self.cell.trials is None else f" of {self.cell.trials}"
        self._note(f"the space is exhausted after {len(self._seconds)}{of} trials")

    def _left(self) -> int:
        """The maximum size of the next batch."""
        if self.cell.seconds is not None and self._elapsed.total >= self.cell.seconds:
            return 0
        left = math.inf if (trials := self.cell.trials) is None else trials - len(self._seconds)
        return int(min(self.search.batch, left))

    def _next(self) -> int:
        """The size of the next batch; 0 if the search was asked to stop."""
        left = self._left()
        return 0 if self._stop.is_set() else left

    def _measure(self, candidates: Sequence[Candidate]) -> Sequence[Outcome]:
        self._report()  # clears the previous activity
        with self._watch.batch():
            return self.search.measure(candidates)

    def _round(self, outcomes: Sequence[Outcome], done: Round) -> None:
        self._elapsed.extend(outcomes, self._watch.arrived)
        self._seconds += done.seconds.tolist()
        self._status += [o.status for o in outcomes]
        self._report()
        if time.monotonic() - self._saved >= _SAVE_S:
            self._saved = time.monotonic()
            # Until the cell has ended, its file says that it was interrupted.
            self.folder.write_result(self.result("interrupted"), sync=False)

    def _arrived(self, outcome: Outcome) -> None:
        self.measured += 1
        self._report()

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._told >= _TELL_S:
            self._told = now
            failures = Counter(s for s in self._status if s != "ok")
            self._tell(CellProgress(self.cell.id, len(self._seconds), self.measured, self.search.best_s, failures))

    # --- results ------------------------------------------------------------------------------------------------------

    def _finished(self) -> CellResult:
        if not math.isfinite(self.search.best_s):
            return self.result("done")
        cores = CoreLock.all(self._note) if self.subject.raced else nullcontext()
        with cores:
            return self.result("done", self.search.finish(seconds=_FINAL_S, most=_FINAL_S))

    def result(self, state: str, final: Finish | None = None) -> CellResult:
        """The result so far, with the final race if there was one."""
        rounds = self.search.rounds[: self._known_rounds()]
        return CellResult(
            cell=self.cell,
            state=state,
            seconds=np.array(self._seconds, dtype=np.float64),
            elapsed=np.array(self._elapsed.times, dtype=np.float64),
            status=tuple(self._status),
            rounds=tuple(map(RoundSummary.of, rounds)),
            ledger=self._ledger(),
            best=best_of(self.cell, self.search, final) if math.isfinite(self.search.best_s) else None,
            baselines=dict(final.baselines if final is not None else {}),
            optimum_s=self.subject.optimum_s,
        )

    def _known_rounds(self) -> int:
        return sum(r.trials <= len(self._seconds) for r in self.search.rounds)

    def _ledger(self) -> dict[str, float]:
        """Seconds by phase, including earlier runs of the cell."""
        total = Counter(self._before.ledger if self._before is not None else {})
        total.update(self.search.ledger.seconds)
        return dict(total)
