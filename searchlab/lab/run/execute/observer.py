"""Observers of a run: the command line shows what happens, a test counts it, others ignore it."""

from __future__ import annotations

from searchlab.lab.run.execute.events import Event
from searchlab.lab.run.execute.run_state import CellRow, RunState


class Observer:
    """Is told what happens in a run; every hook may be left out."""

    def began(self, board: RunState) -> None:
        """The run begins, with what was there already."""

    def changed(self, row: CellRow, event: Event, board: RunState) -> None:
        """A cell started, went on or ended."""

    def retried(self, row: CellRow, attempt: int, board: RunState) -> None:
        """A cell that failed is tried again."""

    def noted(self, text: str) -> None:
        """Something that the user should know and that is about no single cell."""

    def idle(self, board: RunState) -> None:
        """Time passes."""

    def stopping(self) -> None:
        """The run was asked to stop, and finishes what is in flight."""

    def ended(self) -> None:
        """The run is over."""
