"""A columnar index of a record file for queries: forty bytes per record, filled without parsing whole lines."""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

_KEY = 16  # bytes of a key


@dataclass(slots=True)
class RecordKind:
    """The records of one task with one status: their number, and the fastest."""

    task: str
    status: str
    count: int = 0
    first: int = -1
    best: int = -1
    seconds: float = math.inf


class Index:
    """Columns over the records of a store; rows are in file order."""

    def __init__(self) -> None:
        self.offsets = array("q")
        self.seconds = array("d")
        self._kind = array("i")
        self._keys = bytearray()
        self._kinds: list[RecordKind] = []
        self._of_task: dict[str, list[int]] = {}
        self._numbers: dict[tuple[bytes, bytes], int] = {}
        self._last: dict[bytes, int] = {}
        self._previous = array("q")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, key: bytes, task: bytes, status: bytes, seconds: float) -> None:
        """Adds a record."""
        number = self._numbers.get((task, status))
        if number is None:
            number = self._numbers[task, status] = len(self._kinds)
            self._kinds.append(RecordKind(_text(task), _text(status), first=len(self.offsets)))
            self._of_task.setdefault(self._kinds[-1].task, []).append(number)
        kind = self._kinds[number]
        kind.count += 1
        if seconds < kind.seconds:
            kind.seconds, kind.best = seconds, len(self.offsets)
        self.offsets.append(offset)
        self.seconds.append(seconds)
        self._kind.append(number)
        self._keys += key

    def drop(self, row: int) -> None:
        """Removes a record whose line turned out to be unreadable."""
        self.offsets[row] = -1
        self.seconds[row] = math.inf
        kind = self._kinds[self._kind[row]]
        kind.count -= 1
        if kind.best == row:
            rows = list(self.rows(kind.task, kind.status))
            kind.best = min(rows, key=self.seconds.__getitem__, default=-1)
            kind.seconds = self.seconds[kind.best] if rows else math.inf

    # --- queries ------------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> list[str]:
        """The tasks in order of first occurrence."""
        return list(self._of_task)

    def count(self, task: str | None = None, status: str | None = None) -> int:
        """The number of records of a task, a status, both or any."""
        return sum(kind.count for _, kind in self._matching(task, status))

    def by_status(self, task: str | None = None) -> dict[str, int]:
        """The number of records per status."""
        found: dict[str, int] = {}
        for _, kind in self._matching(task, None):
            if kind.count:
                found[kind.status] = found.get(kind.status, 0) + kind.count
        return found

    def rows(self, task: str | None = None, status: str | None = None) -> Iterator[int]:
        """The rows of a task, a status, both or all, in order."""
        matching = dict(self._matching(task, status))
        wanted = matching.keys()
        for row in range(min((kind.first for kind in matching.values()), default=len(self)), len(self)):
            if self._kind[row] in wanted and self.offsets[row] >= 0:
                yield row

    def best(self, task: str | None = None) -> int | None:
        """The row of the fastest record, the first among ties; records without a time do not count."""
        timed = (kind for _, kind in self._matching(task, None) if kind.seconds < math.inf)
        found = min(timed, key=lambda kind: (kind.seconds, kind.best), default=None)
        return None if found is None else found.best

    def top(self, k: int, task: str | None = None) -> list[int]:
        """The rows of the k fastest records, fastest first."""
        timed = (row for row in self.rows(task) if self.seconds[row] < math.inf)
        return heapq.nsmallest(k, timed, key=self.seconds.__getitem__)

    def with_key(self, key: str) -> Iterator[int]:
        """The rows with a key, newest first."""
        self._link()
        row = self._last.get(key.encode(), -1)
        while row >= 0:
            if self.offsets[row] >= 0:
                yield row
            row = self._previous[row]

    def _link(self) -> None:
        # The table of keys is built at the first lookup, so that other queries do not pay for it.
        for row in range(len(self._previous), len(self.offsets)):
            key = bytes(self._keys[row * _KEY : (row + 1) * _KEY])
            self._previous.append(self._last.get(key, -1))
            self._last[key] = row

    def _matching(self, task: str | None, status: str | None) -> Iterator[tuple[int, RecordKind]]:
        for number in range(len(self._kinds)) if task is None else self._of_task.get(task, ()):
            if status in (None, self._kinds[number].status):
                yield number, self._kinds[number]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogatepass")
