"""The plug-ins that `searchlab new` writes work unchanged and overwrite nothing."""

import importlib
import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import searchlab as sl
from searchlab import testing
from searchlab.errors import ComponentError
from searchlab.lab.cells import cells
from searchlab.lab.config import load as load_experiment
from searchlab.lab.run import run
from searchlab.lab.scaffold import KINDS, make
from searchlab.measure.recorded.tables import load as load_table
from searchlab.search import space

NAMES = {kind: f"my-{kind}" for kind in KINDS}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that a test imports are forgotten after it."""
    known = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - known:
        if name.startswith(("my_", "test_my_")):
            del sys.modules[name]


def made(kind: str, tmp_path: Path) -> Path:
    folder = make(kind, NAMES[kind], tmp_path).folder
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    return folder


def conformance(folder: Path) -> ModuleType:
    (path,) = folder.glob("test_*.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", KINDS)
def test_the_conformance_test_passes(kind: str, tmp_path: Path) -> None:
    module = conformance(made(kind, tmp_path))
    tests = [f for name, f in vars(module).items() if name.startswith("test_")]
    assert len(tests) == 1
    tests[0]()


@pytest.mark.parametrize("kind", KINDS)
def test_the_package_names_it(kind: str, tmp_path: Path) -> None:
    plugin = make(kind, NAMES[kind], tmp_path)
    data = tomllib.loads((plugin.folder / "pyproject.toml").read_text())
    assert data["project"]["entry-points"][KINDS[kind][0]] == {NAMES[kind]: plugin.component}
    assert plugin.component in (plugin.folder / "README.md").read_text()
    assert set(plugin.files) == {p.name for p in plugin.folder.iterdir()}
    source = (plugin.folder / f"my_{kind}.py").read_text()
    assert "xample" not in source
    assert 15 <= len(source.splitlines()) <= 60


def test_a_strategy_searches_by_its_path(tmp_path: Path) -> None:
    made("strategy", tmp_path)
    study = sl.Study(load_table("matmul-256"), model=None, strategy={"my_strategy:MyStrategy": {"explore": 0.5}})
    study.optimize(trials=32)
    assert len(study.trials) == 32
    assert np.isfinite(study.best_s)


def test_a_model_learns_by_its_path(tmp_path: Path) -> None:
    made("model", tmp_path)
    study = sl.Study(load_table("matmul-256"), model="my_model:MyModel", strategy="random", batch=16)
    study.optimize(trials=160)
    assert study.model.ready
    pairwise = [r.quality.pairwise for r in study.rounds if r.quality is not None]
    assert len(pairwise) == 9
    assert np.mean(pairwise) > 0.6


@pytest.mark.parametrize("name", ["matmul", "softmax", "conv2d"])
def test_a_space_serves_other_workloads_too(name: str, tmp_path: Path) -> None:
    made("space", tmp_path)
    sizes = {"conv2d": {"ci": 4, "co": 8, "h": 8, "w": 8, "k": 3, "padding": 1}, "softmax": {"rows": 16, "cols": 32}}
    task = sl.Task(sl.workload(name, **sizes.get(name, {"m": 32, "n": 32, "k": 16})), sl.detect(threads=1))
    found = space({"my_space:MySpace": {"largest": 16}}, task)
    for point in found.sample(3, np.random.default_rng(0)):
        testing.check_point(found, point, task)


def test_a_workload_is_searched_by_its_path(tmp_path: Path) -> None:
    made("workload", tmp_path)
    workload = sl.workload("my_workload:my_workload", n=16, k=8)
    found = space("sketch", sl.Task(workload, sl.detect(threads=1)))
    point = found.sample(1, np.random.default_rng(0))
    testing.check_point(found, point, sl.Task(workload, sl.detect(threads=1)))


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("stratgy", "x", "did you mean 'strategy'"),
        ("strategy", "My Search", "lower-case letters, digits and hyphens, such as my-strategy"),
        ("strategy", "../up", "is not a valid name for a strategy"),
        ("strategy", "1st", "is not a valid name"),
        ("strategy", "random", "'random' is already a Python keyword or module; try my-random"),
        ("model", "lambda", "'lambda' is already a Python keyword or module"),
        ("space", "numpy", "'numpy' is already a Python keyword or module"),
        ("strategy", "annealing", "a strategy of this name already exists"),
        ("workload", "conv2d", "a workload of this name already exists"),
    ],
)
def test_names_that_would_cause_trouble_are_refused(kind: str, name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match=message):
        make(kind, name, tmp_path)
    assert not any(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = make("strategy", "my-strategy", tmp_path).folder
    (folder / "my_strategy.py").write_text("mine")
    with pytest.raises(ComponentError, match="already exists and is not overwritten"):
        make("strategy", "my-strategy", tmp_path)
    assert (folder / "my_strategy.py").read_text() == "mine"


@pytest.mark.parametrize("kind", KINDS)
def test_the_experiment_can_be_run(kind: str, tmp_path: Path) -> None:
    experiment = load_experiment(made(kind, tmp_path) / "experiment.yaml")
    found = cells(experiment)
    settings = {str(getattr(c, kind)) for c in found} if kind != "workload" else {c.workload for c in found}
    assert any(f"my_{kind}:" in s for s in settings)
    assert len({c.entry for c in found}) == (3 if kind in ("strategy", "model") else 2)


@pytest.mark.parametrize("kind", ["strategy", "model"])
def test_the_experiment_runs_without_hardware(kind: str, tmp_path: Path) -> None:
    path = made(kind, tmp_path) / "experiment.yaml"
    summary = run(load_experiment(path, ["seeds=0", "budget.trials=16"]), tmp_path / "run", jobs=0)
    assert (summary.done, summary.failed) == (3, ())
