"""Experiments without a device: candidates are emulated, and nothing reads as if their costs were times."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from searchlab.analysis.gpu_cost import MODELLED
from searchlab.cli import app
from searchlab.errors import ConfigError
from searchlab.lab.config import from_data
from searchlab.lab.report import Report
from searchlab.lab.run import load, run
from searchlab.lab.statistics import notes

FILE = {
    "name": "emulated",
    "workloads": ["matmul:m=12,n=10,k=6"],
    "target": {"cuda": {"arch": "sm_80"}},
    "measure": "emulated",
    "sweep": {"space": ["task-mapping", "template"]},
    "strategy": "random",
    "model": "gbt",
    "budget": {"trials": 2, "batch": 2},
    "seeds": [0],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("emulated") / "run"
    summary = run(from_data(FILE), made)
    assert not summary.failed
    return made


def test_records_say_that_costs_are_modelled(folder: Path) -> None:
    lines = [line for path in folder.rglob("*.jsonl") for line in path.read_text().splitlines() if '"ok"' in line]
    assert lines and all(MODELLED in line for line in lines)


def test_results_are_cycles_and_say_so(folder: Path) -> None:
    cells = load(folder).cells
    assert all(c.cell.modelled and 1e-6 < c.final_s < 1e-3 and not c.baselines for c in cells)
    assert "costs are modelled cycles, not times: all were emulated without a device" in notes(cells)


@pytest.mark.parametrize("command", ["status", "best", "leaderboard"])
def test_every_command_says_so(folder: Path, command: str) -> None:
    shown = CliRunner().invoke(app, [command, str(folder)])
    assert shown.exit_code == 0 and "modelled cycles" in " ".join(shown.output.split()), shown.output
    assert " ms" not in shown.output.split("program ")[0]


def test_the_page_says_so(folder: Path) -> None:
    page = Report.of([load(folder)]).html
    assert "modelled cycles, not times" in page and "Modelled cost found on each task" in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measure": "local"}, "sm_80 is emulated here.*measure: emulated checks programs"),
        ({"target": "x86-64-v3"}, "measure: emulated is for NVIDIA GPUs"),
        ({"workloads": ["matmul:m=1024,n=1024,k=1024"]}, "too many to emulate.*at most 2 Mop"),
    ],
    ids=["timed", "cpu", "large"],
)
def test_what_cannot_be_done_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_data({**FILE, **change})
