"""Output of every command: tables are never cut off, whatever the width, and JSON and CSV have all values.

A new command has to be added to CASES; one without --json and --csv fails.
"""

import csv
import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from lab.run.runs import replay
from typer.testing import CliRunner

from searchlab import bench
from searchlab.cli import app
from searchlab.cli.output import amount, duration, out, three_digits
from searchlab.doctor import MachineCheck
from searchlab.lab.leaderboard.sheet_columns import with_interval
from searchlab.lab.run import run
from searchlab.lab.statistics import Estimate, shown_p
from searchlab.measure import Job, Measurer, Outcome

NO_ROWS = {"schema"}  # it prints JSON as it is
# Those of models need a data set (tests/dataset), and tune needs a model (tests/lab/tuning).
ELSEWHERE = {"models bench", "models record", "models train", "tune"}

# What is called (RUN is a run's folder, NEW one that does not exist), and the columns of JSON that its table shows.
CASES: dict[str, tuple[str, set[str]]] = {
    "list": ("list", {"name", "summary", "version", "tasks", "weight", "flops", "cases"}),
    "show": ("show ansor-ops", {"case", "bytes"}),
    "show space": ("show matmul:m=64,n=64,k=64 --space sketch --target x86-64-v3", {"sketch"}),
    "bench": ("bench ansor-ops", {"case", "min_seconds", "median_seconds"}),
    "doctor": ("doctor", {"name", "state", "value", "advice"}),
    "noise": ("noise --seconds 0", {"repeats", "min_repeat_ms", "timing_s"}),
    "run": ("run RUN -j 0", {"done_before"}),
    "run dry": ("run RUN --dry-run", {"trials", "folder"}),
    "status": ("status RUN", {"entry", "task", "trials", "best_s", "against", "name"}),
    "records stats": ("records stats RUN/records/*", {"case", "value", "file", "records"}),
    "records export": ("records export FIRST --to csv -o NEW", {"value"}),
    "records import": ("records import CSV --from csv -o NEW", {"value"}),
    "records merge": ("records merge RUN/records/* -o NEW", {"value"}),
    "leaderboard show": ("leaderboard show RUN", {"rank", "entry", "group", "score", "geometric_mean", "mean_rank"}),
    "leaderboard card": ("leaderboard show RUN --card random", {"entry", "run", "command", "task", "median_s", "best"}),
    "leaderboard validate": ("leaderboard validate RUN", {"entry", "task", "seed", "claimed_s", "seconds", "verdict"}),
    "compare": ("compare RUN", {"a", "b", "verdict", "why", "speedup", "improvement", "p_holm", "magnitude"}),
    "report": ("report RUN -o NEW", {"headline"}),
    "best": ("best RUN --top 3", {"entry", "seed", "seconds", "point"}),
    "replay": ("replay RUN", {"entry", "task", "seed", "same"}),
    "new": ("new strategy mine --dir NEW", {"component"}),
}
CALLS = [n for n in CASES if n not in ("records export", "records import", "records merge", "report", "new")]


