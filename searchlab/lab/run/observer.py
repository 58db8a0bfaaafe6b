"""Observers of a run: the command line shows what happens, a test counts it, others ignore it."""

from __future__ import annotations

from searchlab.lab.run.board import Board, Row
from searchlab.lab.run.events import Event


class Observer:
    """Is told what happens in a run; every hook may be left out."""

    def began(self, board: Board) -> None:
        """The run begins, with what was there already."""

    def changed(self, row: Row, event: Event, board: Board) -> None:
        """A cell started, went on or ended."""

    def retried(self, row: Row, attempt: int, board: Board) -> None:
        """A cell that failed is tried again."""

    def noted(self, text: str) -> None:
        """Something that the user should know and that is about no single cell."""

    def idle(self, board: Board) -> None:
        """Time passes."""

    def stopping(self) -> None:
        """The run was asked to stop, and finishes what is in flight."""

    def ended(self) -> None:
        """The run is over."""
