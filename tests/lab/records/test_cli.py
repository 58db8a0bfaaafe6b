"""`searchlab records`: what it prints, writes and refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from searchlab.cli import app
from searchlab.lab.records import Record, RecordStore, encode

Run = Callable[..., Any]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("searchlab.cli.output.out._width", 160)
    return lambda *args: CliRunner().invoke(app, ["records", *map(str, args)])


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    made = RecordStore(tmp_path / "records.jsonl")
    made.extend(
        Record("mm-1", "ok", label="matmul(m=4)", times=(s,), knobs={"tile": n}) for n, s in enumerate((3e-3, 1e-3))
    )
    made.extend([Record("mm-1", "timeout", label="matmul(m=4)"), Record("sm-2", "build", label="softmax(rows=2)")])
    return made


def rows(result: Any) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def refused(result: Any) -> str:
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, result.output
    assert result.stderr.startswith("error: ")
    return str(result.stderr)


def test_stats(run: Run, store: RecordStore, tmp_path: Path) -> None:
    text = run("stats", store.path).stdout
    assert "matmul(m=4)" in text and "1.00 ms" in text and "1 timeout" in text and "file" not in text.splitlines()[0]
    assert "records.jsonl" in run("stats", store.path, store.path).stdout
    store.path.open("ab").write(b"junk\n")
    matmul, softmax, skipped = rows(run("stats", store.path, "--json"))
    assert (matmul["case"], matmul["metric"], matmul["value"]) == ("matmul(m=4)", "best_seconds", 1e-3)
    assert matmul["statuses"] == {"ok": 2, "timeout": 1} and matmul["records"] == 3 and matmul["knobs"] == {"tile": 1}
    assert (softmax["task"], softmax["value"], softmax["best"]) == ("sm-2", None, None)
    assert (skipped["metric"], skipped["value"]) == ("skipped_lines", 1)
    assert "records.jsonl: line 5 cannot be read and is left out: not JSON" in run("stats", store.path).stderr
    assert "file not found" in refused(run("stats", tmp_path / "none"))


@pytest.mark.parametrize("kind", ["t4", "csv"])
def test_export_and_import(run: Run, store: RecordStore, tmp_path: Path, kind: str) -> None:
    out, back = tmp_path / f"deep/out.{kind}", tmp_path / "back.jsonl"
    result = run("export", store.path, "--to", kind, "-o", out)
    assert result.exit_code == 0 and "4 records written" in result.stdout
    assert ("holds 2 tasks" in result.stderr) == (kind == "t4")
    assert [p.name for p in out.parent.iterdir()] == [out.name]
    assert "4 records added" in run("import", out, "--from", kind, "-o", back).stdout
    assert list(RecordStore(back)) == list(store)
    (row,) = rows(run("import", out, "--from", kind, "-o", back, "--json"))
    assert (row["value"], row["known"]) == (0, 4)
    for task in ("sm-2", "softmax(rows=2)"):
        (row,) = rows(run("export", store.path, "--to", kind, "-o", out, "--task", task, "--json"))
        assert row["value"] == 1
    assert "no task 'x'; it holds matmul(m=4), softmax" in refused(
        run("export", store.path, "--to", kind, "-o", out, "--task", "x")
    )


def test_what_cannot_be_exported_or_imported(run: Run, store: RecordStore, tmp_path: Path) -> None:
    before = store.path.read_bytes()
    assert "the input file" in refused(run("export", store.path, "--to", "csv", "-o", store.path))
    assert "not JSON" in refused(run("import", store.path, "--from", "t4", "-o", tmp_path / "x"))
    assert "cannot write" in refused(run("export", store.path, "--to", "csv", "-o", "/dev/null/x"))
    assert store.path.read_bytes() == before and not (tmp_path / "x").exists()
    half = tmp_path / "half.csv"
    half.write_text("task,status\na,ok\na,ok,too many\n")
    assert "half.csv:3" in refused(run("import", half, "--from", "csv", "-o", tmp_path / "x"))
    assert not (tmp_path / "x").exists()
    assert run("export", store.path, "--to", "xml", "-o", tmp_path / "x").exit_code == 2


def test_foreign_results_get_a_task(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "A100.json"
    path.write_text('{"results": [{"configuration": {"x": 1}, "times": {"runtimes": [2]}, "invalidity": "correct"}]}')
    run("import", path, "--from", "t4", "-o", tmp_path / "s", "--task", "conv")
    (record,) = RecordStore(tmp_path / "s")
    assert (record.task, record.seconds) == ("conv", 2e-3)


def test_merge(run: Run, store: RecordStore, tmp_path: Path) -> None:
    other, out = RecordStore(tmp_path / "other.jsonl"), tmp_path / "all.jsonl"
    other.append(Record("mm-1", "ok", times=(5.0,)))
    (row,) = rows(run("merge", store.path, other.path, "-o", out, "--json"))
    assert (row["metric"], row["value"], row["known"]) == ("records_added", 5, 0) and len(RecordStore(out)) == 5
    assert "0 records added" in run("merge", store.path, "-o", out).stdout
    assert "file not found" in refused(run("merge", tmp_path / "none", "-o", out))
    other.path.write_bytes(encode(Record("t", "ok")).replace(b'"schema":1', b'"schema":9'))
    assert "schema 9 is newer" in refused(run("merge", other.path, "-o", out))


def test_help(run: Run) -> None:
    assert all(name in run("--help").stdout for name in ("stats", "export", "import", "merge"))
