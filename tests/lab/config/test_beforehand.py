"""Errors that are found before anything runs, and invalid return values, reported with the component's name."""

import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import searchlab as sl
from searchlab.cli import app
from searchlab.errors import ComponentError, ConfigError, SearchLabError, SpaceError
from searchlab.lab.cells import cells
from searchlab.lab.config import from_data, load
from searchlab.lab.config.checks.feasible import least_s
from searchlab.lab.run.execute.forecast import forecast
from searchlab.measure.job import Outcome
from searchlab.measure.recorded import tables
from searchlab.search import RecordedSpace, menu
from searchlab.targets import parse

MADE = "lab.config.made_bad"
V3 = {"x86-64-v3": {"threads": 1}}


# --- recorded tables --------------------------------------------------------------------------------------------------


def table(folder: Path) -> tuple[Path, Path]:
    """A table as `save` writes it: its header and its rows."""
    space = RecordedSpace.of([menu("tile", [1, 2, 4])], np.array([[0], [1], [2]], np.int32), "own")
    outcomes = [Outcome(str(n), "ok", (1e-3 * (n + 1),)) for n in range(3)]
    return tables.save(folder, space, outcomes, {}), folder / "own.csv.xz"


def write(header: Path, rows: Path, text: str) -> None:
    """Puts other rows in the place of a table's, as if they had been saved."""
    rows.write_bytes(lzma.compress(text.encode()))
    about = json.loads(header.read_text())
    header.write_text(json.dumps({**about, "sha256": hashlib.sha256(rows.read_bytes()).hexdigest()}))


def test_a_table_without_a_column_says_what_was_expected_and_found(tmp_path: Path) -> None:
    header, rows = table(tmp_path)
    assert from_data({"workloads": [{"table": str(header)}]}).recorded
    text = lzma.decompress(rows.read_bytes()).decode()
    write(header, rows, text.replace("build_s", "compile"))
    with pytest.raises(ConfigError) as caught:
        from_data({"workloads": [{"table": str(header)}]})
    message = str(caught.value)
    assert f"{rows} has no column 'build_s': expected the columns tile, status, seconds, build_s" in message
    assert "found sketch, tile, status, seconds, compile, check_s" in message


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("0.001", "fast"),
        lambda text: text.replace("own,1,", "own,9,"),
        lambda text: text.replace("ok", "fine"),
        lambda text: text.replace("0.002,", ""),
        lambda text: text[: text.rindex(",", 0, -8)],
        lambda text: text + "\n,",
        lambda text: "",
    ],
)
def test_rows_of_a_wrong_form_are_refused_when_the_file_is_read(tmp_path: Path, damage: Any) -> None:
    header, rows = table(tmp_path)
    text = lzma.decompress(rows.read_bytes()).decode()
    changed = damage(text)
    assert changed != text
    write(header, rows, changed)
    with pytest.raises(ConfigError, match="own"):
        from_data({"workloads": [{"table": str(header)}]})


@pytest.mark.parametrize("key", ["file", "sha256", "sketches", "name", "version", "coverage", "format_version"])
@pytest.mark.parametrize("value", [None, 3, "x", [], {}, [3], ...])
def test_headers_of_a_wrong_form_are_refused_when_the_file_is_read(tmp_path: Path, key: str, value: Any) -> None:
    header, _ = table(tmp_path)
    about = json.loads(header.read_text())
    header.write_text(json.dumps({k: v for k, v in {**about, key: value}.items() if v is not ...}))
    try:
        tables.load(header)
    except SearchLabError as e:
        assert str(tmp_path) in str(e) or "own" in str(e)
        with pytest.raises(ConfigError):
            from_data({"workloads": [{"table": str(header)}]})
    else:
        assert key in ("name", "version")  # anything may be a name


def test_rows_are_led_to_their_header(tmp_path: Path) -> None:
    _, rows = table(tmp_path)
    with pytest.raises(SpaceError, match="holds the rows of a table; name its header, own.json"):
        tables.load(rows)


# --- workloads that are too large -------------------------------------------------------------------------------------


def test_a_bound_that_no_program_beats() -> None:
    workload = sl.workload("matmul", m=512, n=512, k=512)
    assert least_s(workload, parse(V3)) == pytest.approx(2 * 512**3 / (6e9 * 4 * 8))
    assert least_s(workload, parse({"x86-64-v4": {"threads": 4}})) == pytest.approx(2 * 512**3 / (6e9 * 4 * 16 * 4))
    assert least_s(workload, parse("cuda:arch=sm_80")) == 0.0


