"""The index entry of a line without a valid checksum: one that was edited or written by another tool.

Parsing such a line into a record takes fifty microseconds.  Most of them still have the usual form: our fields in our
order, strings without escapes, mappings of plain values.  For these, one regular expression checks what the record
parser would check, and extracts the needed fields.  Any other line is left to that parser (`lines.decode`), so that
both always agree.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields
from functools import lru_cache
from hashlib import blake2b

from searchlab.lab.records.lines import SCHEMA
from searchlab.lab.records.record import Record
from searchlab.lab.records.text import canonical, loads

_CONTROLS = bytes([*range(32), ord("\\")])  # strings with any of these are left to the parser
_TEXT = '"[^"]*+"'
_WHOLE = r"(?:0|-?[1-9]\d{0,17}+)"
_NUMBER = r"(?:0|-?[1-9]\d{0,17}+|-?0(?=\.))(?:\.\d{1,30}+)?+(?:[eE][-+]?\d{1,2}+)?+"  # none that overflows a float


def _listed(item: str) -> str:
    return rf"(?:{item}(?:, ?{item})*+)?+"


_SCALAR = f"(?:{_TEXT}|{_NUMBER}|true|false|null)"
_VALUE = rf"(?:{_SCALAR}|\[{_listed(_SCALAR)}\])"
_KINDS = {
    "str": _TEXT,
    "int": _WHOLE,
    "float": _NUMBER,
    "bool": "(?:true|false)",
    "tuple[float, ...]": rf"\[{_listed(_NUMBER)}\]",
    "tuple[int, ...]": rf"\[{_listed(_WHOLE)}\]",
    "Mapping[str, Any]": rf"\{{{_listed(f'{_TEXT}: ?{_VALUE}')}\}}",
}
_SHARED = (
    "toolchain",
    "protocol",
    "limits",
    "notes",
)  # identical in most lines of a file, so their values are cached
_FOUND = ("task", "status", "program", "seed", "target", "times", *_SHARED)
_FIRST = ("id", "key", "task", "status", "seconds")


def _field(name: str, kind: str) -> str:
    pattern = r"\{[^}]*+\}" if name in _SHARED else _KINDS[kind]
    return f'"{name}": ?' + (f"(?P<{name}>{pattern})" if name in _FOUND else pattern)


def _pattern() -> re.Pattern[bytes]:
    kinds = {f.name: str(f.type) for f in fields(Record) if f.name != "extra"}
    first = [_field(name, kinds.get(name, "str")) for name in _FIRST if name != "seconds"]
    needed = [rf", ?{text}" if f"<{name}>" in text else f"(?:, ?{text})?+" for name, text in zip(_FIRST, first)]
    rest = [f"(?:, ?{_field(name, kind)})?+" for name, kind in kinds.items() if name not in _FIRST]
    parts = [rf'\{{"schema": ?{SCHEMA}', *needed, f'(?:, ?"seconds": ?(?:null|{_NUMBER}))?+', *rest]
    return re.compile("".join([*parts, rf'(?:, ?"crc": ?{_TEXT})?+\}}']).encode())


_match = _pattern().fullmatch


def entry(line: bytes) -> tuple[bytes, bytes, bytes, float] | None:
    """Key, task, status and seconds of the record in a line; None if the line has to be parsed."""
    text = line.rstrip(b"\r\n")
    if not text.isascii() or len(text.translate(None, _CONTROLS)) != len(text) or (found := _match(text)) is None:
        return None
    task, status, program, seed, target, times, tools, protocol, limits, notes = found.group(*_FOUND)
    made_with, timed_by = _written(tools), _written(protocol)
    if made_with is None or timed_by is None or _written(limits) is None or _written(notes) is None:
        return None
    parts = (program or b'""', task, seed or b"0", target or b'""', made_with, timed_by)
    key = blake2b(b"[%b,%b,%b,%b,%b,%b]" % parts, digest_size=8).hexdigest().encode()  # see identity.reuse_key
    seconds = _median(times) if status == b'"ok"' and times is not None else math.inf
    return key, task[1:-1], status[1:-1], seconds


def _median(times: bytes) -> float:
    """The reported figure of a list of times, see `Record.seconds`."""
    if times == b"[]":
        return math.inf
    numbers = sorted(map(float, times[1:-1].split(b",")))
    middle, odd = divmod(len(numbers), 2)
    median = numbers[middle] if odd else (numbers[middle - 1] + numbers[middle]) / 2
    return median if math.isfinite(median) else math.inf


_plain = re.compile(_KINDS["Mapping[str, Any]"].encode()).fullmatch


@lru_cache(maxsize=4096)
def _written(text: bytes | None) -> bytes | None:
    """A mapping in the form that record keys use; None if the line has to be parsed."""
    if text is None:
        return b"{}"
    return canonical(loads(text)).encode() if _plain(text) else None
