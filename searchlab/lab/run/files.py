"""Files that are whole or not there: written beside their place, then moved into it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def replace_text(path: Path, text: str, sync: bool = True) -> None:
    """Puts a text in the place of a file; whoever reads it finds the old text or the new one, never a part.

    With `sync` the new text survives a loss of power once this returns.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    if sync:
        _sync_folder(path.parent)


def replace_json(path: Path, value: Any, sync: bool = True) -> None:
    """The same with a value; infinite numbers are refused, since JSON has none."""
    replace_text(path, json.dumps(value, allow_nan=False, ensure_ascii=False) + "\n", sync)


def read_json(path: Path) -> Any:
    """The value in a file, or None where there is no file or it holds no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def read_text(path: Path) -> str:
    """The text of a file, nothing where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
