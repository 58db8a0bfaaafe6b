"""The measurers of one cell after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from searchlab.measure import LocalMeasurer, Measurer

if TYPE_CHECKING:
    from searchlab.lab.manifest import Cell

Note = Callable[[str], None]


class Measurers:
    """Measurers for one cell after another: starting one takes a while, so it stays for cells that ask for the same."""

    def __init__(self, cores: Sequence[int] | None = None) -> None:
        self._cores = cores
        self._key = ""
        self._measurer: Measurer[Any] | None = None
        self._note: Note = lambda text: None

    def of(self, cell: Cell, note: Note) -> Measurer[Any]:
        """The measurer of a cell; `note` is told what keeps it waiting."""
        self._note = note
        key = repr(cell.measure)
        if self._measurer is None or key != self._key:
            self.close()
            self._measurer, self._key = self._made(cell), key
        return self._measurer

    @contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """After an error inside, the measurer is not used again: it may be in any state."""
        try:
            yield
        except BaseException:  # also an interrupt
            self.close()
            raise

    def close(self) -> None:
        """Ends the measurer that is open."""
        measurer, self._measurer = self._measurer, None
        if measurer is not None:
            measurer.close()

    def _made(self, cell: Cell) -> Measurer[Any]:
        options = dict(cell.measure.settings.options)
        if cell.measure.kind == "ray":
            from searchlab.measure.cluster import RayMeasurer

            return RayMeasurer(**options)
        if options.get("cores") is None:
            options["cores"] = self._cores
        return LocalMeasurer(**options, on_wait=lambda text: self._note(text))
