"""How many cells run side by side: recorded ones as many as cores are idle, timed ones never on the same core."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from searchlab.errors import ConfigError
from searchlab.targets import parse as target

if TYPE_CHECKING:
    from searchlab.lab.cells import Cell

_LOOK_S = 0.1
_BUSY = 50.0  # per cent


def usable() -> tuple[int, ...]:
    """The cores of this process."""
    return tuple(sorted(os.sched_getaffinity(0)))


def idle() -> int:
    """How many of them nobody uses at this moment, at least one."""
    import psutil

    load: list[float] = psutil.cpu_percent(interval=_LOOK_S, percpu=True)
    return max(1, sum(load[c] < _BUSY for c in usable() if c < len(load)))


def side_by_side(cells: Sequence[Cell], jobs: int | None) -> int:
    """How many of these cells, all recorded or all timed, run at the same time; `jobs` is what the user asks for."""
    if not cells:
        return 0
    if cells[0].table is not None:
        return min(len(cells), idle() if jobs is None else jobs)
    if jobs is None or jobs < 2:
        return 1
    if cells[0].measure.kind == "local":
        threads = max(target(cell.target).threads for cell in cells)
        most = len(usable()) // threads
        if jobs > most:
            raise ConfigError(
                f"-j {jobs}: cells that time never share a core; {len(usable())} cores with {threads} threads per"
                f" kernel allow {max(1, most)} at a time (target: {{native: {{threads: 1}}}} would allow more)"
            )
    return min(len(cells), jobs)


@contextmanager
def aside() -> Iterator[None]:
    """Keeps this thread on the last core: measurers time on the first ones."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def shares(count: int, apart: bool) -> list[tuple[int, ...]]:
    """The cores of so many cells side by side: those that time get cores of their own."""
    cores = usable()
    if count < 2 or not apart:
        return [cores] * count
    each = len(cores) // count
    return [cores[n * each : (n + 1) * each] for n in range(count)]
