"""One measurement with everything needed to judge, repeat or reuse it: a plain value, written as one line."""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from searchlab.errors import RecordError
from searchlab.lab.records import identity
from searchlab.lab.records.text import digest, number, recordable

if TYPE_CHECKING:
    from searchlab.measure.job import Job, Limits, Outcome, Status

# Failures due to the state of the machine, not to the candidate.
ENVIRONMENT = frozenset({"oom", "quarantined"})
_CLOCK_DIGITS = 9  # the clock's resolution is 1 ns; further digits would double the size of pulses in a file


@dataclass(frozen=True, slots=True)
class SearchPlace:
    """The place of a measurement in its search: the round, the time that a cost model had predicted, and whether it was
    a seed of the space.

    Records keep it as text among their notes.
    """

    round: int = 0
    predicted: float | None = None
    seed: bool = False

    @property
    def notes(self) -> dict[str, str]:
        """The place as notes of a record."""
        found = {"round": str(self.round)}
        if self.predicted is not None:
            found["predicted"] = repr(self.predicted)
        return {**found, "start": "seed"} if self.seed else found

    @classmethod
    def read(cls, notes: Mapping[str, Any]) -> SearchPlace:
        """The place from the notes of a record; the first round where they do not name one."""
        predicted = notes.get("predicted")
        guessed = None if predicted is None else float(predicted)
        return cls(int(notes.get("round", 0)), guessed, notes.get("start") == "seed")


