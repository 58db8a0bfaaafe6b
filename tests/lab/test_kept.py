"""Run folders of an earlier searchlab are read as they were: the same cells, winners, times, programs and searches."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import searchlab as sl
from searchlab.cli import app
from searchlab.ir import Program
from searchlab.lab.records import Record, decode, encode
from searchlab.measure import Job, Limits, Protocol
from searchlab.search import Space, Task, space
from searchlab.targets import parse as target
from searchlab.workloads import parse as workload

KEPT = Path(__file__).parent / "kept"
ANSWERS = KEPT / "answers"
RUNS = ("tasks", "network", "table", "stopped")
RECORDS = sorted(KEPT.glob("*/records/*.jsonl"))
TARGET = target("x86-64-v3")
PROSE = {"title", "answer", "headline", "notes", "method"}  # may be worded anew; numbers and names may not

Call = Callable[..., str]
Answer = Callable[[str, Any], None]

COMMANDS = {
    **{f"{run}-status": ("status", run) for run in RUNS},
    **{f"{run}-replay": ("replay", run) for run in RUNS},
    **{f"{run}-best": ("best", run, "--top", "3") for run in RUNS[:3]},
    **{f"{run}-records": ("records", "stats", *_files) for run in RUNS if (_files := [
        p.relative_to(KEPT).as_posix() for p in RECORDS if p.parts[-3] == run
    ])},
    "tasks-leaderboard": ("leaderboard", "tasks"),
    "tasks-card": ("leaderboard", "tasks", "--card", "sketch/gbt/evolutionary"),
    "all-leaderboard": ("leaderboard", "tasks", "network", "table"),
    "tasks-compare": ("compare", "tasks", "--by", "space"),
    "table-compare": ("compare", "table", "--metric", "trials"),
}  # fmt: skip


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a command among copies of the folders, which have their names and no others."""
    for run in RUNS:
        shutil.copytree(KEPT / run, tmp_path / run)
    monkeypatch.chdir(tmp_path)

    def invoke(*args: str) -> str:
        done = CliRunner().invoke(app, list(args))
        assert done.exit_code == 0, done.output
        return done.stdout

    return invoke


@pytest.fixture
def answer(request: pytest.FixtureRequest) -> Answer:
    """Compares data with those that were kept; sums of many floats may differ in their last digits."""

    def check(name: str, found: Any) -> None:
        file = ANSWERS / f"{name}.json"
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(found, indent=1) + "\n")
        assert_alike(found, json.loads(file.read_text()), name)

    return check


def assert_alike(found: Any, kept: Any, place: str) -> None:
    """Equal up to the last digits of floats."""
    if isinstance(kept, dict) and isinstance(found, dict):
        assert list(found) == list(kept), place
        for key in kept:
            assert_alike(found[key], kept[key], f"{place}.{key}")
    elif isinstance(kept, list) and isinstance(found, list):
        assert len(found) == len(kept), place
        for n, (a, b) in enumerate(zip(found, kept, strict=True)):
            assert_alike(a, b, f"{place}[{n}]")
    elif isinstance(kept, float) and isinstance(found, float):
        assert found == pytest.approx(kept, rel=1e-9), place
    else:
        assert found == kept, place


def said(text: str) -> Any:
    """What a command printed, one document or one per line, without sentences."""
    try:
        found = json.loads(text)
    except ValueError:
        found = [json.loads(line) for line in text.splitlines()]
    return without_prose(found)


def without_prose(data: Any) -> Any:
    if isinstance(data, dict):
        return {k: without_prose(v) for k, v in data.items() if k not in PROSE}
    return [without_prose(v) for v in data] if isinstance(data, list) else data


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_say_what_they_said(name: str, call: Call, answer: Answer) -> None:
    if name in ("tasks-replay", "network-replay"):
        pytest.importorskip("xgboost")  # their model
    answer(name, said(call(*COMMANDS[name], "--json")))


@pytest.mark.parametrize(("run", "trials"), {"tasks": [8] * 16, "network": [12] * 2, "stopped": [12, 5]}.items())
def test_every_cell_took_the_same_way(run: str, trials: list[int]) -> None:
    """The answers that the replays above are compared with, and hence today's."""
    found = json.loads((ANSWERS / f"{run}-replay.json").read_text())
    assert [(row["trials"], row["same"], row["departure"]) for row in found] == [(n, n, "") for n in trials]


def test_tables_for_people_have_the_same_figures(call: Call) -> None:
    text = call("status", "tasks")
    assert "16 cells: 16 done; 128 trials" in text and "6 timeout" in text
    figures = r"2/2 +16 +2.18 us +[\d.]+x default, 0.55x numpy"
    assert re.search(rf"template/gbt/evolutionary +matmul\(m=24, n=32, k=16\) +{figures}", text)
    assert "1 done, 1 interrupted" in call("status", "stopped")
    assert "2 of 2 cells are reproducible" in call("replay", "stopped")
    assert re.search(r"scheduler=gradient +pair +1/1 +12 +8.93 us +1.00x default", call("status", "network"))
    assert "tiles/pack=ahead/sums=memory(i1=12, i2=2, j1=1, j2=32, k=1x8x2)" in call("best", "tasks")


@pytest.mark.parametrize("run", RUNS)
def test_reports_show_the_same(run: str, call: Call, answer: Answer) -> None:
    call("report", run, "-o", "page.html")
    page = Path("page.html").read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    (given,) = json.loads(data)["runs"]
    shown = [
        [c[k] for k in ("id", "entry", "task", "seed", "state", "best", "baselines", "code")] for c in given["cells"]
    ]
    claims = re.findall(r'<td class="(\w+)">([\w ]+)</td>\s*<td class="words">', page)
    figures = re.findall(r'<figure id="([\w-]+)"', page)
    sections = re.findall(r'<section id="([\w-]+)"', page)
    settings = {k: given["config"].get(k) for k in ("workloads", "sweep", "ablate", "expect", "report")}
    parts = {"settings": settings, "cells": shown, "claims": claims, "sections": sections, "figures": figures}
    answer(f"{run}-report", json.loads(json.dumps(parts)))


