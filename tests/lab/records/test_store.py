"""Files of records: what they survive, who may write them at once, what they answer."""

import errno
import fcntl
import json
import logging
import math
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import searchlab as sl
from searchlab.errors import RecordError
from searchlab.lab.records import Record, RecordStore, encode, job_key, merge
from searchlab.lab.records.lines import SchemaError, decode
from searchlab.measure.job import Job, Limits, Outcome

ROOT = Path(__file__).resolve().parents[3]


def make(number: int, task: str = "t", status: str = "ok", seconds: float = 1.0, **more: Any) -> Record:
    return Record(task, status, times=(seconds,) if status == "ok" else (), job=str(number), **more)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.jsonl"


def numbers(store: RecordStore) -> list[int]:
    return [int(record.job) for record in store]


def test_what_is_appended_is_read(path: Path) -> None:
    store = RecordStore(path)
    assert len(store) == 0 and list(store) == [] and store.best() is None and store.top(3) == [] and store.skipped == {}
    records = [make(n, seconds=n + 1.0) for n in range(5)]
    for record in records[:3]:
        store.append(record)
        assert len(store) == len(list(RecordStore(path)))
    assert store.extend(records[3:]) == 2
    assert list(store) == records == list(store.records()) and len(store) == 5
    assert store.best() == records[0] and store.top(2) == records[:2]
    assert list(pickle.loads(pickle.dumps(store))) == records
    assert list(store.lines()) == [(r.id, encode(r)) for r in records]


def test_folders_are_made_and_deleted_files_begin_anew(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "a" / "b" / "records.jsonl", fsync=True) as store:
        store.append(make(1))
        assert len(store) == 1
        store.path.unlink()
        assert len(store) == 0
        store.append(make(2))
        assert numbers(store) == [2] and len(store) == 1


