"""A record and its line: what is kept, what is refused, what identifies it."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import searchlab as sl
from searchlab.errors import RecordError
from searchlab.lab.records import SCHEMA, Record, converter, decode, encode, job_key, lines, toolchain
from searchlab.lab.records.lines import SchemaError, head
from searchlab.measure import FAILURES, Job, Limits, Outcome, Protocol

TEXT = st.text(max_size=12)
NAMES = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
MAPPING = st.dictionaries(NAMES, JSON, max_size=3)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    # bytes of no encoding, as Python keeps them in texts; of the other surrogates JSON makes pairs
    "str": TEXT | st.text(st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF), max_size=4),
    "int": st.integers(-(2**70), 2**70),
    "float": st.floats(),
    "bool": st.booleans(),
    "tuple[float, ...]": st.lists(st.floats(), max_size=4),
    "tuple[int, ...]": st.lists(st.integers(), max_size=3),
    "Mapping[str, Any]": MAPPING,
}
FIELDS = {f.name: KINDS[str(f.type)] for f in dataclasses.fields(Record) if f.name != "extra"}
EXTRA = MAPPING.map(lambda extra: {f"x{name}": value for name, value in extra.items()})
RECORDS = st.builds(Record, **FIELDS, extra=EXTRA)


def make_job(**changes: Any) -> Job:
    workload = sl.workload("matmul", m=16, n=16, k=16)
    return Job(**{"id": "7", "workload": workload, "target": sl.detect(), "program": workload.program, **changes})


def test_an_outcome_becomes_a_record_and_an_outcome_again() -> None:
    job = make_job(seed=3)
    outcome = Outcome(
        "7", "ok", (1e-3, 3e-3, 2e-3), number=4, build_s=0.1, check_s=0.2, run_s=0.3, queue_s=0.4, worker="w",
        cores=(1,), attempts=2, notes={"why": "not"}, pulses=(50.1e-6, 49.9e-6, 53e-6),
    )  # fmt: skip
    record = Record.from_outcome(job, outcome, space="sketch", space_version="2", knobs={"tile": (4, 8)}, cell="c1")
    assert (record.task, record.workload, record.label) == (job.workload.key, job.workload.spec, job.workload.label)
    assert (record.program, record.target, record.seed) == (job.program.hash, job.target.fingerprint(), 3)  # type: ignore[union-attr]
    assert (record.seconds, record.ok, record.cell, record.knobs) == (2e-3, True, "c1", {"tile": (4, 8)})
    assert set(record.toolchain) == {"searchlab", "codegen", "llvm", "llvmlite", "numpy"}
    assert record.protocol == dataclasses.asdict(Protocol()) and record.limits == dataclasses.asdict(Limits())
    assert record.timestamp.endswith("+00:00")
    again = decode(encode(record)).outcome("other")
    assert again == dataclasses.replace(outcome, id="other", notes={"why": "not", "record": record.id})
    with pytest.raises(RecordError, match="'8' does not belong to job '7'"):
        Record.from_outcome(job, dataclasses.replace(outcome, id="8"))


def test_pulses_are_kept_as_far_as_the_clock_tells() -> None:
    outcome = Outcome("7", "ok", (1e-3,) * 15, pulses=(5.012900005537085e-05,) * 15)
    record = Record.from_outcome(make_job(), outcome)
    assert decode(encode(record)).outcome().pulses == (5.0129e-05,) * 15
    without = dataclasses.replace(record, pulses=())
    assert len(encode(record)) - len(encode(without)) < 15 * 12


def test_records_without_pulses_are_as_they_were() -> None:
    line = encode(Record(task="t", status="ok", times=(1e-3,)))
    assert b"pulses" not in line
    assert decode(line).outcome().pulses == ()
    assert decode(line).id == "344781106506f6a6"


def test_a_job_that_was_built_elsewhere_has_the_same_key() -> None:
    from searchlab.backend import build

    job = make_job()
    assert job.program is not None
    built = make_job(program=None, artifact=build(job.program))
    assert job_key(job) == job_key(built) == Record.from_outcome(built, Outcome("7", "build")).key


@settings(max_examples=40, deadline=None)
@given(RECORDS)
def test_every_record_survives_its_line(record: Record) -> None:
    line = encode(record)
    assert line.endswith(b"\n") and line.count(b"\n") == 1 and line.isascii()
    again = decode(line)
    assert repr(again) == repr(record)  # NaN is equal to nothing
    assert encode(again) == line and again.id == record.id and again.key == record.key and hash(again) == hash(record)


@settings(max_examples=40, deadline=None)
@given(RECORDS)
def test_lines_are_standard_json(record: Record) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    data = json.loads(encode(record), parse_constant=refuse)
    assert data["schema"] == SCHEMA and data["id"] == record.id
    assert data["seconds"] == (record.seconds if math.isfinite(record.seconds) else None)


@settings(max_examples=40, deadline=None)
@given(RECORDS)
def test_heads_agree_with_whole_lines(record: Record) -> None:
    line = encode(record)
    found = head(line)
    if found is None:  # texts with escapes are read the long way
        assert b"\\" in line or '"' in record.id
    else:
        id_, key, task, status, seconds = (value.decode() for value in found)
        assert (id_, key, task, status) == (record.id, record.key, record.task, record.status)
        assert (math.inf if seconds == "null" else float(seconds)) == record.seconds


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_changed_line_is_not_read_by_its_head(data: st.DataObject) -> None:
    line = bytearray(encode(Record("matmul-1", "ok", times=(1.0, 2.0), knobs={"a": 1})))
    position = data.draw(st.integers(0, len(line) - 2))
    line[position] ^= data.draw(st.integers(1, 255))
    assert head(bytes(line)) is None or position >= len(line) - 11  # within the checksum, upper case is the same


def test_ids_name_the_content() -> None:
    record = Record("t", "ok", times=(1.0,))
    assert record.id == Record("t", "ok", times=[1.0]).id  # type: ignore[arg-type]
    assert record.id != Record("t", "ok", times=(1.1,)).id
    assert record.id == dataclasses.replace(record, id="", origin="elsewhere.jsonl").id


def test_values_of_numpy_are_taken() -> None:
    knobs = {"i": np.int64(4), "tile": np.array([1, 2]), "f": np.float32(0.5)}
    record = Record("t", "ok", times=tuple(np.array([1.0, 2.0])), seed=np.int32(2), knobs=knobs)  # type: ignore[arg-type]
    assert record.knobs == {"i": 4, "tile": (1, 2), "f": 0.5} and decode(encode(record)) == record


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": 3}, "task: expected text, got int"),
        ({"times": "1.0"}, "times: expected a list, got str"),
        ({"times": ["x"]}, "times: expected a number, got 'x'"),
        ({"number": 1.5}, "number: expected an integer, got '1.5'"),
        ({"stopped_early": 1}, "stopped_early: expected true or false"),
        ({"knobs": [1]}, "knobs: expected names with values"),
        ({"knobs": {1: 2}}, "knobs: names must be text, not 1"),
        ({"knobs": {"a": math.nan}}, "knobs: nan cannot be written as JSON"),
        ({"knobs": {"a": [object()]}}, "knobs: object is not a JSON value"),
        ({"extra": {"times": 1}}, "extra: 'times' is the name of a field"),
    ],
)
def test_what_cannot_be_written_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        Record(**{"task": "t", "status": "ok", **changes})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"nonsense", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "nested too deeply|not JSON"),
        (b'{"schema":1,"task":"t","status":"ok","x":%b}' % (b"[" * 900 + b"]" * 900), "nested too deeply"),
        (b"[1]", "no schema version"),
        (b"{}", "no schema version"),
        (b'{"schema":1,"task":"t"}', "task or status is missing"),
        (b'{"schema":1,"task":"t","status":"ok","build_s":NaN}', "NaN is not standard JSON"),
        (b'{"schema":1,"task":"t","status":"ok","times":1}', "times: expected a list"),
        (b'{"schema":-1,"task":"t","status":"ok"}', "schema -1 is too old"),
    ],
)
def test_broken_lines_say_what_is_wrong(line: bytes, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        decode(line)


def test_lines_by_others_are_read() -> None:
    record = decode(b'  { "status" : "ok", "times": ["inf", 2], "new": [1], "task":"t", "schema":1, "seconds": 7 }\r\n')
    assert (record.task, record.times, record.extra) == ("t", (math.inf, 2.0), {"new": (1,)})
    assert json.loads(encode(record))["new"] == [1]


def test_newer_schemas_are_refused_and_older_ones_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SchemaError, match=f"schema 99 is newer than {SCHEMA}"):
        decode(b'{"schema":99}')
    with pytest.raises(RecordError, match="schema 0 is too old"):
        decode(b'{"schema":0,"name":"t","status":"ok"}')
    monkeypatch.setattr(lines, "_converters", {})
    converter(0)(lambda data: {"task": data.pop("name"), **data})
    assert decode(b'{"schema":0,"name":"t","status":"ok"}').task == "t"
    with pytest.raises(RecordError, match="one for each"):
        converter(0)(lambda data: data)


def test_keys_differ_in_everything_that_matters() -> None:
    job = make_job()
    other = sl.workload("matmul", m=16, n=16, k=32)
    jobs = [
        job,
        make_job(seed=1),
        make_job(protocol=Protocol(repeats=6)),
        make_job(target=dataclasses.replace(sl.detect(), l1=1)),
        make_job(workload=other),
        make_job(program=other.program),
    ]
    keys = [job_key(j) for j in jobs]
    assert len(set(keys)) == len(keys)
    assert job_key(make_job(id="8", limits=Limits(run_s=1.0), best_s=1.0)) == keys[0]
    record = Record.from_outcome(job, Outcome("7", "ok", (1.0,)))
    assert record.key == keys[0]
    changed = dataclasses.replace(record, toolchain={**toolchain(), "llvm": "1"})
    assert changed.key != record.key


@pytest.mark.parametrize("status", ["ok", *FAILURES])
def test_failures_are_reusable_unless_the_environment_caused_them(status: str) -> None:
    record = Record("t", status, times=(1.0,) if status == "ok" else ())
    assert record.reusable() == (status not in ("oom", "quarantined"))
    assert not dataclasses.replace(record, notes={"environment": "host went down"}).reusable()


def test_limits_and_early_stops_bound_reuse() -> None:
    limits = dataclasses.asdict(Limits(build_s=5.0, run_s=2.0))
    late = Record("t", "timeout", error="run_s: killed after 2 s", limits=limits)
    assert late.reusable() and late.reusable(Limits(build_s=5.0, run_s=2.0)) and late.reusable(Limits(1.0, 1.0))
    assert not late.reusable(Limits(build_s=5.0, run_s=3.0)) and not late.reusable(Limits(6.0, 2.0))
    assert not Record("t", "timeout").reusable(Limits())
    assert not dataclasses.replace(late, error="queue_s: waited for 9 s").reusable()
    slow = Record("t", "ok", times=(10.0,), stopped_early=True, protocol={"early_stop": 5.0})
    assert slow.reusable(best_s=1.9) and not slow.reusable(best_s=2.1) and not slow.reusable()
