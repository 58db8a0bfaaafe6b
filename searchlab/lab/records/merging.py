"""Stores into one: every record once, each with the file it came from; nothing is ever removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from searchlab.errors import RecordError
from searchlab.lab.records.record import Record
from searchlab.lab.records.store import Store


@dataclass(frozen=True, slots=True)
class Merged:
    """How many records were written, and how many were there already."""

    added: int
    known: int


def merge(out: Store, sources: Iterable[Store]) -> Merged:
    """Appends to `out` the records of all sources that it does not have; doing it again adds nothing."""
    sources = [s for s in sources if not same_file(s, out)]
    for source in sources:
        if not source.path.exists():
            raise RecordError(f"{source.path}: there is no such file")
        source.index  # noqa: B018  (what cannot be read is refused before anything is written)
    return add_new(out, (_from(source, record) for source in sources for record in source))


def add_new(out: Store, records: Iterable[Record]) -> Merged:
    """Appends the records whose ids are not in `out`."""
    seen = set(out.ids())
    known = 0

    def fresh() -> Iterator[Record]:
        nonlocal known
        for record in records:
            if record.id in seen:
                known += 1
            else:
                seen.add(record.id)
                yield record

    added = out.extend(fresh())
    return Merged(added, known)


def same_file(a: Store, b: Store) -> bool:
    """Whether two stores are one file."""
    try:
        return a.path.samefile(b.path)
    except OSError:
        return False


def _from(source: Store, record: Record) -> Record:
    return record if record.origin else replace(record, origin=str(source.path))
