"""T4, the JSON format in which auto-tuners exchange results (Kernel Tuner, KTT, the FAIR benchmark hub).

Times are in milliseconds, as all files of the hub have them.  T4 has no place for much of a record, so each result also
carries it whole under "searchlab"; a file that comes back is read from there, exactly.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from searchlab.errors import RecordError
from searchlab.lab.records.identity import version
from searchlab.lab.records.lines import decode, encode
from searchlab.lab.records.record import Record
from searchlab.lab.records.text import dumps

VERSION = "1.0.0"
_MS = 1e3
_INVALIDITY = {
    "ok": "correct", "build": "compile", "run": "runtime", "crash": "runtime", "oom": "runtime",
    "quarantined": "runtime", "timeout": "timeout", "wrong": "correctness", "constraints": "constraints",
}  # fmt: skip
_STATUS = {
    "correct": "ok", "compile": "build", "runtime": "run", "timeout": "timeout", "correctness": "wrong",
    "constraints": "constraints",
}  # fmt: skip
_UNITS = {"nano": 1e-9, "micro": 1e-6, "mil": 1e-3, "sec": 1.0}  # by how they begin: the hub writes "miliseconds"
_KNOWN = {"timestamp", "configuration", "times", "invalidity", "correctness", "measurements", "objectives", "searchlab"}
_FOREIGN = ("measurements", "objectives", "compilation_data")  # of results that came as T4
_TIMES = {"compilation", "compilation_time", "runtimes", "validation", "benchmark"}


# --- writing ----------------------------------------------------------------------------------------------------------


def write(records: Iterable[Record], file: TextIO) -> int:
    """Writes records as one T4 document, a result per line, and returns how many."""
    count, first, cpus = 0, "", set()
    file.write('{"results":[')
    for record in records:
        file.write(",\n" if count else "\n")
        file.write(dumps(result_of(record)))
        count += 1
        first = first or record.timestamp
        cpus.add(record.cpu)
    file.write(f'\n],"metadata":{dumps(_metadata(first, cpus))},"schema_version":"{VERSION}"}}\n')
    return count


def result_of(record: Record) -> dict[str, Any]:
    """A record as an entry of T4's results."""
    median = record.seconds * _MS
    compiled = _finite(record.build_s * _MS)
    found: dict[str, Any] = {
        "timestamp": record.timestamp,
        "configuration": record.knobs,
        "times": {
            "compilation": compiled,  # what the tools write
            "compilation_time": compiled,  # what the schema says
            "runtimes": [t * _MS for t in record.times if math.isfinite(t * _MS)],
            # With it, the parts add up to what trying the configuration took; waiting is no part of that.
            "framework": _finite(max(0.0, record.run_s - sum(record.times)) * _MS),
            "search_algorithm": 0.0,
            "validation": _finite(record.check_s * _MS),
        },
        "invalidity": _INVALIDITY.get(record.status, "runtime"),
        "correctness": int(record.ok),
        "measurements": [{"name": "time", "value": median, "unit": "ms"}] if math.isfinite(median) else [],
        "objectives": ["time"],
        "searchlab": json.loads(encode(record)),
    }
    foreign = record.extra.get("t4")
    return found | {k: v for k, v in foreign.items() if k in _FOREIGN} if isinstance(foreign, dict) else found


def _metadata(timestamp: str, cpus: set[str]) -> dict[str, str]:
    found = {"autotuner": "searchlab", "autotuner_version": version("searchlab"), "timeunit": "milliseconds"}
    if len(cpus) == 1:
        found["device"] = cpus.pop()
    return found | ({"timestamp": timestamp} if timestamp else {})


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


# --- reading ----------------------------------------------------------------------------------------------------------


def read(path: Path, task: str = "") -> Iterator[Record]:
    """The records of a T4 file (`.gz` too); `task` names what was tuned, which T4 does not say: the file by default."""
    data = _load(path)
    metadata = data.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    scale = _scale(str(metadata.get("timeunit") or "milliseconds"), path)
    for number, result in enumerate(data["results"], 1):
        try:
            yield _record(result, task or path.name.partition(".")[0], metadata, scale)
        except RecordError as e:
            raise RecordError(f"{path}: result {number}: {e}") from None


def _load(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if path.suffix == ".gz" else raw
        # Tools write NaN for what failed, which is no JSON but no reason to refuse the rest.
        data = json.loads(text, parse_constant=lambda _: None)
    except OSError as e:
        raise RecordError(f"{path}: cannot read: {e.strerror or e}") from e
    except (ValueError, EOFError) as e:
        raise RecordError(f"{path}: not JSON ({e})") from None
    if not isinstance(data, dict) or not isinstance(data.get("results"), list):
        raise RecordError(f'{path}: not a T4 file: it has no "results"')
    return data


def _record(result: Any, task: str, metadata: dict[str, Any], scale: float) -> Record:
    if not isinstance(result, dict):
        raise RecordError("expected an object")
    if isinstance(ours := result.get("searchlab"), dict):
        return decode(dumps(ours).encode())
    status = _STATUS.get(str(result.get("invalidity")))
    if status is None:
        raise RecordError(f"invalidity is {result.get('invalidity')!r}; known: {', '.join(_STATUS)}")
    if status == "ok" and result.get("correctness") == 0:
        status = "wrong"
    times = result.get("times")
    times = times if isinstance(times, dict) else {}
    return Record(
        task=task,
        status=status,
        workload=task,
        label=task,
        cpu=str(metadata.get("device") or ""),
        toolchain=_toolchain(metadata),
        knobs=result.get("configuration") or {},
        times=tuple(t * scale for t in _runtimes(result, times)),
        build_s=_number(times.get("compilation", times.get("compilation_time"))) * scale,
        check_s=_number(times.get("validation")) * scale,
        run_s=_number(times.get("benchmark")) * scale,
        timestamp=str(result.get("timestamp") or ""),
        extra={"t4": _rest(result, times)},
    )


def _runtimes(result: dict[str, Any], times: dict[str, Any]) -> list[float]:
    runs = times.get("runtimes")
    found = [float(t) for t in runs if _is_number(t)] if isinstance(runs, list) else []
    if found:
        return found
    measured = [m for m in result.get("measurements") or [] if isinstance(m, dict) and m.get("name") == "time"]
    return [float(m["value"]) for m in measured if _is_number(m.get("value"))]


def _rest(result: dict[str, Any], times: dict[str, Any]) -> dict[str, Any]:
    """What has no field in a record."""
    found = {k: v for k, v in result.items() if k not in _KNOWN or k in ("measurements", "objectives")}
    return found | {"times": {k: v for k, v in times.items() if k not in _TIMES}}


def _toolchain(metadata: dict[str, Any]) -> dict[str, str]:
    wanted = ("autotuner", "autotuner_version", "compute_api", "platform")
    return {name: str(metadata[name]) for name in wanted if metadata.get(name)}


def _scale(unit: str, path: Path) -> float:
    for start, scale in _UNITS.items():
        if unit.lower().startswith(start):
            return scale
    raise RecordError(f"{path}: unknown time unit '{unit}'; known: nanoseconds, microseconds, milliseconds, seconds")


def _number(value: Any) -> float:
    return float(value) if _is_number(value) else 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
