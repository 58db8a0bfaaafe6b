"""Reading T4, the JSON format in which auto-tuners exchange results (Kernel Tuner, KTT, the FAIR benchmark hub).

Results become plain values in seconds, from which tables of recorded spaces and records are made.
"""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchlab.errors import RecordError
from searchlab.measure.job import Status

STATUS: dict[str, Status] = {
    "correct": "ok", "compile": "build", "runtime": "run", "timeout": "timeout", "correctness": "wrong",
    "constraints": "constraints",
}  # fmt: skip
_SHORT = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_LONG = {"sec": 1.0, "mil": 1e-3, "micro": 1e-6, "nano": 1e-9}  # by prefix, since the hub writes "miliseconds"


@dataclass(frozen=True)
class T4Result:
    """One configuration: its status and the durations of its phases; `measured` maps names to values and units."""

    configuration: Mapping[str, Any]
    status: Status
    runs: tuple[float, ...]
    build_s: float
    check_s: float
    run_s: float
    overhead_s: float
    measured: Mapping[str, tuple[float, str]]


@dataclass(frozen=True)
class Document:
    """A file: its metadata, its unit of time in seconds, and its unparsed results."""

    metadata: Mapping[str, Any]
    unit_s: float
    results: list[Any]

    def read(self, result: Any) -> T4Result:
        """A result in seconds; values that are not numbers count as missing."""
        given = as_object(result)
        status = STATUS.get(str(given.get("invalidity")))
        if status is None:
            raise RecordError(f"invalidity is {given.get('invalidity')!r}; known: {', '.join(STATUS)}")
        if status == "ok" and given.get("correctness") == 0:
            status = "wrong"
        times = mapping(given.get("times"))
        runs = times.get("runtimes")
        return T4Result(
            given.get("configuration") or {},
            status,
            tuple(t * self.unit_s for t in runs if _is_number(t)) if isinstance(runs, list) else (),
            _number(times.get("compilation", times.get("compilation_time"))) * self.unit_s,
            _number(times.get("validation")) * self.unit_s,
            _number(times.get("benchmark")) * self.unit_s,
            _number(times.get("framework")) * self.unit_s,
            _measured(given.get("measurements")),
        )

    def seconds(self, result: T4Result, name: str) -> float | None:
        """A measured value in seconds; None if it is missing or its unit is not a unit of time."""
        value, unit = result.measured.get(name, (None, ""))
        scale = unit_of(unit) if unit else self.unit_s if name.startswith("time") else None
        return None if value is None or scale is None else value * scale


def load(path: Path) -> Document:
    """A T4 file; `.gz` and `.xz` are unpacked."""
    try:
        # Tools write NaN for failures, which is not JSON but is accepted by the parser.
        data = parsed(path, parse_constant=lambda _: None)
    except OSError as e:
        raise RecordError(f"{path}: cannot read: {e.strerror or e}") from e
    except ValueError as e:
        raise RecordError(f"{path}: not JSON ({e})") from None
    if not isinstance(data, dict) or not isinstance(data.get("results"), list):
        raise RecordError(f'{path}: not a T4 file: it has no "results"')
    metadata = mapping(data.get("metadata"))
    name = str(metadata.get("timeunit") or "milliseconds")
    unit = unit_of(name)
    if unit is None:
        raise RecordError(
            f"{path}: unknown time unit '{name}'; known: nanoseconds, microseconds, milliseconds, seconds"
        )
    return Document(metadata, unit, data["results"])


def parsed(path: Path, **options: Any) -> Any:
    """The JSON value in a file, compressed or not; ValueError if there is none."""
    try:
        return json.loads(unpacked(path), **options)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def unpacked(path: Path) -> bytes:
    """The content of a file, compressed or not; ValueError if it cannot be unpacked."""
    raw = path.read_bytes()
    try:
        return lzma.decompress(raw) if path.suffix == ".xz" else gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError) as e:
        raise ValueError(f"it cannot be unpacked: {e}") from None


def as_object(result: Any) -> dict[str, Any]:
    """The value, if it is a JSON object."""
    if not isinstance(result, dict):
        raise RecordError("expected an object")
    return result


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def unit_of(name: str) -> float | None:
    """The seconds in a unit of time; None for other units."""
    text = name.lower()
    return _SHORT.get(text) or next((scale for start, scale in _LONG.items() if text.startswith(start)), None)


def _measured(measurements: Any) -> dict[str, tuple[float, str]]:
    given = [m for m in measurements or [] if isinstance(m, dict) and _is_number(m.get("value"))]
    return {str(m.get("name")): (float(m["value"]), str(m.get("unit") or "")) for m in given}


def _number(value: Any) -> float:
    return float(value) if _is_number(value) else 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
