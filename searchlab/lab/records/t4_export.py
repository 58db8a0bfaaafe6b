"""T4, the JSON format in which auto-tuners exchange results (Kernel Tuner, KTT, the FAIR benchmark hub).

Times are in milliseconds, as in all files of the hub.  T4 lacks fields for much of a record, so each result also holds
the whole record under "searchlab", from which our own files are read back exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from searchlab.errors import RecordError
from searchlab.lab.records.identity import version
from searchlab.lab.records.lines import decode, encode
from searchlab.lab.records.record import Record
from searchlab.lab.records.text import dumps
from searchlab.measure.recorded.t4_tables import Document, as_object, load, mapping

VERSION = "1.0.0"
_MS = 1e3
_INVALIDITY = {
    "ok": "correct", "build": "compile", "run": "runtime", "crash": "runtime", "oom": "runtime",
    "quarantined": "runtime", "timeout": "timeout", "wrong": "correctness", "constraints": "constraints",
}  # fmt: skip
_KNOWN = {"timestamp", "configuration", "times", "invalidity", "correctness", "measurements", "objectives", "searchlab"}
_FOREIGN = ("measurements", "objectives", "compilation_data")  # of results that came as T4
_TIMES = {"compilation", "compilation_time", "runtimes", "validation", "benchmark"}


# --- writing ----------------------------------------------------------------------------------------------------------


def write(records: Iterable[Record], file: TextIO) -> int:
    """Writes records as one T4 document, one result per line, and returns their number."""
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
            "compilation": compiled,  # the name that tools use
            "compilation_time": compiled,  # the name in the schema
            "runtimes": [t * _MS for t in record.times if math.isfinite(t * _MS)],
            # With it, the parts add up to the cost of trying the configuration, without waiting.
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
    """The records of a T4 file (`.gz` too); `task` names what was tuned, which T4 lacks; the file by default."""
    document = load(path)
    for number, result in enumerate(document.results, 1):
        try:
            ours = as_object(result).get("searchlab")
            known = isinstance(ours, dict)
            yield (
                decode(dumps(ours).encode())
                if known
                else _record(document, result, task or path.name.partition(".")[0])
            )
        except RecordError as e:
            raise RecordError(f"{path}: result {number}: {e}") from None


def _record(document: Document, result: dict[str, Any], task: str) -> Record:
    found, metadata = document.read(result), document.metadata
    median = document.seconds(found, "time")
    return Record(
        task=task,
        status=found.status,
        workload=task,
        label=task,
        cpu=str(metadata.get("device") or ""),
        toolchain=_toolchain(metadata),
        knobs=found.configuration,
        times=found.runs or (() if median is None else (median,)),
        build_s=found.build_s,
        check_s=found.check_s,
        run_s=found.run_s,
        timestamp=str(result.get("timestamp") or ""),
        extra={"t4": _rest(result)},
    )


def _rest(result: dict[str, Any]) -> dict[str, Any]:
    """The data that has no field in a record."""
    times = mapping(result.get("times"))
    found = {k: v for k, v in result.items() if k not in _KNOWN or k in ("measurements", "objectives")}
    return found | {"times": {k: v for k, v in times.items() if k not in _TIMES}}


def _toolchain(metadata: Mapping[str, Any]) -> dict[str, str]:
    wanted = ("autotuner", "autotuner_version", "compute_api", "platform")
    return {name: str(metadata[name]) for name in wanted if metadata.get(name)}