def test_a_search_that_did_not_finish_is_not_confirmed(call: Call) -> None:
    rows = said(call("best", "stopped", "--top", "3", "--json"))
    assert [row["confirmed"] for row in rows] == [True, False, False]
    assert rows[0]["seconds"] > rows[1]["seconds"]  # one lucky time does not beat one that was raced


def test_the_best_programs_are_exported(call: Call) -> None:
    rows = said(call("best", "tasks", "--export", "kernels", "--json"))
    assert {row["cell"] for row in rows} == {"f19dcf1a573a", "a1d284d7f6ef"}
    for row, spec in zip(rows, ("matmul:m=24,n=32,k=16", "softmax:rows=16,cols=32"), strict=True):
        (folder,) = Path("kernels").glob(f"{row['task'].split('(')[0]}*")
        assert (folder / "program.txt").read_text().strip() == row["program"].strip()
        about = json.loads((folder / "kernel.json").read_text())
        assert about["workload"] == workload(spec).spec and about["run"]["cell"] == row["cell"]
        inputs = workload(spec).inputs()
        assert workload(spec).check(sl.load(folder)(*inputs.values()), inputs) is None


# --- folders ----------------------------------------------------------------------------------------------------------


def test_the_same_experiment_writes_the_same_records(call: Call) -> None:
    """Byte for byte, since tables have recorded times; results differ in where the wall time went."""
    call("run", "table/source.yaml", "-o", "again", "--quiet")
    for file in sorted(Path("table/records").iterdir()):
        assert Path("again/records", file.name).read_bytes() == file.read_bytes()
    for file in sorted(Path("table/cells").iterdir()):
        found, kept = (json.loads(f.read_text()) for f in (Path("again/cells", file.name), file))
        assert {**found, "ledger": {}} == {**kept, "ledger": {}}
        assert list(found) == list(kept) and list(found["ledger"]) == list(kept["ledger"])
    found, kept = (json.loads(Path(run, "manifest.json").read_text()) for run in ("again", "table"))
    assert {**found, "name": "", "started": ""} == {**kept, "name": "", "started": ""}
    assert Path("again/experiment.yaml").read_text() == Path("table/experiment.yaml").read_text()


def test_a_finished_run_has_nothing_left_to_do(call: Call) -> None:
    before = {f: f.read_bytes() for f in Path("table").glob("*/*")}
    done = json.loads(call("run", "table", "--json"))
    assert (done["done_before"], done["done"], done["left"], done["failed"]) == (6, 0, 0, [])
    assert {f: f.read_bytes() for f in Path("table").glob("*/*")} == before


@pytest.mark.parametrize("file", RECORDS, ids=lambda f: f"{f.parts[-3]}-{f.stem}")
def test_records_are_written_as_they_were(file: Path) -> None:
    for line in file.read_bytes().splitlines(keepends=True):
        assert encode(decode(line)) == line


def test_records_of_all_kinds_are_kept() -> None:
    found = [decode(line) for file in RECORDS for line in file.read_bytes().splitlines()]
    assert {r.status for r in found} == {"ok", "timeout"} and {r.stopped_early for r in found} == {True, False}
    assert {bool(r.workload) for r in found} == {True, False}
    assert {r.space for r in found} == {"template", "sketch", "task-mapping", "probabilistic", "softmax-128x1024"}


def program_of(record: Record) -> Program:
    """What the space of a record gives for its knobs today."""
    found = made_space(record.space, record.workload)
    return found.program(found.chosen(record.knobs))


@cache
def made_space(name: str, spec: str) -> Space:
    return space(name, Task(workload(spec), TARGET))


def test_spaces_give_the_programs_that_were_measured() -> None:
    found = [decode(line) for file in RECORDS for line in file.read_bytes().splitlines()]
    measured = [r for r in found if r.workload]
    assert len(measured) == 169
    for record in measured:
        assert program_of(record).hash == record.program


@pytest.mark.parametrize(
    ("status", "early"), [("ok", False), ("ok", True), ("timeout", False)], ids=["ok", "stopped early", "timeout"]
)
def test_a_measurement_becomes_the_line_that_it_became(status: str, early: bool) -> None:
    lines = [line for file in RECORDS for line in file.read_bytes().splitlines(keepends=True)]
    line, record = next(
        (line, r) for line in lines if (r := decode(line)).workload and (r.status, r.stopped_early) == (status, early)
    )
    job = Job(
        record.job,
        workload(record.workload),
        TARGET,
        program=program_of(record),
        protocol=Protocol(**record.protocol),
        limits=Limits(**record.limits),
        seed=record.seed,
    )
    outcome = replace(record.outcome(), notes=record.notes)
    names = ("space", "space_version", "knobs", "cell", "timestamp")
    made = Record.from_outcome(job, outcome, **{n: getattr(record, n) for n in names})
    assert encode(replace(made, toolchain=record.toolchain, id="")) == line
    assert made.toolchain.keys() == record.toolchain.keys()


def test_nothing_of_the_machine_is_kept() -> None:
    for file in sorted(f for f in KEPT.rglob("*") if f.is_file()):
        assert not re.search(r"(?<![\w.)])/(tmp|home|work|root|usr|var)/", file.read_text()), file
    assert sum(f.stat().st_size for f in KEPT.rglob("*") if f.is_file()) < 500_000
