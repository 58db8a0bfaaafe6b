"""Text and JSON files of a run folder, replaced as a whole and validated when they are read."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from searchlab import jsonfile
from searchlab.errors import ConfigError
from searchlab.lab.folder.file_forms import FileForm
from searchlab.wholefile import replace_file

_log = logging.getLogger(__name__)


def replace_text(path: Path, text: str, sync: bool = True) -> None:
    """Replaces the text of a file atomically; readers see either the old text or the new one.

    With `sync` the new text survives a power failure once this returns.
    """
    replace_file(path, lambda file: file.write(text.encode("utf-8")), sync)


def replace_json(path: Path, value: Any, sync: bool = True) -> None:
    """Replaces a file by a value as JSON; infinite numbers are refused, since JSON has none."""
    replace_text(path, json.dumps(value, allow_nan=False, ensure_ascii=False) + "\n", sync)


def read_json(path: Path, form: type[FileForm], remedy: str) -> dict[str, Any] | None:
    """The object in a file, None if there is no file; a damaged one is refused with the `remedy`."""
    return jsonfile.read(path, form, ConfigError, remedy)


def known_json(path: Path, form: type[FileForm], remedy: str) -> dict[str, Any] | None:
    """Like `read_json`, for a file that can be regenerated: a damaged one causes a warning and counts as missing."""
    try:
        return read_json(path, form, remedy)
    except ConfigError as e:
        _log.warning("%s", e)
        return None


def read_text(path: Path, remedy: str) -> str:
    """The text of a file; empty if it is missing, or damaged, which causes a warning."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except OSError as e:
        _log.warning("%s cannot be read: %s; %s", path, e.strerror or e, remedy)
    except UnicodeDecodeError as e:
        _log.warning("%s is damaged: byte %d is not UTF-8; %s", path, e.start, remedy)
    return ""
