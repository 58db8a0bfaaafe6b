"""Histories: given in a file, read from runs and records, learnt from, and part of what a cell is."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.export.small_run import DATA, write
from lab.run.runs import content

from searchlab import targets
from searchlab.errors import ConfigError
from searchlab.lab.cells import cells
from searchlab.lab.config import Experiment, dump, from_data, load
from searchlab.lab.folder.folder import Folder
from searchlab.lab.history.origins import digest
from searchlab.lab.history.trials import lessons, past
from searchlab.lab.records import RecordStore
from searchlab.lab.replay import replay
from searchlab.lab.run import run
from searchlab.lab.study import Study
from searchlab.search import MODELS, SPACES, History, Points, Task, Trials, space
from searchlab.workloads import parse

SOURCE = "matmul:m=64,n=64,k=64,dtype=float32"
OTHER = "matmul:m=96,n=32,k=48,dtype=float32"
WORK = {"name": "w", "workloads": [OTHER], "space": "template", "model": "none", "strategy": "random", "seeds": 0}


def task(workload: str, threads: int = 1) -> Task:
    return Task(parse(workload), targets.parse({DATA["target"]: {"threads": threads}}))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with 40 measurements with made-up times."""
    with pytest.MonkeyPatch.context() as patch:
        return write(tmp_path_factory.mktemp("runs") / "before", patch)


@pytest.fixture
def copy(source: Path, tmp_path: Path) -> Path:
    """The run in another place, where it may be changed."""
    return Path(shutil.copytree(source, tmp_path / "copied" / "before"))


def one_file(folder: Path, path: Path) -> Path:
    """All records of a run in one file."""
    path.write_text("".join(p.read_text() for p in sorted((folder / "records").iterdir())))
    return path


def entries(experiment: Experiment) -> list[str]:
    return list(dict.fromkeys(c.entry for c in cells(experiment)))


# --- in a file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["runs/before", ["runs/before"], "./runs/../runs/before/"])
def test_paths_are_relative_to_the_file(given: Any, source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "runs" / "before")
    (tmp_path / "e.yaml").write_text(json.dumps({**WORK, "history": given}))
    found = load(tmp_path / "e.yaml")
    assert found.history == (str(tmp_path / "runs" / "before"),)
    (cell,) = cells(found)
    assert cell.history == found.history and cell.config["history"] == [digest(str(source))]


@pytest.mark.parametrize("given", [None, []])
def test_no_history_is_no_part_of_a_cell(given: Any) -> None:
    (cell,) = cells(from_data({**WORK, "history": given}))
    assert "history" not in cell.config and "history" not in cell.factors
    assert cell.id == cells(from_data(WORK))[0].id


def test_files_of_records_are_taken_too(source: Path, tmp_path: Path) -> None:
    file = one_file(source, tmp_path / "all.jsonl")
    found = from_data({**WORK, "history": [str(source), str(file)]})
    assert found.history == (str(source), str(file))
    assert len(cells(found)[0].config["history"]) == 2


