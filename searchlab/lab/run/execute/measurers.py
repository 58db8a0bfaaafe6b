"""A measurer that successive cells share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from searchlab.measure import LocalMeasurer, Measurer

if TYPE_CHECKING:
    from searchlab.lab.manifest import Cell

Note = Callable[[str], None]


class Measurers:
    """Keeps a measurer open for successive cells with the same settings, since starting one takes a while."""

    def __init__(self, cores: Sequence[int] | None = None) -> None:
        self._cores = cores
        self._key = ""
        self._measurer: Measurer[Any] | None = None
        self._note: Note = lambda text: None

    def of(self, cell: Cell, note: Note) -> Measurer[Any]:
        """The measurer of a cell; `note` receives the reason for any wait."""
        self._note = note
        key = repr(cell.measure)
        if self._measurer is None or key != self._key:
            self.close()
            self._measurer, self._key = self._made(cell), key
        return self._measurer

    @contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Closes the measurer after an error inside, as its state is unknown."""
        try:
            yield
        except BaseException:  # also an interrupt
            self.close()
            raise

    def close(self) -> None:
        """Closes the open measurer."""
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
        timed = not cell.modelled  # nothing disturbs a modelled cost
        return LocalMeasurer(**options, lock=timed, on_wait=lambda text: self._note(text))
