"""Merging stores: every record once, each with the file it came from; nothing is ever removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from searchlab.errors import RecordError
from searchlab.lab.records.lines import encode, stamped
from searchlab.lab.records.record import Record
from searchlab.lab.records.store import RecordStore


@dataclass(frozen=True, slots=True)
class Merged:
    """The number of records written, and of those already present."""

    added: int
    known: int


def merge(out: RecordStore, sources: Iterable[RecordStore]) -> Merged:
    """Appends to `out` the records of all sources that it lacks; merging again adds nothing."""
    sources = [s for s in sources if not same_file(s, out)]
    for source in sources:
        if not source.path.exists():
            raise RecordError(f"{source.path}: file not found")
        source.index  # noqa: B018  (unreadable sources are refused before anything is written)
    return _add(out, ((i, stamped(line, str(s.path))) for s in sources for i, line in s.lines()))


def add_new(out: RecordStore, records: Iterable[Record]) -> Merged:
    """Appends the records whose ids are not in `out`."""
    return _add(out, ((record.id, encode(record)) for record in records))


def _add(out: RecordStore, lines: Iterable[tuple[str, bytes]]) -> Merged:
    seen = {id_ for id_, _ in out.lines()}
    known = 0

    def fresh() -> Iterator[bytes]:
        nonlocal known
        for id_, line in lines:
            if id_ in seen:
                known += 1
            else:
                seen.add(id_)
                yield line

    added = out.extend_lines(fresh())
    return Merged(added, known)


def same_file(a: RecordStore, b: RecordStore) -> bool:
    """Whether two stores are the same file."""
    try:
        return a.path.samefile(b.path)
    except OSError:
        return False
