"""The files of recorded tables: rows as CSV, headers as JSON, compressed or not; errors name the file."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import lzma
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.errors import SpaceError
from searchlab.measure.recorded import t4_tables
from searchlab.search.knob import Floats

_LONGEST = 1 << 16  # maximum length of a header line, in characters


def checked(path: Path, checksum: str | None) -> bytes:
    """The content of a file, after verifying its checksum."""
    if not path.is_file():
        raise SpaceError(f"{path} is missing")
    if checksum is not None and hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
        raise SpaceError(f"{path} is damaged: its checksum differs from the one in the index")
    return t4_tables.unpacked(path)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file."""
    try:
        data = t4_tables.parsed(path)
    except (OSError, ValueError) as e:
        raise SpaceError(f"{path} cannot be read: {e}") from e
    if not isinstance(data, dict):
        raise SpaceError(f"{path} holds no table")
    return data


def read_csv(path: Path, checksum: str | None, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a file, which must have these columns."""
    try:
        text = checked(path, checksum).decode()
        check_columns(path, columns, text)
        rows = list(csv.DictReader(io.StringIO(text), strict=True))
        if odd := [n for n, r in enumerate(rows, 1) if None in r or None in r.values()]:
            raise SpaceError(f"{path}: row {odd[0]} has not as many cells as there are columns")
        return rows
    except SpaceError:
        raise
    except (OSError, ValueError, csv.Error) as e:
        raise SpaceError(f"{path} cannot be read: {e}") from e


def check_columns(path: Path, columns: Sequence[str], text: str | None = None) -> None:
    """Refuses a file, or its text, that lacks a column; the message lists the expected and actual columns."""
    found = names_in(path) if text is None else next(csv.reader(io.StringIO(text)), [])
    if missing := [c for c in columns if c not in found]:
        raise SpaceError(
            f"{path} has no column '{missing[0]}': expected the columns {', '.join(columns)}; found {', '.join(found)}"
        )


def names_in(path: Path) -> list[str]:
    """The columns of a file, without reading the rest."""
    openers: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}
    try:
        with openers.get(path.suffix, open)(path, "rt", encoding="utf-8", newline="") as file:
            return next(csv.reader([file.readline(_LONGEST)]), [])
    except (OSError, ValueError, EOFError, lzma.LZMAError, zlib.error, csv.Error) as e:
        raise SpaceError(f"{path} cannot be read: {e}") from e


def column(rows: Sequence[Mapping[str, str]], name: str, scale: float = 1.0, missing: float = 0.0) -> Floats:
    """A column of numbers; empty cells are `missing`."""
    return np.array([float(r[name]) * scale if r[name] else missing for r in rows])