def test_overrides_are_relative_to_the_current_folder(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    (tmp_path / "e.yaml").write_text(json.dumps({**WORK, "history": "nowhere"}))
    assert load(tmp_path / "e.yaml", ["history=before"]).history == (str(source),)
    assert load(tmp_path / "e.yaml", ["history=null"]).history == ()
    swept = load(tmp_path / "e.yaml", ["history=null,before"])
    (tmp_path / "again.yaml").write_text(dump(swept))
    monkeypatch.chdir(tmp_path)
    assert load(tmp_path / "again.yaml") == swept
    assert entries(swept) == ["history=none", "history=before"]


def test_sweeps_and_ablations_change_it(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "runs" / "before")
    sweep = {"history": [None, "runs/before"], "strategy": ["random", "genetic"]}
    (tmp_path / "e.yaml").write_text(json.dumps({**WORK, "sweep": sweep}))
    found = load(tmp_path / "e.yaml")
    assert entries(found)[:2] == ["random/history=none", "genetic/history=none"]
    assert [c.factors["history"] for c in cells(found)] == ["none", "none", "before", "before"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "experiment.yaml").write_text(dump(found))
    assert load(tmp_path / "run" / "experiment.yaml") == found
    ablate = {
        "base": {"history": "runs/before"},
        "remove": {"past": {"history": []}},
        "replace": {"none": {"history": None}},
    }
    (tmp_path / "e.yaml").write_text(json.dumps({**WORK, "ablate": {**ablate, "replace": {}}}))
    assert [(c.entry, len(c.history)) for c in cells(load(tmp_path / "e.yaml"))] == [("full", 1), ("without past", 0)]
    (tmp_path / "e.yaml").write_text(json.dumps({**WORK, "ablate": ablate}))
    with pytest.raises(ConfigError, match="'without past' and 'none' are the same search"):
        load(tmp_path / "e.yaml")


def test_histories_of_the_same_name_are_told_apart(source: Path, copy: Path) -> None:
    with pytest.raises(ConfigError, match="are the same search"):
        from_data({**WORK, "sweep": {"history": [str(source), str(copy)]}})
    next((copy / "records").iterdir()).unlink()
    found = from_data({**WORK, "sweep": {"history": [str(source), str(copy)]}})
    assert entries(found) == [f"history={source.parent.name}/before", "history=copied/before"]


def test_a_history_that_does_not_vary_is_a_factor_still(source: Path) -> None:
    (cell,) = cells(from_data({**WORK, "history": str(source)}))
    assert cell.entry == "template/none/random" and cell.factors["history"] == "before"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"gbt": {"view": "knobs"}}}, "model 'gbt' looks at knobs, which differ from space to space"),
        ({"model": {"transfer": {"base": {"gbt": {"view": "knobs"}}}}}, "model 'transfer' looks at knobs"),
        (
            {"workloads": [{"table": "matmul-256"}], "space": None, "measure": "replay"},
            "recorded tables have no programs",
        ),
    ],
)
def test_what_does_not_go_with_a_history(changes: dict[str, Any], message: str, source: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        from_data({**WORK, "history": str(source), **changes})


def test_a_history_is_listed_once_and_is_not_empty(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is listed twice"):
        from_data({**WORK, "history": [str(copy), str(copy)]})
    shutil.rmtree(copy / "records")
    (tmp_path / "empty.jsonl").touch()
    for path in (copy, tmp_path / "empty.jsonl"):
        with pytest.raises(ConfigError, match=f"history: {path} holds no measurements of programs yet"):
            from_data({**WORK, "history": str(path)})


def test_tables_are_no_history(tmp_path: Path) -> None:
    table = {
        "name": "t",
        "workloads": [{"table": "matmul-256"}],
        "strategy": "random",
        "budget": {"trials": 2},
        "seeds": 0,
    }
    run(from_data(table), tmp_path / "run", jobs=0)
    for path in (tmp_path / "run", one_file(tmp_path / "run", tmp_path / "all.jsonl")):
        with pytest.raises(ConfigError, match="holds no measurements of programs"):
            from_data({**WORK, "history": str(path)})


# --- reading ----------------------------------------------------------------------------------------------------------


def test_records_become_trials(source: Path) -> None:
    found = lessons([str(source)], [digest(str(source))], task(OTHER))
    assert (found.used, found.own, found.unfit) == (40, 0, 0)
    (trials,) = found.trials
    records = [r for c in Folder(source).manifest().cells for r in Folder(source).records(c.id).records()]
    fastest: dict[str, float] = {}
    for r in records:
        seconds = min(r.times) if r.ok else np.inf
        fastest[r.program] = min(seconds, fastest.get(r.program, np.inf))
    assert {trials.space.program(p).hash: s for p, s in zip(trials.points, trials.seconds, strict=True)} == fastest
    assert list(fastest) == [trials.space.program(p).hash for p in trials.points]
    assert np.isinf(trials.seconds).any() and np.isfinite(trials.best)


def test_the_task_itself_is_left_out(source: Path) -> None:
    found = lessons([str(source)], [digest(str(source))], task(SOURCE))
    assert (found.trials, found.used, found.own) == ((), 0, 40)
    assert lessons([str(source)], [digest(str(source))], task(SOURCE, threads=2)).used == 40


def test_a_file_gives_the_same_trials(source: Path, tmp_path: Path) -> None:
    file = str(one_file(source, tmp_path / "all.jsonl"))
    (a,), (b,) = (past(p, digest(p)).known for p in (str(source), file))
    order = [np.argsort(k.trials.space.key(k.trials.points)) for k in (a, b)]
    assert a.target == b.target and a.trials.space.hash == b.trials.space.hash
    assert (a.trials.seconds[order[0]] == b.trials.seconds[order[1]]).all()


def test_what_no_longer_fits_is_counted(copy: Path) -> None:
    file = min((copy / "records").iterdir())
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[0]["knobs"]["sketch"] = "gone"
    lines[1]["knobs"]["knobs"].popitem()
    lines[2]["space_version"] = "of old"
    lines[3]["task"] = "matmul-changed"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = lessons([str(copy)], [digest(str(copy))], task(OTHER))
    assert (found.used, found.unfit) == (36, 4)


def test_a_space_that_has_changed_is_taken_as_it_was(copy: Path) -> None:
    now = f'"space_version":"{SPACES.find("template").version}"'
    for file in (copy / "records").iterdir():
        text = file.read_text()
        assert now in text
        file.write_text(text.replace(now, '"space_version":"1"'))
    found = past(str(copy), digest(str(copy)))
    assert found.unfit == 0 and sum(k.records for k in found.known) == 40


def test_a_history_is_read_once(source: Path) -> None:
    assert past(str(source), digest(str(source))) is past(str(source), digest(str(source)))


def test_a_history_that_changed_is_refused(copy: Path) -> None:
    before = digest(str(copy))
    file = min((copy / "records").iterdir())
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ConfigError, match="has changed since the experiment was read"):
        past(str(copy), before)


@pytest.mark.parametrize(
    "model",
    [
        {"gbt": {"view": "loops", "objective": "rank"}},
        {"gbt": {"view": "curves"}},
        {"gbt": {"objective": "pack-sum"}},
        {"ensemble": {"count": 2, "base": {"gbt": {"prior": False}}}},
        {"transfer": {"least": 20, "base": {"gbt": {"prior": False}}}},
        pytest.param({"mlp": {"batches": 5}}, marks=pytest.mark.slow),  # importing torch takes long
        pytest.param({"treegru": {"batches": 5}}, marks=pytest.mark.slow),
    ],
    ids=json.dumps,
)
def test_models_learn_from_other_tasks(model: dict[str, Any], source: Path) -> None:
    pytest.importorskip("torch" if model.keys() & {"mlp", "treegru"} else "xgboost")
    own = space("template", task(OTHER))
    nothing = Trials(OTHER, own, Points.empty(own.width), np.empty(0))
    made = MODELS.make(model, rng=np.random.default_rng(0))
    assert not made.ready
    made.fit(History.of([*lessons([str(source)], [digest(str(source))], task(OTHER)).trials, nothing]))
    assert made.ready
    assert np.isfinite(made.predict(own, own.sample(8, np.random.default_rng(1)))).all()


# --- searching --------------------------------------------------------------------------------------------------------

LEARNING = {
    **DATA,
    "workloads": [OTHER],
    "model": {"transfer": {"base": {"gbt": {"warmup": 8, "prior": False}}, "least": 20}},
    "strategy": {"evolutionary": {"population": 32}},
    "budget": {"trials": 12, "batch": 4},
    "sweep": {},
}


def test_the_model_knows_before_the_first_trial(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xgboost")
    first: list[bool] = []
    ask = Study.ask

    def watched(study: Study, count: int | None = None) -> Any:
        candidates = ask(study, count)
        if not len(study.trials):
            first.append(study.model is not None and study.model.ready)
        return candidates

    monkeypatch.setattr(Study, "ask", watched)
    sweep = {"history": [str(source), None]}
    folder = write(tmp_path / "run", monkeypatch, **{**LEARNING, "sweep": sweep})
    assert first == [True, False]
    log = (folder / "log.txt").read_text()
    assert log.count("the history gives 40 measurements of 1 other tasks") == 1
    predicted = [
        "predicted" in r.notes for c in cells(load(folder / "experiment.yaml")) for r in records_of(folder, c.id)
    ]
    assert predicted[:12] == [True] * 12 and predicted[12:16] == [False] * 4


def records_of(folder: Path, cell: str) -> list[Any]:
    return list(RecordStore(folder / "records" / f"{cell}.jsonl").records())


def test_an_interrupted_run_goes_the_same_way(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xgboost")
    data = {**LEARNING, "history": str(source)}
    whole, cut = (write(tmp_path / name, monkeypatch, **data) for name in ("whole", "cut"))
    ((file,), (result,)) = ((cut / "records").iterdir(), (cut / "cells").iterdir())
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:6]))
    result.unlink()
    write(cut, monkeypatch, **data)

    def trials(folder: Path) -> list[Any]:
        ((_, result),) = content(folder).values()
        return [result[k] for k in ("state", "seconds", "status", "best")]

    assert trials(whole) == trials(cut)
    assert [r.same for r in replay(cut)] == [12]


def test_a_history_that_grew_makes_other_cells(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {**LEARNING, "model": "none", "history": str(copy)}
    folder = write(tmp_path / "run", monkeypatch, **data)
    moved = copy.rename(copy.with_name("moved"))
    write(folder, monkeypatch, **{**data, "history": str(moved)})  # the same by what it holds
    file = min((moved / "records").iterdir())
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ConfigError, match=r"holds another experiment: .*history"):
        write(folder, monkeypatch, **{**data, "history": str(moved)})