def test_a_longer_limit_lets_a_large_workload_through_with_an_honest_forecast() -> None:
    data = {"workloads": ["matmul:m=16384,n=16384,k=16384"], "target": V3, "budget": {"trials": 100}, "seeds": [0]}
    with pytest.raises(ConfigError, match="8.8 Top take at least 45.8 s with 1 thread"):
        from_data(data)
    large = from_data({**data, "measure": {"local": {"run_s": 5000}}})
    assert forecast(cells(large), []).seconds > 100 * 5 * 45.8
    small = from_data({**data, "workloads": ["matmul:m=64,n=64,k=64"]})
    assert forecast(cells(small), []).seconds < 100


def test_tasks_of_networks_are_looked_at_too() -> None:
    tasks = {"matmul:m=64": 1, "matmul:m=16384,n=16384,k=16384": 2}
    with pytest.raises(ConfigError, match="8.8 Top") as caught:
        from_data({"workloads": [{"network": {"name": "two", "tasks": tasks}}], "target": V3})
    assert len(caught.value.problems) == 1


# --- what components return -------------------------------------------------------------------------------------------


def study(**components: Any) -> sl.Study:
    return sl.Study(tables.load("matmul-256"), **{"model": None, "strategy": "random", "batch": 4, **components})


@pytest.mark.parametrize(
    ("name", "returned"),
    [
        ("Nothing", "None"),
        ("Rows", "a value of type list"),
        ("Elsewhere", r"points that are not in the space, such as \[7, 0, 0\]"),
        ("Late", "None"),
    ],
)
def test_a_strategy_that_returns_something_else_is_named(name: str, returned: str) -> None:
    wanted = "it must return Points of space 'matmul-256', none when it is used up"
    with pytest.raises(ComponentError, match=rf"strategy '{MADE}:{name}': ask\(4\) returned {returned}; {wanted}"):
        study(strategy=f"{MADE}:{name}").optimize(trials=8)


@pytest.mark.parametrize(
    ("kind", "returned"),
    [
        ("none", "None"),
        ("list", "a value of type list"),
        ("short", r"an array of shape \(\d+,\)"),
        ("table", r"an array of shape \(\d+, 1\)"),
        ("nan", r"\d+ scores that are not numbers \(NaN\)"),
        ("words", "an array of <U4"),
    ],
)
def test_a_model_that_predicts_something_else_is_named(kind: str, returned: str) -> None:
    wanted = "it must return one number for each point, smaller for what should be faster"
    with pytest.raises(
        ComponentError, match=rf"model '{MADE}:Scores': predict of \d+ points returned {returned}; {wanted}"
    ):
        study(model={f"{MADE}:Scores": {"kind": kind}}).optimize(trials=8)


@pytest.mark.parametrize(
    ("name", "returned"), [("NoSketches", "returned None"), ("OddSketches", "gave a value of type Program")]
)
def test_a_space_that_returns_something_else_is_named(name: str, returned: str) -> None:
    task = sl.Task(sl.workload("matmul", m=16, n=16, k=16), parse(V3))
    with pytest.raises(ComponentError, match=f"space '{MADE}:{name}': sketches {returned}; it must return Sketch"):
        sl.Study(task, space=f"{MADE}:{name}", model=None)


# --- components on the command line -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "space",
    [
        "template",
        "spaces.template:TemplateSpace",
        "{template: {structures: 8}}",
        "{spaces.template:TemplateSpace: {structures: 8}}",
    ],
)
def test_spaces_on_the_command_line_take_all_forms(space: str) -> None:
    found = CliRunner().invoke(app, ["show", "matmul:m=16,n=16,k=16", "--space", space, "--json"])
    assert found.exit_code == 0, found.output


def test_what_a_space_on_the_command_line_does_not_take_is_refused() -> None:
    for text in ("{template: {tiles: 8}}", "{template: 3}", "{template", "{a: 1, b: 2}"):
        found = CliRunner().invoke(app, ["show", "matmul:m=16,n=16,k=16", "--space", text])
        assert found.exit_code == 2 and found.output.startswith("error: "), found.output


def test_options_of_components_in_overrides(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(f"workloads: [{{table: matmul-256}}]\nmodel: {{'{MADE}:Scores': {{kind: list}}}}\n")
    for text in ("model.kind=nan", f"model={{{MADE}:Scores: {{kind: nan}}}}"):
        (cell, *_) = cells(load(file, [text]))
        assert cell.model == {f"{MADE}:Scores": {"kind": "nan"}}
    swept = cells(load(file, ["model.kind=nan,list", "seeds=0"]))
    assert [c.model[f"{MADE}:Scores"]["kind"] for c in swept] == ["nan", "list"]  # type: ignore[index]