@dataclass(frozen=True, slots=True)
class Record:
    """A measurement; times are seconds per run.

    `task` is the workload's key, `target` the machine's fingerprint, `program` the program's hash; `knobs` maps each
    knob of the space to its value; `seed` is that of the inputs; `job` is the measurer's job id, which is unique only
    within one run, whereas `id` is derived from the content.  `origin` is the file that a merge took it from, `extra`
    holds fields unknown to this version, so that rewriting a file loses nothing.  `pulses` are the clock probes of the
    outcome, to the nanosecond; records of earlier versions have none.
    """

    task: str
    status: str
    workload: str = ""
    label: str = ""
    target: str = ""
    cpu: str = ""
    threads: int = 0
    toolchain: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    space: str = ""
    space_version: str = ""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    program: str = ""
    times: tuple[float, ...] = ()
    number: int = 0
    error: str = ""
    build_s: float = 0.0
    check_s: float = 0.0
    run_s: float = 0.0
    queue_s: float = 0.0
    seed: int = 0
    cell: str = ""
    worker: str = ""
    cores: tuple[int, ...] = ()
    attempts: int = 1
    stopped_early: bool = False
    pulses: tuple[float, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    timestamp: str = ""
    job: str = ""
    origin: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""

    def __post_init__(self) -> None:
        for name, kind, read in _READERS:
            given = getattr(self, name)
            if type(given) is not kind:
                object.__setattr__(self, name, read(given, name))
        if clash := RESERVED.intersection(self.extra):
            raise RecordError(f"extra: '{min(clash)}' is the name of a field")
        if not self.id:
            object.__setattr__(self, "id", digest({n: v for n, v in self.values().items() if n != "origin"}))

    def __hash__(self) -> int:
        return hash(self.id)

    @classmethod
    def from_outcome(
        cls,
        job: Job,
        outcome: Outcome,
        *,
        space: str = "",
        space_version: str = "",
        knobs: Mapping[str, Any] | None = None,
        cell: str = "",
        timestamp: str = "",
    ) -> Record:
        """The record of a job's outcome; the space and its knobs are known to the caller only."""
        if job.id != outcome.id:
            raise RecordError(f"the outcome of job '{outcome.id}' does not belong to job '{job.id}'")
        shared = {name: getattr(outcome, name) for name in _OF_OUTCOME}
        shared["pulses"] = tuple(round(p, _CLOCK_DIGITS) for p in outcome.pulses)
        return cls(
            task=job.workload.key,
            workload=job.workload.spec,
            label=job.workload.label,
            target=identity.fingerprint(job.target),
            cpu=job.target.name,
            threads=job.target.threads,
            toolchain=identity.toolchain(job.target),
            protocol=asdict(job.protocol),
            limits=asdict(job.limits),
            space=space,
            space_version=space_version,
            knobs=knobs or {},
            program=identity.program_hash(job),
            seed=job.seed,
            cell=cell,
            timestamp=timestamp or now(),
            job=job.id,
            **shared,
        )

    def outcome(self, job_id: str = "") -> Outcome:
        """The recorded outcome, as the answer to another job that asks for the same measurement."""
        from searchlab.measure.job import Outcome

        shared = {name: getattr(self, name) for name in _OF_OUTCOME}
        shared["notes"] = {str(k): str(v) for k, v in self.notes.items()} | {"record": self.id}
        shared["status"] = cast("Status", self.status)
        return Outcome(id=job_id or self.job, **shared)

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def seconds(self) -> float:
        """The reported figure: the median repeat, infinite if there is none."""
        median = statistics.median(self.times) if self.ok and self.times else math.inf
        return median if math.isfinite(median) else math.inf

    @property
    def place(self) -> SearchPlace:
        """The place of the measurement in the search that asked for it."""
        return SearchPlace.read(self.notes)

    @property
    def key(self) -> str:
        """The reuse key: a later measurement with the same key can be answered by this record."""
        return identity.reuse_key(self.program, self.task, self.seed, self.target, self.toolchain, self.protocol)

    def reusable(self, limits: Limits | None = None, best_s: float | None = None) -> bool:
        """Whether this record may answer another job with the same key.

        A failure counts like a time unless the environment caused it (or `notes["environment"]` says so).  A timeout
        says nothing about longer limits, and a run that was stopped early nothing about a search whose best is slower.
        """
        waited = self.status == "timeout" and self.error.startswith("queue_s")
        if self.status in ENVIRONMENT or waited or "environment" in self.notes:
            return False
        if self.status == "timeout" and limits is not None:
            allowed = (self.limits.get("build_s"), self.limits.get("run_s"))
            wanted = (limits.build_s, limits.run_s)
            return all(isinstance(a, int | float) and w <= a for w, a in zip(wanted, allowed, strict=True))
        if self.stopped_early:
            factor = self.protocol.get("early_stop" if len(self.times) == 1 else "beaten")
            return best_s is not None and isinstance(factor, int | float) and self.seconds > factor * best_s
        return True

    def values(self) -> dict[str, Any]:
        """All fields but `id` as plain JSON data, with `extra` flattened."""
        found = {name: getattr(self, name) for name in _NAMES}
        for name in _FLOATS:
            found[name] = number(found[name])
        for name in ("times", "pulses"):
            if not all(map(math.isfinite, found[name])):
                found[name] = [number(t) for t in found[name]]
        for name in _OPTIONAL:
            if not found[name]:
                del found[name]
        found.update(self.extra)
        return found


def now() -> str:
    """The current time in the format of records: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


# --- reading fields ---------------------------------------------------------------------------------------------------


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise RecordError(f"{name}: expected text, got {type(value).__name__}")
    return str(value)


def _float(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise RecordError(f"{name}: expected a number, got {str(value)[:40]!r}") from None


def _int(value: Any, name: str) -> int:
    try:
        return int(operator.index(value))
    except TypeError:
        raise RecordError(f"{name}: expected an integer, got {str(value)[:40]!r}") from None


def _bool(value: Any, name: str) -> bool:
    raise RecordError(f"{name}: expected true or false, got {str(value)[:40]!r}")


def _floats(value: Any, name: str) -> tuple[float, ...]:
    return tuple([v if type(v) is float else _float(v, name) for v in _sequence(value, name)])


def _ints(value: Any, name: str) -> tuple[int, ...]:
    return tuple([v if type(v) is int else _int(v, name) for v in _sequence(value, name)])


def _sequence(value: Any, name: str) -> Any:
    if type(value) not in (list, tuple) and (isinstance(value, str | Mapping) or not hasattr(value, "__iter__")):
        raise RecordError(f"{name}: expected a list, got {type(value).__name__}")
    return value


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if type(value) is not dict and not isinstance(value, Mapping):
        raise RecordError(f"{name}: expected names with values, got {type(value).__name__}")
    found: dict[str, Any] = recordable(value, name)
    return found


# The type that needs no conversion, and the converter of all others; lists and mappings are always converted.
_KINDS: dict[str, tuple[type | None, Any]] = {
    "str": (str, _text),
    "int": (int, _int),
    "float": (float, _float),
    "bool": (bool, _bool),
    "tuple[float, ...]": (None, _floats),
    "tuple[int, ...]": (None, _ints),
    "Mapping[str, Any]": (None, _mapping),
}
_READERS = tuple((f.name, *_KINDS[str(f.type)]) for f in fields(Record))
_FLOATS = tuple(f.name for f in fields(Record) if f.type == "float")
_NAMES = tuple(f.name for f in fields(Record) if f.name not in ("id", "extra"))
FIELDS = frozenset({*_NAMES, "id"})
# Derived values written beside the fields, for readers that do not compute them: see lines.py.
DERIVED = frozenset({"schema", "key", "seconds", "crc"})
RESERVED = FIELDS | DERIVED
_OF_OUTCOME = (
    "status", "times", "error", "number", "build_s", "check_s", "run_s", "queue_s", "worker", "cores", "attempts",
    "stopped_early", "pulses", "notes",
)  # fmt: skip
# Left out if empty, so that the ids of records that never had them stay the same.
_OPTIONAL = ("origin", "pulses")
