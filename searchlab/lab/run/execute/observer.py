"""Observers of a run, such as the progress display of the command line."""

from __future__ import annotations

from searchlab.lab.run.execute.events import Event
from searchlab.lab.run.execute.run_state import CellRow, RunState


class Observer:
    """Receives the events of a run; every hook is optional."""

    def began(self, board: RunState) -> None:
        """The run begins; `board` has the results of earlier runs."""

    def changed(self, row: CellRow, event: Event, board: RunState) -> None:
        """A cell started, progressed or ended."""

    def retried(self, row: CellRow, attempt: int, board: RunState) -> None:
        """A failed cell is retried."""

    def noted(self, text: str) -> None:
        """A note for the user that does not concern a single cell."""

    def idle(self, board: RunState) -> None:
        """Time passes."""

    def stopping(self) -> None:
        """The run was asked to stop and finishes the measurements in flight."""

    def ended(self) -> None:
        """The run is over."""
