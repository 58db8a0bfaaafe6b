"""A record as a line: the fields that queries need come first, a checksum last.

A line with a matching checksum is as `encode` wrote it, so its head can be trusted without parsing the rest; all other
lines (edited by hand, written by other tools, of older schemas, damaged) are parsed completely.
"""

from __future__ import annotations

import math
import re
from binascii import crc32
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from searchlab.errors import RecordError
from searchlab.lab.records.record import DERIVED, FIELDS, Record
from searchlab.lab.records.text import dumps, loads

SCHEMA = 1
START = b'{"schema":'  # the start of every line of ours; a torn one may be shorter
Converter = Callable[[dict[str, Any]], dict[str, Any]]

_HEAD = re.compile(
    rb'\{"schema":%d,"id":"([^"\\]*)","key":"([0-9a-f]{16})","task":"([^"\\]*)","status":"([^"\\]*)",'
    rb'"seconds":(null|[^,]+),' % SCHEMA
)
_CRC = b',"crc":"'
_TAIL = len(_CRC) + len('01234567"}\n')
_converters: dict[int, Converter] = {}


class SchemaError(RecordError):
    """A line was written by a newer searchlab."""


def converter(version: int) -> Callable[[Converter], Converter]:
    """Registers a function that converts lines of an older schema to the next one."""

    def register(function: Converter) -> Converter:
        if not 0 <= version < SCHEMA or version in _converters:
            raise RecordError(f"converters are for schemas 0 to {SCHEMA - 1}, one for each, not for {version}")
        _converters[version] = function
        return function

    return register


def encode(record: Record) -> bytes:
    """The line of a record, including its terminator."""
    seconds = record.seconds
    head = {
        "schema": SCHEMA,
        "id": record.id,
        "key": record.key,
        "task": record.task,
        "status": record.status,
        "seconds": seconds if math.isfinite(seconds) else None,
    }
    return _sealed(dumps(head | record.values())[:-1].encode("ascii"))


def stamped(line: bytes, origin: str) -> bytes:
    """A line of ours with the file it came from as its origin, unless it has one already."""
    if b'"origin":' in line:  # inside a string the quotes would be escaped; it may be the name of a knob, though
        record = decode(line)
        return line if record.origin else encode(replace(record, origin=origin))
    return _sealed(line[:-_TAIL] + b',"origin":' + dumps(origin).encode("ascii"))


def _sealed(text: bytes) -> bytes:
    return b'%b%b%08x"}\n' % (text, _CRC, crc32(text))


def head(line: bytes) -> tuple[bytes, ...] | None:
    """id, key, task, status and seconds of a line as `encode` wrote it, else None.

    The values are raw bytes: this runs a million times while a large file is opened.
    """
    found = _HEAD.match(line)
    if found is None or line[-_TAIL:-11] != _CRC:
        return None
    try:
        return found.groups() if int(line[-11:-3], 16) == crc32(line[:-_TAIL]) else None
    except ValueError:
        return None


def decode(line: bytes) -> Record:
    """The record of a line of any known schema; RecordError if it has none."""
    try:
        data = loads(line)
    except (ValueError, UnicodeDecodeError) as e:
        raise RecordError(f"not JSON ({e})") from None
    if not isinstance(data, dict) or not isinstance(version := data.get("schema"), int):
        raise RecordError("not a record: no schema version")
    if version > SCHEMA:
        raise SchemaError(
            f"schema {version} is newer than {SCHEMA}, the newest that this searchlab reads; a newer searchlab reads it"
        )
    for old in range(version, SCHEMA):
        if old not in _converters:
            raise RecordError(f"schema {old} is too old: there is no converter for it")
        data = _converters[old](data)
    if "task" not in data or "status" not in data:
        raise RecordError("not a record: task or status is missing")
    known = {name: value for name, value in data.items() if name in FIELDS}
    extra = {name: value for name, value in data.items() if name not in FIELDS and name not in DERIVED}
    try:
        return Record(**known, extra=extra)
    except RecursionError:
        raise RecordError("nested too deeply") from None