def test_a_replaced_file_is_read_anew(path: Path) -> None:
    store = RecordStore(path)
    store.extend(make(n) for n in range(3))
    assert len(store) == 3
    other = RecordStore(path.with_name("other.jsonl"))
    other.extend(make(n, cell="x" * n) for n in range(10, 20))
    os.replace(other.path, path)
    assert len(store) == 10 and [r.job for r in store.top(10)] == [str(n) for n in range(10, 20)]
    store.append(make(99))
    assert numbers(store)[-1] == 99 and len(store) == 11
    path.write_bytes(encode(make(7)))  # the same file, but shorter
    assert len(store) == 1 and store.best().job == "7"  # type: ignore[union-attr]


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_last_line_torn_anywhere_costs_only_itself(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, last, new = make(1), make(2, knobs={"a": [1, 2]}, error="öß\n"), make(3)
    whole = encode(first) + encode(last)
    for cut in range(len(encode(first)), len(whole) + 1):
        path.unlink(missing_ok=True)
        path.write_bytes(whole[:cut])
        caplog.clear()
        complete = cut >= len(whole) - 1
        kept = [first, last] if complete else [first]
        store = RecordStore(path)
        assert list(store) == kept and len(store) == len(kept)
        torn = len(encode(first)) < cut < len(whole) - 1
        assert ("records.jsonl:2: the last line is torn" in caplog.text) == torn
        store.append(new)
        assert list(store) == [*kept, new] == list(RecordStore(path)) and len(store) == len(kept) + 1
        assert ("dropped the last" in caplog.text) == torn
        assert path.read_bytes() == b"".join(encode(r) for r in [*kept, new])


def test_a_long_torn_line_is_found_whole(path: Path) -> None:
    path.write_bytes(encode(make(1)) + encode(make(2, error="x" * 300_000))[:-5])
    store = RecordStore(path)
    store.append(make(3))
    assert numbers(store) == [1, 3]
    path.write_bytes(encode(make(2, error="x" * 300_000))[:-5])
    store.append(make(3))
    assert numbers(store) == [3]


def test_what_is_not_ours_is_never_cut_off(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b"dear diary,\nnothing happened")
    store = RecordStore(path)
    store.append(make(1))
    assert path.read_bytes().startswith(b"dear diary,\nnothing happened\n{") and numbers(store) == [1]
    assert "records.jsonl: 2 lines cannot be read and are left out, the first is line 1: not JSON" in caplog.text
    path.write_bytes(encode(make(1)) + b"\0" * 100)  # what some file systems leave after a power cut
    store.append(make(2))
    assert numbers(store) == [1, 2]


def test_broken_lines_in_the_middle_are_skipped_and_named(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [encode(make(n, seconds=10.0 - n)) for n in range(9)]
    lines[2] = lines[2][:50] + b"\n"
    lines[4] = lines[4].replace(b'"cell":""', b'"cell":3')
    lines[6] = b"\n"
    lines[7] = lines[7][:-1] + lines[7]  # two lines glued
    path.write_bytes(b"".join(lines))
    store = RecordStore(path)
    assert numbers(store) == [0, 1, 3, 5, 8]
    assert len(store) == 5 and [r.job for r in store.top(9)] == ["8", "5", "3", "1", "0"]
    assert sorted(store.skipped) == [3, 5, 8]
    assert f"{path}: 3 lines cannot be read and are left out, the first is line 3: not JSON" in caplog.text
    caplog.set_level("INFO")  # a log has each of them
    assert numbers(RecordStore(path)) == [0, 1, 3, 5, 8]
    assert f"{path}:3: skipped a broken line: not JSON" in caplog.text
    assert f"{path}:5: skipped a broken line: cell: expected text" in caplog.text
    assert f"{path}:8: skipped" in caplog.text
    with path.open("ab") as file:
        file.write(b"junk\n")
    assert sorted(store.skipped) == [3, 5, 8, 10]


def test_line_numbers_stay_right_after_a_line_without_its_end(path: Path) -> None:
    path.write_bytes(encode(make(1))[:-1])
    store = RecordStore(path)
    assert len(store) == 1
    store.append(make(2))
    assert len(store) == 2
    with path.open("ab") as file:
        file.write(b"junk\n")
    assert list(store.skipped) == [3] == list(RecordStore(path).skipped)


def test_a_line_that_breaks_after_it_was_indexed_leaves_the_answers(path: Path) -> None:
    store = RecordStore(path)
    store.extend(make(n, seconds=n + 1.0, program="p") for n in range(3))
    assert len(store) == 3
    with path.open("r+b") as file:
        file.write(b"#" * 40)
    assert store.best().job == "1" and len(store) == 2 and [r.job for r in store.top(5)] == ["1", "2"]  # type: ignore[union-attr]
    assert [r.job for r in store.records()] == ["1", "2"]
    assert store.lookup(make(0, program="p").key).job == "2"  # type: ignore[union-attr]
    with path.open("r+b") as file:
        file.seek(2 * len(encode(make(0, seconds=1.0, program="p"))))
        file.write(b"#" * 40)
    for _ in range(2):
        assert store.lookup(make(0, program="p").key).job == "1"  # type: ignore[union-attr]


def test_a_newer_schema_is_refused(path: Path) -> None:
    path.write_bytes(encode(make(1)) + encode(make(2)).replace(b'{"schema":1,', b'{"schema":7,'))
    store = RecordStore(path)
    for ask in (lambda: list(store), lambda: len(store), lambda: store.best(), lambda: list(store.lines())):
        with pytest.raises(SchemaError, match=r"records\.jsonl:2: schema 7 is newer than 1"):
            ask()
    before = path.read_bytes()
    store.append(make(3))
    assert path.read_bytes().startswith(before)
    path.write_bytes(path.read_bytes().replace(b'{"schema":7,', b'{"schema":1,'))
    assert len(store) == 3 and numbers(store) == [1, 2, 3]


def test_files_that_cannot_be_read_or_written_are_named(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    with pytest.raises(RecordError, match="cannot write: Is a directory"):
        store.append(make(1))
    with pytest.raises(RecordError, match="cannot read: Is a directory"):
        list(store)


# --- full disks -------------------------------------------------------------------------------------------------------


def test_a_full_device_is_a_clear_error() -> None:
    with pytest.raises(RecordError, match="/dev/full: cannot write: No space left on device; files written so far"):
        RecordStore("/dev/full").append(make(1))


def test_a_disk_that_fills_up_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RecordStore(path)
    store.extend(make(n) for n in range(3))
    before = path.read_bytes()
    real, calls = os.write, []

    def write(fd: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) % 2 == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[:20])  # half a line still fits

    monkeypatch.setattr("os.write", write)
    with pytest.raises(RecordError, match="No space left on device"):
        store.append(make(4))
    with pytest.raises(RecordError, match="No space left on device"):
        store.extend([make(5), make(6)])
    assert path.read_bytes() == before and len(calls) == 4
    monkeypatch.setattr("os.write", lambda fd, data: real(fd, data[:7]))  # short writes alone do no harm
    store.append(make(4))
    assert numbers(store) == [0, 1, 2, 4] and store.skipped == {}


def test_a_failed_sync_takes_the_line_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RecordStore(path, fsync=True)
    store.append(make(1))

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "it broke")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(RecordError, match="it broke"):
        store.append(make(2))
    assert numbers(store) == [1]


# --- several writers --------------------------------------------------------------------------------------------------


def _write(store: RecordStore, start: int, count: int) -> None:
    for n in range(start, start + count):
        store.append(make(n, error="x" * (n % 7) * 1500))


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_append_to_one_file(path: Path, method: str) -> None:
    store = RecordStore(path)
    store.append(make(0))  # forked processes inherit the open file
    path.open("ab").write(b'{"schema":1,"id"')  # and the first one finds a torn line
    context: Any = multiprocessing.get_context(method)
    workers = [context.Process(target=_write, args=(store, 1 + 300 * w, 300)) for w in range(2)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        assert store.count() >= 1 and store.skipped == {}  # somebody reads meanwhile
        time.sleep(0.01)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert sorted(numbers(store)) == list(range(601)) and len(store) == 601 and store.skipped == {}


def test_a_line_that_is_being_written_is_not_torn(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, line = RecordStore(path), encode(make(2))
    store.append(make(1))
    with path.open("ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line[:50])
        reader = threading.Thread(target=store.count)
        reader.start()
        time.sleep(0.05)
        file.write(line[50:])
    reader.join()
    assert store.count() == 2 and not caplog.records


def test_threads_append_to_one_store(path: Path) -> None:
    store = RecordStore(path)
    threads = [threading.Thread(target=_write, args=(store, 200 * t, 200)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers(store)) == list(range(800))


WRITER = """
import sys
from searchlab.lab.records import Record, RecordStore
store = RecordStore(sys.argv[1])
for n in range(int(sys.argv[2]), 10**9):
    store.append(Record("t", "ok", times=(1.0,), job=str(n), error="x" * (n % 5) * 2000))
    print(n, flush=True)
"""


def test_a_killed_writer_loses_nothing_it_acknowledged(path: Path) -> None:
    rng, promised = random.Random(0), []
    for start in range(0, 8_000_000, 1_000_000):
        command = [sys.executable, "-c", WRITER, str(path), str(start)]
        found_here = {**os.environ, "PYTHONPATH": str(ROOT)}
        writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, env=found_here)
        assert writer.stdout is not None
        promised += [int(writer.stdout.readline()) for _ in range(3)]
        time.sleep(rng.uniform(0.0, 0.15))
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read()
        promised += [int(n) for n in rest[: rest.rfind(b"\n") + 1].split()]
        writer.wait()
    found = numbers(RecordStore(path))
    assert set(promised) <= set(found) and len(found) == len(set(found)) and RecordStore(path).skipped == {}
    assert len(found) - len(promised) <= 8  # at most one per writer was written but not announced


# --- queries ----------------------------------------------------------------------------------------------------------

STATUSES = st.sampled_from(["ok", "ok", "build", "timeout"])
SECONDS = st.sampled_from([0.0, 1.0, 2.0, 2.5, math.inf, math.nan])
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", 'c"ö']), STATUSES, SECONDS), max_size=30)


@settings(max_examples=60, deadline=None)
@given(ROWS, ROWS, st.integers(0, 8))
def test_queries_agree_with_looking_at_everything(
    tmp_path_factory: pytest.TempPathFactory, first: list[Any], second: list[Any], k: int
) -> None:
    store = RecordStore(tmp_path_factory.mktemp("store") / "r.jsonl")
    records: list[Record] = []
    for rows in (first, second):  # what comes later is found, too
        added = [make(len(records) + n, *row) for n, row in enumerate(rows)]
        store.extend(added)
        records += added
        _compare(store, records, k)


def _compare(store: RecordStore, records: list[Record], k: int) -> None:
    ids = [r.id for r in records]
    for task in (None, "a", 'c"ö', "unknown"):
        mine = [r for r in records if task in (None, r.task)]
        timed = sorted((r for r in mine if r.seconds < math.inf), key=lambda r: (r.seconds, ids.index(r.id)))
        assert [r.id for r in store.top(k, task)] == [r.id for r in timed[:k]]
        best = store.best(task)
        assert (best and best.id) == (timed[0].id if timed else None)
        counts = {s: sum(r.status == s for r in mine) for s in {r.status for r in mine}}
        assert store.index.by_status(task) == counts
        for status in (None, "ok", "timeout", "unknown"):
            wanted = [r.id for r in mine if status in (None, r.status)]
            assert [r.id for r in store.records(task, status)] == wanted and store.count(task, status) == len(wanted)
    assert store.index.tasks == list(dict.fromkeys(r.task for r in records))


# --- reuse ------------------------------------------------------------------------------------------------------------


def test_lookup_answers_what_was_measured_before(path: Path) -> None:
    workload = sl.workload("matmul", m=16, n=16, k=16)
    job = Job("1", workload, sl.detect(), workload.program, limits=Limits(run_s=1.0))
    store = RecordStore(path)
    assert store.lookup(job_key(job)) is None and store.reuse(job) is None

    def record(status: Any, **more: Any) -> Record:
        times = (1.0,) if status == "ok" else ()
        return Record.from_outcome(job, Outcome("1", status, times, **more), cell=str(len(store)))

    store.append(record("oom"))
    store.append(record("quarantined"))
    assert store.reuse(job) is None
    store.append(record("timeout", error="run_s: killed"))
    assert store.reuse(job).status == "timeout"  # type: ignore[union-attr]
    assert store.reuse(replace(job, limits=Limits(run_s=9.0))) is None
    store.append(record("crash"))
    assert store.reuse(job).status == "crash"  # type: ignore[union-attr]
    store.append(record("ok"))
    store.append(record("run"))
    again = store.reuse(replace(job, id="2"))
    assert again is not None and (again.id, again.status, again.times) == ("2", "ok", (1.0,))
    assert again.notes["record"] == store.lookup(job_key(job)).id  # type: ignore[union-attr]
    assert store.reuse(replace(job, seed=1)) is None
    assert RecordStore(path).reuse(job) == replace(again, id="1")
    changed = replace(next(iter(store)), toolchain={"llvm": "0"}, status="ok", times=(1.0,), id="")
    store.append(changed)
    assert store.lookup(job_key(job)) != changed and store.lookup(changed.key) == changed


# --- merging ----------------------------------------------------------------------------------------------------------


def test_merging_keeps_every_record_once_with_its_origin(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    a, b, out = (RecordStore(tmp_path / f"{name}.jsonl") for name in ("a", "b", "out"))
    a.extend([make(1), make(2, knobs={"origin": 1}), make(3, target="x", error='"origin":', extra={"new": 1})])
    b.extend([make(2, knobs={"origin": 1}), make(4), make(4)])
    b.path.open("ab").write(b"junk\n")
    out.append(make(5, target="another machine"))
    before = out.path.read_bytes()
    done = merge(out, [a, b, out])
    assert (done.added, done.known) == (4, 2) and out.path.read_bytes().startswith(before)
    assert numbers(out) == [5, 1, 2, 3, 4]
    assert [r.origin for r in out] == ["", str(a.path), str(a.path), str(a.path), str(b.path)]
    assert next(r for r in out if r.job == "3").extra == {"new": 1}
    assert merge(out, [a, b]).added == 0 and len(out) == 5 and out.skipped == {}
    third = RecordStore(tmp_path / "third.jsonl")
    merge(third, [out])
    assert next(r for r in third if r.job == "4").origin == str(b.path)  # where it was first
    assert "b.jsonl: line 4 cannot be read and is left out" in caplog.text


def test_nothing_is_merged_when_something_cannot_be_read(tmp_path: Path) -> None:
    a, b, out = (RecordStore(tmp_path / f"{name}.jsonl") for name in ("a", "b", "out"))
    a.append(make(1, error="x" * 2_000_000))  # more than is written at once
    with pytest.raises(RecordError, match=r"b\.jsonl: file not found"):
        merge(out, [a, b])
    b.path.write_bytes(encode(make(2)).replace(b'"schema":1', b'"schema":2'))
    with pytest.raises(SchemaError, match=r"b\.jsonl:1: schema 2"):
        merge(out, [a, b])
    assert not out.path.exists()


def test_records_that_nobody_asks_for_are_not_parsed(
    path: Path, make_many: Callable[[int], list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which takes most of the time (benchmarks/records.py)."""
    path.write_bytes(b"".join(make_many(2000)))
    parsed: list[bytes] = []
    monkeypatch.setattr("searchlab.lab.records.store.decode", lambda line: parsed.append(line) or decode(line))
    store = RecordStore(path)
    assert len(store) == 2000 and parsed == []
    assert store.best("t3") is not None and len(parsed) == 1


@pytest.fixture
def make_many() -> Callable[[int], list[bytes]]:
    def many(count: int) -> list[bytes]:
        lines = [encode(make(n, task=f"t{n % 5}", seconds=1.0 + n, error="x" * 800)) for n in range(500)]
        return [lines[n % 500] for n in range(count)]

    return many


def test_warnings_are_logged_by_the_library(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b"junk\n" + encode(make(1)))
    with caplog.at_level(logging.WARNING):
        assert len(RecordStore(path)) == 1
    assert all(r.name.startswith("searchlab.lab.records") for r in caplog.records) and len(caplog.records) == 1
    assert json.loads(path.read_bytes().splitlines()[1])["job"] == "1"
