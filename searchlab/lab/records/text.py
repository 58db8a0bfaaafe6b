"""Values as standard JSON: which values a record may hold, and how they are written.

Infinity and NaN are not JSON, so numbers that may be non-finite are written as text, which `float` reads back.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from searchlab.errors import RecordError

_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_SCALARS = frozenset({type(None), bool, int, str})
_sorting = json.JSONEncoder(separators=(",", ":"), allow_nan=False, sort_keys=True)


def dumps(value: Any) -> str:
    """Compact JSON in ASCII, on one line whatever its strings contain."""
    return _encoder.encode(value)


def digest(value: Any) -> str:
    """Sixteen hex digits that identify a JSON value, the same in every process."""
    return hashlib.blake2b(canonical(value).encode(), digest_size=8).hexdigest()


def canonical(value: Any) -> str:
    """The canonical text of a JSON value: compact, in ASCII, with sorted keys."""
    return _sorting.encode(value)


def loads(text: str | bytes) -> Any:
    """The value of a JSON text; raises ValueError for anything else, NaN and Infinity included."""
    try:
        return _decoder.decode(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def number(value: float) -> float | str:
    """A number as a JSON value."""
    return value if math.isfinite(value) else str(value)


def recordable(value: Any, where: str) -> Any:
    """The value as a record keeps it, equal to what is read back: lists are tuples, numpy's scalars Python's.

    What JSON has no form for is refused; `where` says whose value it is.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    # Common types are handled without a function call: this runs over every knob of every record.
    if kind is dict:
        return {
            k if type(k) is str else _name(k, where): v if type(v) in _SCALARS else recordable(v, where)
            for k, v in value.items()
        }
    if kind is list or kind is tuple:
        return tuple([v if type(v) in _SCALARS else recordable(v, where) for v in value])
    return _unusual(value, where)


def _unusual(value: Any, where: str) -> Any:
    """The same for what is seldom among knobs."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RecordError(f"{where}: {value} cannot be written as JSON; use text or leave it out")
        return float(value)
    if isinstance(value, list | tuple | Mapping):
        return recordable(dict(value) if isinstance(value, Mapping) else tuple(value), where)
    if hasattr(value, "tolist"):  # numpy's arrays and scalars, without importing numpy
        return recordable(value.tolist(), where)
    raise RecordError(f"{where}: {type(value).__name__} is not a JSON value")


def _name(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise RecordError(f"{where}: names must be text, not {key!r}")
    return str(key)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not standard JSON")


_decoder = json.JSONDecoder(parse_constant=_no_constant)