class Steady(Measurer[Job]):
    """Every program takes the same time."""

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            count = job.protocol.repeats
            yield Outcome(job.id, "ok", (1e-3,) * count, number=1, pulses=(50e-6,) * count, build_s=0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run") / "small"
    run(replay(), place, jobs=0)
    return place


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be measured is the same every time."""

    def measure(workload: Any, target: Any, case: str, *_: object) -> bench.ContestRow:
        times = {"searchlab": bench.Times(1.2e-3, 2.3e-3, 5), "numpy": bench.Times(2e-3, 3e-3, 5)}
        return bench.ContestRow(case, workload, 1, times)

    checks = [
        MachineCheck("machine", f"check {n}", "note", "a value of many words " * 3, "Advice. " * 9) for n in range(3)
    ]
    monkeypatch.setattr("searchlab.bench.measure", measure)
    monkeypatch.setattr("searchlab.doctor.examine", lambda: iter(checks))
    monkeypatch.setattr("searchlab.cli.noise._measurer", Steady)


@pytest.fixture
def call(folder: Path, tmp_path: Path) -> Any:
    numbers = iter(range(99))

    def invoke(name: str, *more: str) -> str:
        words: list[str] = []
        records = sorted(map(str, (folder / "records").glob("*.jsonl")))
        for word in CASES[name][0].split():
            new = str(tmp_path / f"new{next(numbers)}")
            if word == "CSV":
                done = CliRunner().invoke(app, ["records", "export", records[0], "--to", "csv", "-o", new])
                assert done.exit_code == 0, done.output
            if word == "RUN/records/*":
                words += records
            else:
                words.append({"RUN": str(folder), "NEW": new, "CSV": new, "FIRST": records[0]}.get(word, word))
        found = CliRunner().invoke(app, [*words, *more])
        assert found.exit_code == 0, found.output
        return found.stdout

    return invoke


def commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All commands of a group, and of the groups in it, by name."""
    for word, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{name} {word}".strip())
    if not hasattr(command, "commands"):
        yield name, command


EVERY = dict(commands(typer.main.get_command(app)))
assert len(EVERY) > 15


# --- all commands -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(EVERY.keys() - NO_ROWS))
def test_every_command_has_both_forms(name: str) -> None:
    options = {o for p in EVERY[name].params for o in p.opts}
    assert {"--json", "--csv"} <= options
    called = [words.split()[: len(name.split())] for words, _ in CASES.values()]
    assert name in ELSEWHERE or name.split() in called, "not in CASES"


@pytest.mark.parametrize("name", CASES)
def test_json_and_csv_hold_the_same_rows_and_nothing_else_is_printed(name: str, call: Any) -> None:
    found = list(csv.DictReader(io.StringIO(call(name, "--csv"))))
    rows = list(dicts(parsed(call(name, "--json"))))
    assert found and None not in {key for row in found for key in row}
    names = {key.rpartition(".")[2] for row in found for key in row}
    assert names <= {key for row in rows for key in row} | {"table"}
    values = {str(v) for row in rows for v in row.values()}
    numbers = {v for row in found for v in row.values() if _number(v)}
    assert numbers <= values, "rounded, or not there"


@pytest.mark.parametrize("name", CASES)
def test_values_of_json_are_in_the_table(name: str, call: Any) -> None:
    text = call(name)
    assert "…" not in text
    shown = CASES[name][1]
    values = [(k, v, row) for row in dicts(parsed(call(name, "--json"))) for k, v in row.items() if k in shown]
    assert {k for k, _, _ in values} == shown
    words = " ".join(text.split())
    for key, value, row in values:
        if value in (None, "") or "summary" in (row.get("group"), row.get("kind")):
            continue
        assert any(" ".join(t.split()) in words for t in _texts(value, row, key)), (key, value)


@pytest.mark.parametrize("name", CALLS)
def test_narrow_terminals_lose_nothing(name: str, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_pipe = call(name)
    monkeypatch.setattr(out, "_force_terminal", True)
    for width in (40, 80, 130):
        monkeypatch.setattr(out, "_width", width)
        text = call(name)
        assert "…" not in text, width
        assert characters(text) == characters(on_a_pipe), width


def test_a_pipe_has_no_width(folder: Path, call: Any) -> None:
    """As a shell sees it: the narrowest variable makes no difference, and every row is one line."""
    code = f"from searchlab.cli import app; app(['compare', {str(folder)!r}])"
    environment = {**os.environ, "COLUMNS": "40"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    narrow = done.stdout
    assert narrow == call("compare")
    (line,) = [li for li in narrow.splitlines() if "random" in li and "annealing" in li and "/" in li]
    assert "not told apart" in line  # four pairs of task and seed are too few for anything else


def test_one_form_at_a_time() -> None:
    found = CliRunner().invoke(app, ["list", "--json", "--csv"])
    assert found.exit_code == 2 and "exclude each other" in found.stderr


def test_csv_flattens_what_is_nested(capsys: pytest.CaptureFixture[str]) -> None:
    from searchlab.cli.output import OutputForm, print_rows

    rows = [{"a": {"b": 1, "c": {"d": 0.1 + 0.2}}, "l": [1, 2]}, {"e": float("inf"), "m": [{"x": 1}]}]
    print_rows(rows, OutputForm.csv)
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert first == {"a.b": "1", "a.c.d": "0.30000000000000004", "l": "1; 2", "e": "", "m": ""}
    assert (second["e"], json.loads(second["m"])) == ("", [{"x": 1}])
    print_rows(rows, OutputForm.json)
    one, two = capsys.readouterr().out.splitlines()
    assert json.loads(one)["a"]["c"]["d"] == 0.1 + 0.2 and json.loads(two)["e"] is None


# --- reading ----------------------------------------------------------------------------------------------------------


def parsed(text: str) -> list[Any]:
    """JSON as a whole, or one object per line."""
    if text.startswith("["):
        return list(json.loads(text))
    return [json.loads(line) for line in text.splitlines()]


def dicts(value: Any) -> Iterator[Mapping[str, Any]]:
    """All mappings inside."""
    if isinstance(value, Mapping):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from dicts(inner)


def characters(text: str) -> Counter[str]:
    """What is printed, without what depends on widths: spaces and rules."""
    return Counter(c for c in text if not c.isspace() and c not in "─━")


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _texts(value: Any, row: Mapping[str, Any], key: str) -> list[str]:
    """How a value may look in a table."""
    if isinstance(value, int | str):
        return [str(value), "not told apart" if value == "cannot be told apart" else str(value), *_scaled(value)]
    if isinstance(value, float):
        ends = Estimate(value, row.get(f"{key}_low"), row.get(f"{key}_high"))
        forms = [with_interval(ends, f) for f in (".3f", ".2f")]
        return [*forms, f"{value:.2f}", f"{value:g}", shown_p(value).removeprefix("= "), *_scaled(value)]
    return [str(value)]


def _scaled(value: Any) -> list[str]:
    if isinstance(value, str):
        return []
    return [duration(value), amount(value, "flop"), amount(value, "B"), three_digits(value)]
