"""What queries need of a file of records, in columns: forty bytes per record, filled without parsing whole lines."""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter
from collections.abc import Iterator

_KEY = 16  # bytes of a key


class Names:
    """Short numbers for texts that come again and again."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._codes: dict[bytes, int] = {}

    def code(self, name: bytes) -> int:
        found = self._codes.get(name)
        if found is None:
            found = self._codes[name] = len(self.names)
            self.names.append(name.decode("utf-8", "surrogatepass"))
        return found

    def find(self, name: str) -> int | None:
        return self._codes.get(name.encode("utf-8", "surrogatepass"))


class Index:
    """Columns over the records of a store, by row: the order in the file."""

    def __init__(self) -> None:
        self.offsets = array("q")
        self.seconds = array("d")
        self._task = array("i")
        self._status = array("i")
        self._keys = bytearray()
        self._tasks, self._statuses = Names(), Names()
        self._counts: Counter[tuple[int, int]] = Counter()
        self._best: dict[int, int] = {}
        self._last: dict[bytes, int] = {}
        self._previous = array("q")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, key: bytes, task: bytes, status: bytes, seconds: float) -> None:
        """One more record."""
        row = len(self.offsets)
        task_code, status_code = self._tasks.code(task), self._statuses.code(status)
        self.offsets.append(offset)
        self.seconds.append(seconds)
        self._task.append(task_code)
        self._status.append(status_code)
        self._keys += key
        self._counts[task_code, status_code] += 1
        if seconds < math.inf:
            best = self._best.get(task_code)
            if best is None or seconds < self.seconds[best]:
                self._best[task_code] = row

    def drop(self, row: int) -> None:
        """Takes a record out of all answers: its line turned out to be unreadable."""
        code = self._task[row]
        self._counts[code, self._status[row]] -= 1
        self.seconds[row] = math.inf
        self.offsets[row] = -1
        if self._best.get(code) == row:
            del self._best[code]
            if left := [r for r in self.rows(self._tasks.names[code]) if self.seconds[r] < math.inf]:
                self._best[code] = min(left, key=self.seconds.__getitem__)

    # --- queries ------------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> list[str]:
        """The tasks in the order in which they came."""
        return list(self._tasks.names)

    def count(self, task: str | None = None, status: str | None = None) -> int:
        """How many records there are of a task, a status, both or any."""
        return sum(n for (t, s), n in self._counts.items() if self._is(t, s, task, status))

    def by_status(self, task: str | None = None) -> dict[str, int]:
        """How many records there are of each status."""
        found: Counter[str] = Counter()
        for (t, s), n in self._counts.items():
            if n and self._is(t, s, task, None):
                found[self._statuses.names[s]] += n
        return dict(found)

    def rows(self, task: str | None = None, status: str | None = None) -> Iterator[int]:
        """The rows of a task, a status, both or all, in order."""
        t = None if task is None else self._tasks.find(task)
        s = None if status is None else self._statuses.find(status)
        if (t is None) != (task is None) or (s is None) != (status is None):
            return
        for row in range(len(self)):
            if self.offsets[row] >= 0 and (t is None or self._task[row] == t) and (s is None or self._status[row] == s):
                yield row

    def best(self, task: str | None = None) -> int | None:
        """The row of the fastest record, the first of equals; failures are no records in this sense."""
        if task is not None:
            code = self._tasks.find(task)
            return None if code is None else self._best.get(code)
        return min(self._best.values(), key=lambda row: (self.seconds[row], row), default=None)

    def top(self, k: int, task: str | None = None) -> list[int]:
        """The rows of the k fastest records, the fastest first."""
        timed = (row for row in self.rows(task) if self.seconds[row] < math.inf)
        return heapq.nsmallest(k, timed, key=self.seconds.__getitem__)

    def with_key(self, key: str) -> Iterator[int]:
        """The rows with a key, the newest first."""
        self._link()
        row = self._last.get(key.encode(), -1)
        while row >= 0:
            if self.offsets[row] >= 0:
                yield row
            row = self._previous[row]

    def _link(self) -> None:
        # Only who looks up keys pays for the table of them.
        for row in range(len(self._previous), len(self.offsets)):
            key = bytes(self._keys[row * _KEY : (row + 1) * _KEY])
            self._previous.append(self._last.get(key, -1))
            self._last[key] = row

    def _is(self, task_code: int, status_code: int, task: str | None, status: str | None) -> bool:
        task_fits = task is None or self._tasks.names[task_code] == task
        return task_fits and (status is None or self._statuses.names[status_code] == status)
