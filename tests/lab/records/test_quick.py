"""Lines without a checksum of ours: the quick look at them and the reader of records always agree."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.records import example
from searchlab.cli import app
from searchlab.errors import RecordError
from searchlab.lab.records import Record, RecordStore, encode, quick
from searchlab.lab.records.lines import decode

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 3.5, 1e300, "", "text", "inf", "a\\b", 'a"b', "ü", "{", "}", [], [1], [1.5, 2], ["a"], [[1]],
    [None], {}, {"a": 1}, {"a": [1, "b"]}, {"a": {"b": 1}}, {"a": 1.5}, {"a": "}"}, 10**30,
)  # fmt: skip


def plain(number: int, rng: random.Random) -> dict[str, Any]:
    """A record as another tool would have it in memory."""
    found: dict[str, Any] = json.loads(encode(example(number, rng)))
    found.pop("crc")
    return found


def written(data: Any, rng: random.Random) -> bytes:
    spaces = rng.choice([(",", ":"), (", ", ": "), (",", ": "), (" ,", " :")])
    end = rng.choice(["\n", "\n", "\r\n", " \n"])
    return (json.dumps(data, separators=spaces, ensure_ascii=rng.random() < 0.7) + end).encode("utf-8", "surrogatepass")


def mutants(count: int, rng: random.Random) -> Iterator[bytes]:
    """Lines in and out of form: fields of other types, missing, new or in another order, other numbers, other bytes."""
    for number in range(count):
        data = plain(number, rng)
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            name = rng.choice(list(data))
            action = rng.randrange(6)
            if action == 0:
                del data[name]
            elif action == 1:
                data[rng.choice(["new", name])] = rng.choice(ODD)
            elif action == 2 and isinstance(data[name], dict):
                data[name] = {**data[name], rng.choice(["a", "b c", "d\\"]): rng.choice(ODD)}
            elif action == 3 and isinstance(data[name], list):
                data[name] = [*data[name], rng.choice(ODD)]
            elif action == 4:
                keys = list(data)
                rng.shuffle(keys)
                data = {k: data[k] for k in keys}
            else:
                data[name] = rng.choice(ODD)
        line = written(data, rng)
        if rng.random() < 0.3:
            old, new = rng.choice([
                (b"0.", b"00."), (b": ", b":"), (b"1", b"1e400"), (b"true", b"True"), (b"0", b"-0"), (b"0", b"NaN"),
                (b"}", b""), (b"{", b"{{"), (b'"', b""), (b",", b",,"), (b"5", b"05"), (b"e", b"\x00"), (b"]", b"]]"),
                (b"0.", b"1_0."), (b"[", b"["  * 5000), (b"null", b"nan"), (b"0", b"9" * 5000), (b'"a', b'"\xff'),
                (b'"task"', b'"task":"other","task"'), (b'"llvm"', b'"llvm":1,"llvm"'),
            ])  # fmt: skip
            at = [i for i in range(len(line)) if line.startswith(old, i)]
            if at:
                place = rng.choice(at)
                line = line[:place] + new + line[place + len(old) :]
        yield line


@pytest.mark.parametrize("seed", range(4))
def test_what_is_found_quickly_is_what_the_record_says(seed: int) -> None:
    quickly = 0
    for line in mutants(1500, random.Random(seed)):
        found = quick.entry(line)
        if found is not None:
            record = decode(line)
            assert found == (record.key.encode(), record.task.encode(), record.status.encode(), record.seconds), line
            quickly += 1
    assert quickly > 100  # lines in form, and some that are only nearly so


def test_usual_lines_are_found_quickly() -> None:
    rng = random.Random(0)
    for number in range(200):
        data = plain(number, rng)
        for spaces in ((",", ":"), (", ", ": ")):
            assert quick.entry(json.dumps(data, separators=spaces).encode()) is not None
        assert quick.entry(json.dumps({**data, "crc": "01234567"}).encode() + b"\n") is not None
        few = {k: data[k] for k in ("schema", "task", "status", "program", "times")}
        assert quick.entry(json.dumps(few).encode()) is not None
    assert quick.entry(b'{"schema":1,"task":"t","status":"ok"}\n') is not None


@pytest.mark.parametrize("seed", range(3))
def test_stores_are_the_same_either_way(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    path = tmp_path / "records.jsonl"
    sealed = [encode(example(n, rng)) for n in range(100)]
    lines = [*sealed, *(x for x in mutants(400, rng) if b"\n" not in x[:-1]), b"\n", sealed[0][:50] + b"\n", b"\0\n"]
    lines = [line for line in lines if not newer(line)]
    rng.shuffle(lines)
    path.write_bytes(b"".join(lines))
    fast = state(RecordStore(path))
    monkeypatch.setattr(quick, "entry", lambda line: None)
    assert fast == state(RecordStore(path))
    assert len(fast[1]) > 20  # lines that were dropped, each counted


def test_stats_parse_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, path, parsed = random.Random(0), tmp_path / "records.jsonl", 0
    path.write_text("".join(json.dumps(plain(n, rng)) + "\n" for n in range(500)))

    def counted(line: bytes) -> Record:
        nonlocal parsed
        parsed += 1
        return decode(line)

    monkeypatch.setattr("searchlab.lab.records.store.decode", counted)
    found = CliRunner().invoke(app, ["records", "stats", str(path), "--json"])
    assert found.exit_code == 0 and len(found.stdout.splitlines()) == 21, found.output
    assert parsed == 20  # the best of each task, and no other line


def newer(line: bytes) -> bool:
    """Whether a file with this line is refused as a whole."""
    try:
        decode(line)
    except RecordError as e:
        return "newer" in str(e)
    return False


def state(store: RecordStore) -> Any:
    index = store.index
    tasks = {t: (index.by_status(t), best.id if (best := store.best(t)) else None) for t in index.tasks}
    rows = [(r.id, r.key, r.seconds) for r in store.records()]
    return tasks, store.skipped, rows, bytes(index._keys), index.seconds.tolist(), index.offsets.tolist()


def test_many_tasks_are_counted_in_a_moment(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "records.jsonl")
    store.extend(Record(f"t{n}", "build" if n % 2 else "ok", times=(1.0,)) for n in range(1000))
    index, looked = store.index, 0
    real = index._kinds

    class Counted(list):  # type: ignore[type-arg]
        def __getitem__(self, at: Any) -> Any:
            nonlocal looked
            looked += 1
            return real[at]

        def __iter__(self) -> Iterator[Any]:
            return (self[n] for n in range(len(real)))

    index._kinds = Counted(real)
    for task in index.tasks:
        assert sum(index.by_status(task).values()) == 1 and next(index.rows(task)) >= 0
        index.best(task)
    assert looked < 20 * 1000  # not a look at every task for every task
