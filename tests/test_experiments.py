"""Every file of experiments/ loads, says what it would run, and runs; in the normal suite with next to no budget."""

import csv
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab.export.small_run import MadeUp
from typer.testing import CliRunner

from searchlab.cli import app
from searchlab.lab.cells import cells
from searchlab.lab.config import Experiment, load
from searchlab.lab.report import Report
from searchlab.lab.run import load as load_run
from searchlab.lab.run import run
from searchlab.lab.run.execute.measurers import Measurers
from searchlab.lab.run.runoff import holder
from searchlab.lab.study import Finish, TaskSubject
from searchlab.measure.recorded.tables import shipped

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "experiments"
FILES = sorted(FOLDER.rglob("*.yaml"))
PAPERS = sorted((FOLDER / "papers").glob("*.yaml"))
REPLAYED = [FOLDER / "replay.yaml", FOLDER / "replay-gpu.yaml"]
TIMED = [f for f in FILES if f not in REPLAYED]
TABLES = ROOT / "searchlab" / "data" / "recorded"

TRANSFER = FOLDER / "papers" / "autotvm-transfer.yaml"

by_name = pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)


Needs = Callable[[Path], list[str]]


def final(self: TaskSubject, finalists: object, best_s: float, *_: float) -> Finish:
    """Leaves out the race beside libraries, which takes longer than a search of a few trials."""
    return Finish(0, best_s)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of autotvm.yaml with next to no budget and made-up times."""
    folder = tmp_path_factory.mktemp("past") / "autotvm"
    little = ["effort=smoke", "seeds=[0]", "budget.trials=4", "ablate=null"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskSubject, "final", final)
        patch.setattr(Measurers, "of", lambda *_: MadeUp())
        assert run(load(FOLDER / "papers" / "autotvm.yaml", little), folder, jobs=0).exit_code == 0
    return folder


@pytest.fixture
def needs(request: pytest.FixtureRequest) -> Needs:
    """Overrides that a file needs: the one that learns from an earlier run is told of a small one."""
    return lambda file: [f"history={request.getfixturevalue('past')}"] if file == TRANSFER else []


@by_name
def test_it_loads_and_says_what_it_would_run(file: Path, needs: Needs) -> None:
    experiment = load(file, needs(file))
    assert experiment.name == file.stem
    assert experiment.report.title
    assert experiment.expect
    done = CliRunner().invoke(app, ["run", str(file), *needs(file), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert f"{len(cells(experiment))} cells" in done.output


@by_name
def test_its_comment_has_the_commands(file: Path) -> None:
    text = file.read_text()
    assert f"searchlab run {file.relative_to(ROOT)}" in text
    assert f"`{file.relative_to(FOLDER)}`" in (FOLDER / "README.md").read_text()


@pytest.mark.parametrize("file", PAPERS, ids=lambda f: f.stem)
def test_papers_scale_with_effort(file: Path, needs: Needs) -> None:
    sizes = {}
    for effort in ("smoke", "quick", "default", "full"):
        found = cells(load(file, [f"effort={effort}", *needs(file)]))
        sizes[effort] = (len(found), max(c.budget.trials or 0 for c in found))
    assert sizes["smoke"] < sizes["quick"] < sizes["default"] < sizes["full"]
    experiment = load(file, needs(file))
    assert experiment.effort == "quick"
    assert all(claim.note for claim in experiment.expect)


def test_papers_are_all_on_the_page() -> None:
    page = (ROOT / "docs" / "papers.md").read_text()
    for file in PAPERS:
        assert f"`papers/{file.name}`" in page


@pytest.mark.parametrize("file", PAPERS, ids=lambda f: f.stem)
def test_papers_have_kept_results(file: Path, needs: Needs) -> None:
    kept = ROOT / "docs" / "results"
    page, own = (kept / "README.md").read_text(), (kept / file.stem / "README.md").read_text()
    assert f"({file.stem}/README.md)" in page and f"searchlab run {file.relative_to(ROOT)}" in own
    for claim in load(file, needs(file)).expect:
        assert claim.note in own
    with (kept / file.stem / "cells.csv").open() as table:
        found = list(csv.DictReader(table))
    assert {r["state"] for r in found} == {"done"}
    assert {(r["entry"], int(r["seed"])) for r in found} == {(c.entry, c.seed) for c in cells(load(file, needs(file)))}


def test_quickstart_is_small() -> None:
    found = cells(load(FOLDER / "quickstart.yaml"))
    assert len(found) == 16
    assert sum(c.budget.trials or 0 for c in found) == 384
    assert {c.entry for c in found} == {"template/random", "template/learned", "sketch/random", "sketch/learned"}


def test_sweep_is_a_full_factorial() -> None:
    found = cells(load(FOLDER / "sweep.yaml"))
    assert len(found) == 3 * 3 * 3 * 2 * 3


# --- running ----------------------------------------------------------------------------------------------------------


def first_task_only(experiment: Experiment) -> list[str]:
    """An override that leaves one workload."""
    return [f"workloads=[{json.dumps(experiment.workloads[0])}]"]


@pytest.fixture
def no_race(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskSubject, "final", final)
    monkeypatch.setattr(holder, "hold", lambda *_: None)


def _short_ones() -> Iterator[object]:
    """All but those that take ten seconds with next to no budget; other tests run their kinds."""
    long = {"ansor-tasks", "gpu-spaces", "metaschedule", "rrm", "tensorir"}
    for file in (f for f in TIMED if f.stem not in ("sweep", "quickstart")):
        yield pytest.param(file, id=file.stem, marks=[pytest.mark.slow] if file.stem in long else [])


@pytest.mark.parametrize("file", list(_short_ones()))
@pytest.mark.usefixtures("no_race")
def test_it_runs_with_next_to_no_budget(file: Path, needs: Needs, tmp_path: Path) -> None:
    overrides = ["effort=smoke", "seeds=[0]", "budget.trials=2", "budget.batch=2", *needs(file)]
    experiment = load(file, [*overrides, *first_task_only(load(file, overrides))])
    summary = run(experiment, tmp_path / "run", jobs=0)
    assert summary.exit_code == 0
    assert all(c.best is not None for c in load_run(tmp_path / "run").cells)
    Report.of([load_run(tmp_path / "run")]).write(tmp_path / "report.html")


def test_quickstart_runs_with_races_and_a_run_off(tmp_path: Path) -> None:
    """As users run it: every cell races its best at its end, and all of a task race once more."""
    file, folder = FOLDER / "quickstart.yaml", tmp_path / "run"
    overrides = ["effort=smoke", "seeds=[0]", "budget.trials=3", "budget.batch=3"]
    assert run(load(file, [*overrides, *first_task_only(load(file))]), folder, jobs=0).exit_code == 0
    found = load_run(folder).cells
    assert len(found) == 4 and {c.state for c in found} == {"done"} and {len(c.seconds) for c in found} == {3}
    (race,) = (json.loads(f.read_text()) for f in (folder / "runoffs").iterdir())
    assert race["wrong"] == {} and race["seconds"] == {c.id: c.final_s for c in found}
    for cell in found:
        own = json.loads((folder / "cells" / f"{cell.id}.json").read_text())
        assert own["best"]["seconds"] > 0 and own["best"]["point"] == cell.best.point
        assert {"default", "numpy"} <= own["baselines"].keys() == cell.baselines.keys()
        assert cell.baselines == race["baselines"]


@pytest.mark.parametrize("file", REPLAYED, ids=lambda f: f.stem)
def test_tables_are_searched(file: Path, tmp_path: Path) -> None:
    experiment = load(file, [f"workloads={{table: {TABLES}}}", "seeds=[0]", "budget.trials=24"])
    assert len(cells(experiment)) == 10 * len(shipped())
    assert run(experiment, tmp_path / "run", jobs=0).exit_code == 0
    found = load_run(tmp_path / "run")
    assert {c.state for c in found.cells} == {"done"}
    Report.of([found]).write(tmp_path / "report.html")


@pytest.mark.slow
@pytest.mark.parametrize("file", TIMED, ids=lambda f: f.stem)
def test_its_smoke_preset_runs(file: Path, needs: Needs, tmp_path: Path) -> None:
    experiment = load(file, ["effort=smoke", "seeds=[0]", *needs(file)])
    assert run(experiment, tmp_path / "run").exit_code == 0


KEPT = ROOT / "tests" / "lab" / "kept" / "tasks"  # a run that never changes, and hence a history that has one digest
IDS = {  # of all cells, in their order, with the effort that the file says
    "gpu/gpu-spaces.yaml": "23de6c8bf804",
    "papers/ansor-tasks.yaml": "536021024cb0",
    "papers/ansor.yaml": "17dd754b67ae",
    "papers/autotvm-transfer.yaml": "31bb153fd892",
    "papers/autotvm.yaml": "2aa2a811ed43",
    "papers/hidet.yaml": "ce5bab14c18b",
    "papers/metaschedule.yaml": "50184f0d1ad4",
    "papers/relax.yaml": "20a1cada2965",
    "papers/rrm.yaml": "f8c1b8445a3e",
    "papers/tensorir.yaml": "16dd8bcde4cd",
    "quickstart.yaml": "27d0ce583df4",
    "replay-gpu.yaml": "0863c19dd2f1",
    "replay.yaml": "f462c86b3e94",
    "sweep.yaml": "3ded9d26a845",
}


@by_name
def test_its_cells_are_known_by_the_same_ids(file: Path) -> None:
    """Otherwise earlier runs of it would be those of another experiment."""
    overrides = [f"history={KEPT}"] if file == TRANSFER else []
    found = " ".join(cell.id for cell in cells(load(file, overrides)))
    name = file.relative_to(FOLDER).as_posix()
    assert hashlib.sha256(found.encode()).hexdigest()[:12] == IDS[name]
