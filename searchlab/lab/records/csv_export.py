"""Records as CSV for spreadsheets and data frames: one column per field, one column `knob.NAME` per knob.

List items are separated by spaces, mappings are JSON; reading a table back gives the same records.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO

from searchlab.errors import RecordError
from searchlab.lab.records.record import Record
from searchlab.lab.records.text import dumps, loads

_KNOB = "knob."
_COLUMNS = {f.name: str(f.type) for f in fields(Record) if f.name != "knobs"}
_FOR_PEOPLE = ("seconds", "key")  # computed, so they are not read back


def write(records: Callable[[], Iterable[Record]], file: TextIO) -> int:
    """Writes records and returns their number; `records` is iterated twice, since the knobs must be known first."""
    knobs = list(dict.fromkeys(name for record in records() for name in record.knobs))
    names = ["id", *(n for n in _COLUMNS if n != "id"), *_FOR_PEOPLE]
    writer = csv.writer(file)  # its line terminator, CR LF, makes it quote texts that contain either
    writer.writerow([*names, *(_KNOB + k for k in knobs)])
    count = 0
    for record in records():
        count += 1
        chosen = record.knobs
        row = [_cell(getattr(record, name)) for name in names]
        writer.writerow([*row, *(_free(chosen[k]) if k in chosen else "" for k in knobs)])
    return count


def read(path: Path) -> Iterator[Record]:
    """The records of a table; missing columns take their defaults, unknown ones are refused."""
    try:
        with path.open(encoding="utf-8", errors="surrogatepass", newline="") as file:
            yield from _rows(file, path)
    except OSError as e:
        raise RecordError(f"{path}: cannot read: {e.strerror or e}") from e


def _rows(file: TextIO, path: Path) -> Iterator[Record]:
    reader = csv.reader(file, strict=True)
    try:
        names = next(reader, [])
        _check(names, path)
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(names):
                raise RecordError(f"{len(cells)} cells in a table of {len(names)} columns")
            yield _record(dict(zip(names, cells, strict=True)))
    except UnicodeDecodeError:
        raise RecordError(f"{path}: not UTF-8 text") from None
    except (RecordError, ValueError, csv.Error) as e:
        raise RecordError(f"{path}:{reader.line_num}: {e}") from None


def _check(names: list[str], path: Path) -> None:
    if len(set(names)) < len(names):
        raise RecordError("duplicate column")
    for needed in ("task", "status"):
        if needed not in names:
            raise RecordError(f"not a table of records: no column '{needed}'")
    for name in names:
        if name not in _COLUMNS and name not in _FOR_PEOPLE and not name.startswith(_KNOB):
            raise RecordError(f"unknown column '{name}'; write {_KNOB}{name} if it is a knob")


def _record(row: dict[str, str]) -> Record:
    knobs = {name[len(_KNOB) :]: _chosen(cell) for name, cell in row.items() if name.startswith(_KNOB) and cell}
    values = {n: _value(row[n], kind) for n, kind in _COLUMNS.items() if n in row and (row[n] or kind == "str")}
    return Record(**values, knobs=knobs)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(map(repr, value))
    if isinstance(value, dict):
        return dumps(value) if value else ""
    return repr(value)


def _value(cell: str, kind: str) -> Any:
    if kind == "str":
        return cell
    if kind == "bool":
        return {"true": True, "false": False}.get(cell.lower(), cell)
    if kind.startswith("tuple"):
        return [float(x) if "float" in kind else int(x) for x in cell.split()]
    if kind.startswith("Mapping"):
        return loads(cell)
    return int(cell) if kind == "int" else float(cell)


def _free(value: Any) -> str:
    """The text of a knob's value: strings stay as they are unless they would be read as another type."""
    if isinstance(value, str) and value and not _is_json(value):
        return value
    return dumps(value)


def _chosen(cell: str) -> Any:
    return json.loads(cell) if _is_json(cell) else cell


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
