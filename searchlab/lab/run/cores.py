"""The number of concurrent cells: recorded cells use all idle cores, timed cells never share a core."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from searchlab.errors import ConfigError
from searchlab.targets import parse as target

if TYPE_CHECKING:
    from searchlab.lab.manifest import Cell

_LOOK_S = 0.1
_BUSY = 50.0  # per cent


def usable() -> tuple[int, ...]:
    """The cores that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def idle() -> int:
    """The number of usable cores that are idle at this moment, at least one."""
    import psutil

    load: list[float] = psutil.cpu_percent(interval=_LOOK_S, percpu=True)
    return max(1, sum(load[c] < _BUSY for c in usable() if c < len(load)))


def side_by_side(cells: Sequence[Cell], jobs: int | None) -> int:
    """How many of these cells, all recorded or all timed, run concurrently; `jobs` is the user's request."""
    if not cells:
        return 0
    if cells[0].recorded:
        return min(len(cells), idle() if jobs is None else jobs)
    return min(len(cells), max(1, jobs or 1))


def check(cells: Sequence[Cell], jobs: int | None) -> None:
    """Refuses to time more cells concurrently than there are cores for."""
    timed = [target(cell.target).threads for cell in cells if cell.measure.kind == "local"]
    if jobs is None or jobs < 2 or not timed:
        return
    threads, count = max(timed), len(usable())
    if jobs * threads > count:
        advice = "; target: {native: {threads: 1}} leaves more of them" if threads > 1 else ""
        raise ConfigError(
            f"-j {jobs}: cells that time never share a core, and {jobs} with {threads} threads each need more than"
            f" the {count} there are; at most -j {max(1, count // threads)}{advice}"
        )


@contextmanager
def aside() -> Iterator[None]:
    """Pins this thread to the last core, since measurers time on the first ones."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def shares(count: int, apart: bool) -> list[tuple[int, ...]]:
    """The cores of each of `count` concurrent cells; with `apart`, as for timing, they share none."""
    cores = usable()
    if count < 2 or not apart:
        return [cores] * count
    each = len(cores) // count
    return [cores[n * each : (n + 1) * each] for n in range(count)]
