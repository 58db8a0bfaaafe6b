"""T4 and CSV: what goes out comes back, and files of others are read."""

import dataclasses
import gzip
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.errors import RecordError
from searchlab.lab.records import Record, csv_export, t4_export
from searchlab.measure.job import FAILURES

TEXT = st.text(max_size=8) | st.sampled_from(
    ["", "1", "true", "null", '"', "a,b", "\r\n", "NaN", "[1]", "\ud800", "\0"]
)
VALUE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = VALUE | st.lists(VALUE, max_size=3)
MAPPING = st.dictionaries(TEXT, JSON, max_size=3)
RECORDS = st.builds(
    Record,
    task=TEXT, status=st.sampled_from(["ok", *FAILURES, "new"]), workload=TEXT, error=TEXT, knobs=MAPPING,
    notes=MAPPING, times=st.lists(st.floats(), max_size=3), run_s=st.floats(), stopped_early=st.booleans(),
    cores=st.lists(st.integers(), max_size=2), toolchain=MAPPING, origin=TEXT, attempts=st.integers(0, 5),
    extra=MAPPING.map(lambda found: {f"x{name}": value for name, value in found.items()}),
)  # fmt: skip


def write_t4(records: list[Record], path: Path) -> Any:
    with path.open("w") as file:
        assert t4_export.write(records, file) == len(records)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


# --- T4 ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.lists(RECORDS, max_size=4))
def test_t4_comes_back_as_it_went(tmp_path_factory: pytest.TempPathFactory, records: list[Record]) -> None:
    path = tmp_path_factory.mktemp("t4") / "out.json"
    write_t4(records, path)
    assert repr(list(t4_export.read(path))) == repr(records)


def test_t4_says_what_other_tools_read(tmp_path: Path) -> None:
    good = Record(
        "t", "ok", cpu="znver3", knobs={"tile": [4, 8], "unroll": 2}, times=(0.001, 0.003, 0.002), build_s=0.5,
        check_s=0.25, run_s=1.006, timestamp="2026-07-01T12:00:00+00:00",
    )  # fmt: skip
    data = write_t4([good, Record("t", "crash", cpu="znver3", run_s=0.5)], tmp_path / "out.json")
    assert set(data) == {"results", "metadata", "schema_version"} and data["schema_version"] == "1.0.0"
    assert data["metadata"]["timeunit"] == "milliseconds" and data["metadata"]["device"] == "znver3"
    first, second = data["results"]
    assert first["configuration"] == {"tile": [4, 8], "unroll": 2} and first["timestamp"] == good.timestamp
    times = first["times"]
    assert times["compilation"] == times["compilation_time"] == 500.0 and times["runtimes"] == [1.0, 3.0, 2.0]
    assert (times["validation"], times["framework"], times["search_algorithm"]) == pytest.approx((250.0, 1000.0, 0.0))
    assert (first["invalidity"], first["correctness"], first["objectives"]) == ("correct", 1, ["time"])
    assert first["measurements"] == [{"name": "time", "value": 2.0, "unit": "ms"}]
    assert (second["invalidity"], second["correctness"], second["measurements"]) == ("runtime", 0, [])
    (odd,) = write_t4([Record("t", "ok", times=(1e306, 1.0, math.nan), run_s=math.inf)], tmp_path / "odd.json")[
        "results"
    ]
    assert odd["times"]["runtimes"] == [1000.0]


@pytest.mark.parametrize(
    ("status", "invalidity"),
    [("ok", "correct"), ("build", "compile"), ("run", "runtime"), ("crash", "runtime"), ("timeout", "timeout"),
     ("wrong", "correctness"), ("oom", "runtime"), ("constraints", "constraints"), ("quarantined", "runtime")],
)  # fmt: skip
def test_every_status_has_its_invalidity(status: str, invalidity: str) -> None:
    result = t4_export.result_of(Record("t", status))
    assert result["invalidity"] == invalidity
    assert result["correctness"] == (status == "ok")


def foreign(**changes: Any) -> dict[str, Any]:
    """A result as Kernel Tuner writes it."""
    return {
        "timestamp": "2025-03-17 07:22:09.499315+00:00",
        "configuration": {"block_size_x": 32, "method": "a"},
        "times": {
            "compilation": 38.5,
            "runtimes": [1.5, 2.5],
            "framework": 2.0,
            "search_algorithm": 0,
            "validation": 4,
        },
        "invalidity": "correct",
        "correctness": 1,
        "measurements": [{"name": "GFLOP/s", "value": 12.5, "unit": ""}, {"name": "time", "value": 2.0, "unit": "ms"}],
        "objectives": ["time"],
    } | changes


def read_t4(tmp_path: Path, *results: Any, **root: Any) -> list[Record]:
    path = tmp_path / "A100_T4.json"
    path.write_text(json.dumps({"results": list(results), "schema_version": "1.0.0", **root}))
    return list(t4_export.read(path))


