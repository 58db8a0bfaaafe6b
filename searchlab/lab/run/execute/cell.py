"""Runs one cell: a study until its budget is used, then the final race, with its state on disk all along."""

from __future__ import annotations

import errno
import logging
import math
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from searchlab.errors import RecordError
from searchlab.lab.folder.folder import Folder
from searchlab.lab.results import CellResult, RoundSummary
from searchlab.lab.run.execute.elapsed import Elapsed
from searchlab.lab.run.execute.equipment import Bench, Final, Measurers, bench
from searchlab.lab.run.execute.events import CellEnded, CellProgress, Doing, Event, Noted, Started
from searchlab.lab.run.execute.stopping import Stopped, Watch
from searchlab.lab.study import Candidate, JointStudy, Study
from searchlab.measure import Outcome
from searchlab.search.progress import listening

if TYPE_CHECKING:
    from searchlab.lab.manifest import Cell

_log = logging.getLogger(__name__)
_TELL_S = 0.1  # between two reports
_SAVE_S = 2.0  # between two states on disk; measurements are there at once, in the records
# Errors that every other cell would meet as well.
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})

Tell = Callable[[Event], object]


def run_cell(cell: Cell, folder: Folder, stop: threading.Event, tell: Tell, measurers: Measurers) -> CellResult:
    """Runs a cell to its end, or until `stop` is set, and returns what it gave, which is in its file then.

    An exception makes it a failed cell.  Only a disk that takes no more data, which no other cell would survive either,
    is raised.
    """
    tell(Started(cell.id))
    nothing = CellResult.waiting(cell)
    search: _Search | None = None
    trace = ""

    def note(text: str) -> None:
        tell(Noted(cell.id, text))

    try:
        with ExitStack() as open_:
            open_.enter_context(listening(_Slowly(lambda text: tell(Doing(cell.id, text)))))
            ready = open_.enter_context(bench(cell, measurers, note))
            search = _Search(cell, folder, ready, stop, tell, open_)
            found = search.run()
    except Exception as e:
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
    """Passes on what is said, but not more often than anybody can read it."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell, self._last = tell, -math.inf

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if now - self._last >= _TELL_S:
            self._last = now
            self._tell(text)


def _no_disk(error: BaseException) -> RecordError | None:
    """The error of a disk that takes no more data, if that is what is behind another one."""
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
        found.error,
        trace,
    )


class _Search:
    """A study on its way, and what it gave so far."""

    def __init__(
        self, cell: Cell, folder: Folder, bench: Bench[Any], stop: threading.Event, tell: Tell, open_: ExitStack
    ) -> None:
        self.cell, self.folder, self.bench = cell, folder, bench
        self.measured = 0
        self._stop, self._tell = stop, tell
        self._told = self._saved = -math.inf
        self._before = self._begin()
        self._watch = Watch(stop, bench.now, self._arrived)
        store = open_.enter_context(folder.records(cell.id, fsync=not bench.recorded))
        self.study: Study | JointStudy = bench.study(self._watch.over, store, self._before)
        earlier = self._before.elapsed.tolist() if self._before is not None else ()
        self._elapsed = Elapsed(bench.now, earlier)
        self._status: list[str] = []
        self._seconds: list[float] = []
        self._blind()

    def _blind(self) -> None:
        """Says that a strategy has nothing to search by."""
        study = self.study.turn if isinstance(self.study, JointStudy) else self.study
        if study.strategy.needs_model and study.model is None:
            text = f"strategy '{study.strategy.name}' has no cost model here, so all candidates are random"
            self._tell(Noted(self.cell.id, text))

    def _begin(self) -> CellResult | None:
        """What an earlier run left; a table is searched from its beginning, which costs no measurements."""
        if self.bench.recorded:
            self.folder.records_path(self.cell.id).unlink(missing_ok=True)
            return None
        return self.folder.result(self.cell)

    def run(self) -> CellResult:
        try:
            while (count := self._left()) > 0 and not self._stop.is_set():
                candidates = self.study.ask(count)
                if not candidates:
                    self._exhausted()
                    break
                self._batch(candidates)
        except Stopped:
            return self.result("interrupted")
        if self._stop.is_set() and self._left() > 0:
            return self.result("interrupted")
        return self._finished()

    def _exhausted(self) -> None:
        """Says why a cell is done before its budget is."""
        of = "" if self.cell.trials is None else f" of {self.cell.trials}"
        self._tell(Noted(self.cell.id, f"the space is exhausted after {len(self._seconds)}{of} trials"))

    def _left(self) -> int:
        """How many trials the next batch may have."""
        if self.cell.seconds is not None and self._elapsed.total >= self.cell.seconds:
            return 0
        left = math.inf if (trials := self.cell.trials) is None else trials - len(self._seconds)
        return int(min(self.study.batch, left))

    def _batch(self, candidates: Sequence[Candidate]) -> None:
        self._report()  # what was going on before is over
        with self._watch.batch():
            outcomes = self.study.measure(candidates)
        told = self.study.tell(list(candidates), outcomes)
        self._elapsed.extend(outcomes, self._watch.arrived)
        self._seconds += told.seconds.tolist()
        self._status += [o.status for o in outcomes]
        self._report()
        if time.monotonic() - self._saved >= _SAVE_S:
            self._saved = time.monotonic()
            # Until the cell has ended, it is one that was interrupted for whoever finds it.
            self.folder.write_result(self.result("interrupted"), sync=False)

    def _arrived(self, outcome: Outcome) -> None:
        self.measured += 1
        self._report()

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._told >= _TELL_S:
            self._told = now
            failures = Counter(s for s in self._status if s != "ok")
            self._tell(CellProgress(self.cell.id, len(self._seconds), self.measured, self.study.best_s, failures))

    # --- results ------------------------------------------------------------------------------------------------------

    def _finished(self) -> CellResult:
        if not math.isfinite(self.study.best_s):
            return self.result("done")
        return self.result("done", self.bench.final(self.study))

    def result(self, state: str, final: Final | None = None) -> CellResult:
        """Everything so far, and the last look at the best."""
        rounds = self.study.rounds[: self._known_rounds()]
        return CellResult(
            cell=self.cell,
            state=state,
            seconds=np.array(self._seconds, dtype=np.float64),
            elapsed=np.array(self._elapsed.times, dtype=np.float64),
            status=tuple(self._status),
            rounds=tuple(map(RoundSummary.of, rounds)),
            ledger=self._ledger(),
            best=self.bench.best(self.study, final) if math.isfinite(self.study.best_s) else None,
            baselines=dict(final.baselines if final is not None else {}),
            optimum_s=self.bench.optimum_s,
        )

    def _known_rounds(self) -> int:
        return sum(r.trials <= len(self._seconds) for r in self.study.rounds)

    def _ledger(self) -> dict[str, float]:
        """Seconds by phase, with those of earlier runs of the cell."""
        total = Counter(self._before.ledger if self._before is not None else {})
        total.update(self.study.ledger.seconds)
        return dict(total)
