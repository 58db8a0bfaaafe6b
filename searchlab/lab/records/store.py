"""A file of records: append-only JSON lines that any number of processes may write, and queries over them.

Nothing that `append` accepted is lost if a process dies or the disk is full; unreadable lines are skipped and reported.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchlab.errors import RecordError
from searchlab.lab.records import files, quick
from searchlab.lab.records.identity import job_key
from searchlab.lab.records.index import Index
from searchlab.lab.records.lines import START, SchemaError, decode, encode, head
from searchlab.lab.records.record import Record

if TYPE_CHECKING:
    from searchlab.measure.job import Job, Limits, Outcome

_log = logging.getLogger(__name__)
_BATCH = 1 << 20


class RecordStore:
    """The records in a file; a file that does not exist is an empty store.

        store = Store("runs/first/records.jsonl")
        store.append(record)
        store.best("matmul-0123456789ab").seconds

    `fsync` makes records survive a crash of the machine, not only of the process; it costs milliseconds per record.
    """

    def __init__(self, path: str | os.PathLike[str], fsync: bool = False) -> None:
        self.path = Path(path)
        self.fsync = fsync
        self._appender = files.Appender(self.path, _keep, fsync)
        self._file: tuple[int, int]
        self._end: int  # the offset up to which the index has read
        self._number: int  # the number of lines up to there
        self._forget()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordStore, (str(self.path), self.fsync)

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """Writes one record, which is in the file when this returns."""
        self._appender.write(encode(record))

    def extend(self, records: Iterable[Record]) -> int:
        """Writes many records in large chunks, and returns their number."""
        return self.extend_lines(map(encode, records))

    def extend_lines(self, lines: Iterable[bytes]) -> int:
        """Writes many lines, from `encode` or another store's `lines`, and returns their number."""
        written, size = 0, 0
        batch: list[bytes] = []
        for line in lines:
            batch.append(line)
            size += len(line)
            if size >= _BATCH:
                self._appender.write(b"".join(batch))
                written, batch, size = written + len(batch), [], 0
        if batch:
            self._appender.write(b"".join(batch))
        return written + len(batch)

    def close(self) -> None:
        """Closes the file; the next append opens it again."""
        self._appender.close()

    def __enter__(self) -> RecordStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record]:
        """All readable records, in order."""
        found = files.snapshot(self.path)
        skipped: dict[int, str] = {}
        for line, number, _ in self._lines(0, found.st_size if found else 0, 0):
            if (record := self._decoded(line, number, skipped)) is not None:
                yield record
        self._warn(skipped)

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """The ids of all records with their lines, which are not fully parsed."""
        found = files.snapshot(self.path)
        skipped: dict[int, str] = {}
        for line, number, _ in self._lines(0, found.st_size if found else 0, 0):
            if (values := head(line)) is not None:
                yield values[0].decode("ascii"), line
            elif (record := self._decoded(line, number, skipped)) is not None:
                yield record.id, encode(record)
        self._warn(skipped)

    def __len__(self) -> int:
        return self.index.count()

    @property
    def index(self) -> Index:
        """The index, up to date with the file."""
        found = files.snapshot(self.path)
        if found is None or (found.st_dev, found.st_ino) != self._file or found.st_size < self._end:
            self._forget()
        if found is not None and found.st_size > self._end:
            self._file = (found.st_dev, found.st_ino)
            self._scan(found.st_size)
        return self._index

    @property
    def skipped(self) -> dict[int, str]:
        """The numbers of the lines that could not be read, with the reasons."""
        self.index  # noqa: B018
        return dict(self._skipped)

    def records(self, task: str | None = None, status: str | None = None) -> Iterator[Record]:
        """The records of a task, a status, both or all, in order."""
        index = self.index
        return self._at(index, index.rows(task, status))

    def best(self, task: str | None = None) -> Record | None:
        """The fastest record."""
        index = self.index
        while (row := index.best(task)) is not None:
            for record in self._at(index, [row]):
                return record
        return None

    def top(self, k: int, task: str | None = None) -> list[Record]:
        """The k fastest records, fastest first."""
        index = self.index
        return list(self._at(index, index.top(k, task)))

    def count(self, task: str | None = None, status: str | None = None) -> int:
        """The number of records of a task, a status, both or any."""
        return self.index.count(task, status)

    # --- reuse --------------------------------------------------------------------------------------------------------

    def lookup(self, key: str, limits: Limits | None = None, best_s: float | None = None) -> Record | None:
        """A record that may replace a new measurement with this key (see `job_key`), or None.

        Times come before failures, newer records before older ones; see `Record.reusable` for what cannot be reused.
        """
        index, failure = self.index, None
        for record in self._at(index, index.with_key(key)):
            if record.key == key and record.reusable(limits, best_s):
                if record.ok:
                    return record
                failure = failure or record
        return failure

    def reuse(self, job: Job) -> Outcome | None:
        """The outcome of a job that was measured before, or None."""
        found = self.lookup(job_key(job), job.limits, job.best_s)
        return None if found is None else found.outcome(job.id)

    # --- lines --------------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        self._index = Index()
        self._file = (0, 0)
        self._end = 0
        self._number = 0
        self._skipped: dict[int, str] = {}
        self._torn = (-1, -1)

    def _scan(self, end: int) -> None:
        add, number, offset, line = self._index.add, self._number, self._end, b""
        before = len(self._skipped)
        try:
            for line, number, offset in self._lines(self._end, end, self._number):
                found = head(line)
                if found is not None:
                    _, key, task, status, seconds = found
                    add(offset, key, task, status, math.inf if seconds == b"null" else float(seconds))
                elif (known := quick.entry(line)) is not None:
                    add(offset, *known)
                elif (record := self._decoded(line, number, self._skipped)) is not None:
                    key, task, status = (_bytes(text) for text in (record.key, record.task, record.status))
                    add(offset, key, task, status, record.seconds)
        except BaseException:
            self._forget()  # a partial index would give wrong answers
            raise
        self._end = offset + len(line)
        # The missing terminator of an unfinished line is not a line of its own.
        self._number = number - 1 if line and not line.endswith(b"\n") else number
        if len(self._skipped) > before:
            self._warn(self._skipped)

    def _lines(self, start: int, end: int, number: int) -> Iterator[tuple[bytes, int, int]]:
        """Lines with their numbers and offsets; a torn last line is left out."""
        offset = start
        for line in files.lines(self.path, start, end):
            number += 1
            if not line.endswith(b"\n") and not _keep(line):
                if self._torn != (offset, end):
                    self._torn = (offset, end)
                    _log.warning("%s:%d: the last line is torn and left out", self.path, number)
                return
            yield line, number, offset
            offset += len(line)

    def _decoded(self, line: bytes, number: int, skipped: dict[int, str]) -> Record | None:
        if line.isspace():
            return None
        try:
            return decode(line)
        except SchemaError as e:
            raise SchemaError(f"{self.path}:{number}: {e}") from None
        except RecordError as e:
            _log.info("%s:%d: skipped a broken line: %s", self.path, number, e)
            skipped[number] = str(e)
            return None

    def _warn(self, skipped: Mapping[int, str]) -> None:
        """Warns about the number of lines left out; the log has each of them."""
        if not skipped:
            return
        (first, why), count = next(iter(skipped.items())), len(skipped)
        lines = f"line {first} cannot be read and is" if count == 1 else f"{count} lines cannot be read and are"
        _log.warning(
            "%s: %s left out%s: %s", self.path, lines, "" if count == 1 else f", the first is line {first}", why
        )

    def _at(self, index: Index, rows: Iterable[int]) -> Iterator[Record]:
        if not len(index):
            return
        try:
            with self.path.open("rb") as file:
                for row in rows:
                    offset = index.offsets[row]
                    file.seek(offset)
                    try:
                        yield decode(file.readline())
                    except RecordError as e:  # the file was changed meanwhile
                        _log.warning("%s: skipped a broken line at byte %d: %s", self.path, offset, e)
                        index.drop(row)
        except OSError as e:
            raise RecordError(f"{self.path}: cannot read: {e.strerror}") from e


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _keep(tail: bytes) -> bool:
    """Whether an unfinished last line stays: a record that lacks only its terminator, or a line that is not ours."""
    if not tail.startswith(START) and not START.startswith(tail):
        return True
    try:
        decode(tail)
    except SchemaError:
        return True
    except RecordError:
        return False
    return True