def test_files_of_other_tuners_are_read(tmp_path: Path) -> None:
    metadata = {"timeunit": "miliseconds", "device": "A100", "autotuner": "KernelTuner"}
    (record,) = read_t4(tmp_path, foreign(), metadata=metadata)
    assert (record.task, record.cpu, record.toolchain) == ("A100_T4", "A100", {"autotuner": "KernelTuner"})
    assert record.knobs == {"block_size_x": 32, "method": "a"} and record.times == pytest.approx((0.0015, 0.0025))
    assert (record.build_s, record.check_s) == pytest.approx((0.0385, 0.004))
    assert record.extra["t4"]["times"] == {"framework": 2.0, "search_algorithm": 0}
    again = t4_export.result_of(record)
    assert again["measurements"] == ({"name": "GFLOP/s", "value": 12.5, "unit": ""},
                                     {"name": "time", "value": 2.0, "unit": "ms"})  # fmt: skip
    (same,) = read_t4(tmp_path, foreign(), metadata=metadata)
    assert same == record and same.id == record.id


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [(None, 2e-3), ("milliseconds", 2e-3), ("Microseconds", 2e-6), ("nanoseconds", 2e-9), ("seconds", 2.0)],
)
def test_units_are_minded(tmp_path: Path, unit: str | None, seconds: float) -> None:
    (record,) = read_t4(tmp_path, foreign(), metadata={"timeunit": unit} if unit else {})
    assert record.seconds == pytest.approx(seconds)


def test_odd_results_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    path = tmp_path / "odd.json.gz"
    results = [
        foreign(times={"compilation_time": 3}, measurements=[{"name": "time", "value": 7.0}]),
        foreign(times=None, measurements=[{"name": "score", "value": -0.3}], objectives=["score"]),
        foreign(times={"runtimes": [math.nan, 2.0]}, correctness=0),
        foreign(invalidity="compile", times={"runtimes": None, "compilation": "CompilationFailed"}, measurements=None),
    ]
    path.write_bytes(gzip.compress(json.dumps({"results": results}).encode()))
    a, b, c, d = t4_export.read(path, "conv")
    assert (a.times, a.build_s, a.task) == ((0.007,), 0.003, "conv")
    assert b.ok and b.times == () and b.seconds == math.inf and b.extra["t4"]["objectives"] == ("score",)
    assert (c.status, c.times) == ("wrong", (0.002,))
    assert (d.status, d.times, d.build_s) == ("build", (), 0.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "A100_T4.json: not JSON"),
        ('{"Results": []}', 'not a T4 file: it has no "results"'),
        ('{"results": [{"invalidity": "correct"}, {"invalidity": "odd"}]}', "result 2: invalidity is 'odd'; known"),
        ('{"results": [3]}', "result 1: expected an object"),
        ('{"results": [], "metadata": {"timeunit": "fortnights"}}', "unknown time unit 'fortnights'"),
        ('{"results": [{"searchlab": {"schema": 99}}]}', "result 1: schema 99 is newer"),
    ],
)  # fmt: skip
def test_what_is_no_t4_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "A100_T4.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=message):
        list(t4_export.read(path))


# --- CSV --------------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.lists(RECORDS, max_size=4))
def test_csv_comes_back_as_it_went(tmp_path_factory: pytest.TempPathFactory, records: list[Record]) -> None:
    path = tmp_path_factory.mktemp("csv") / "out.csv"
    with path.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file:
        assert csv_export.write(lambda: records, file) == len(records)
    found = list(csv_export.read(path))
    assert [_comparable(r) for r in found] == [_comparable(r) for r in records]


def _comparable(record: Record) -> str:
    """Columns have an order of their own."""
    return repr(dataclasses.replace(record, knobs=dict(sorted(record.knobs.items()))))


def test_a_table_reads_like_one() -> None:
    file = io.StringIO()
    records = [
        Record("t", "ok", knobs={"tile": [4, 8], "name": "a b", "n": 2, "odd": "2"}, times=(1.0, 2.5), id="i1"),
        Record("t", "wrong", knobs={"m": True}, id="i2"),
    ]
    csv_export.write(lambda: records, file)
    head, first, second = file.getvalue().splitlines()
    assert head.startswith("id,task,status,workload,") and head.endswith("knob.tile,knob.name,knob.n,knob.odd,knob.m")
    assert first.startswith("i1,t,ok,") and first.endswith('"[4,8]",a b,2,"""2""",') and ",1.0 2.5," in first
    assert second.startswith("i2,t,wrong,") and second.endswith(",,,,,true")


def test_a_small_table_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "small.csv"
    path.write_text("task,status,times,knob.x\nconv,ok,0.5 0.25,3\nconv,build,,4\n\n")
    first, second = csv_export.read(path)
    assert (first.times, first.knobs, first.attempts) == ((0.5, 0.25), {"x": 3}, 1) and second.status == "build"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "small.csv:0: not a table of records: no column 'task'"),
        ("task,times\n", "no column 'status'"),
        ("task,status,tile\n", "unknown column 'tile'; write knob.tile if it is a knob"),
        ("task,status,task\n", "duplicate column"),
        ("task,status,times\na,ok,x\n", "small.csv:2: could not convert string to float: 'x'"),
        ("task,status,number\na,ok,1\na,ok,1.5\n", "small.csv:3: invalid literal"),
        ("task,status,notes\na,ok,{\n", "small.csv:2: "),
        ("task,status,stopped_early\na,ok,maybe\n", "small.csv:2: stopped_early: expected true or false"),
        ("task,status\na\n", "small.csv:2: 1 cells in a table of 2 columns"),
        ('task,status\n"a,ok\n', "small.csv:2: unexpected end of data"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "small.csv"
    path.write_text(text)
    with pytest.raises(RecordError, match=message):
        list(csv_export.read(path))


def test_files_that_are_not_there_or_no_text(tmp_path: Path) -> None:
    for read in (t4_export.read, csv_export.read):
        with pytest.raises(RecordError, match="cannot read: No such file"):
            list(read(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfd")
    for read in (t4_export.read, csv_export.read):
        with pytest.raises(RecordError, match="binary: not "):
            list(read(tmp_path / "binary"))
