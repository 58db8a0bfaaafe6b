"""Tables of programs for open sizes, as a run folder keeps them.

A table is known by its plain program, whatever that and its sizes are called, and by the target.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from searchlab.graph.size_table import SizeTable
from searchlab.graph.tasks import plain_sizes, with_plain_sizes
from searchlab.ir.jsonform import from_json
from searchlab.ir.program import Program
from searchlab.lab.folder import atomic
from searchlab.lab.folder.file_forms import FileForm

FILE = "size_tables.json"
_AGAIN = "delete it: `searchlab tune` or `searchlab run` measures it again"


class SizeTableForm(FileForm):
    """One table, as `KeptTable` describes it."""

    key: str
    target: str
    label: str
    size: str
    last: list[int]
    programs: list[str]
    points: list[str]
    seconds: float
    default_s: float | None
    rivals: str
    refused: list[str]


class SizeTablesForm(FileForm):
    """The file."""

    tables: list[SizeTableForm]


@dataclass(frozen=True)
class KeptTable:
    """The programs for an open size in the order of its intervals, as JSON with plain names of sizes.

    `size` is the plain name of the one that decides, and `last` has the last value that each program but the final one
    runs for.  `seconds` is the mean time of a call, as measured when programs were compared, and `default_s` that of
    the default schedule.  `points` say where programs come from, and `rivals` is a digest of all that were compared.
    """

    key: str
    target: str
    label: str
    size: str
    last: tuple[int, ...]
    programs: tuple[str, ...]
    points: tuple[str, ...]
    seconds: float
    default_s: float | None
    rivals: str
    refused: tuple[str, ...] = ()

    @staticmethod
    def of(data: Mapping[str, Any]) -> KeptTable:
        """The table that plain data describes; keys of later versions are ignored."""
        known = {name: data[name] for name in KeptTable.__dataclass_fields__ if name in data}
        made: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in known.items()}
        return KeptTable(**made)

    def programs_for(self, plain: Program) -> SizeTable[Program]:
        """The scheduled programs of a plain one, under its names."""
        names = plain_sizes(plain)
        back = {new: old for old, new in names.items()}
        made = {text: with_plain_sizes(from_json(text), back) for text in set(self.programs)}
        return SizeTable(tuple(made[text] for text in self.programs), back.get(self.size, ""), self.last)


def kept_tables(folder: str | os.PathLike[str]) -> tuple[KeptTable, ...]:
    """The tables of a run folder; none if there is no file, or if it is damaged, which causes a warning."""
    data: dict[str, Any] | None = atomic.known_json(Path(folder) / FILE, SizeTablesForm, _AGAIN)
    return () if data is None else tuple(map(KeptTable.of, data["tables"]))


def keep_tables(folder: str | os.PathLike[str], tables: Iterable[KeptTable]) -> None:
    """Writes the tables of a run folder."""
    atomic.replace_json(Path(folder) / FILE, {"tables": [asdict(table) for table in tables]})
