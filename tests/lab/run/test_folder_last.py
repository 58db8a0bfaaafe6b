"""The current folder comes last wherever modules are looked for, so nothing there is run by accident."""

import os
import subprocess
import sys
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TRAP = """
import sys
with open({marks!r}, "a") as file:
    print(__name__, "in", sys.argv, file=file)
raise SystemExit("the wrong " + __name__)
"""
OWN = {"searchlab", "spaces", "costmodels"}  # their folder may be on the path already, before any other
MINE = """
from searchlab.ir import Builder
from searchlab.strategies import Random
from searchlab.workloads import Definition

class Mine(Random):
    "A strategy of a user."

def doubled(n: int = 8) -> Definition:
    b = Builder("doubled")
    A = b.input("A", (n,))
    return Definition(b.program(b.compute("B", (n,), lambda i: A[i] * 2.0)), reference=lambda A: A * 2)
"""
TIMED = """
name: timed
workloads: ["mine:doubled:n=64"]
space: sketch
model: none
strategy: "mine:Mine"
target: x86-64-v3
measure: {local: {repeats: 2, min_repeat_ms: 0.1}}
budget: {trials: 2, batch: 2}
seeds: [0]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a plug-in, and with a trap under the name of every module that Python finds elsewhere."""
    text = TRAP.format(marks=str(tmp_path / "marks"))
    for name in {*sys.stdlib_module_names, *packages_distributions()} - OWN:
        if name.isidentifier() and PathFinder.find_spec(name) is not None:
            (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "timed.yaml").write_text(TIMED)
    return tmp_path


def searchlab(folder: Path, *words: str, module: bool = False) -> "subprocess.CompletedProcess[str]":
    start = ["-m", "searchlab"] if module else [str(Path(sys.executable).with_name("searchlab"))]
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    return subprocess.run(
        [sys.executable, *start, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )


def test_nothing_in_the_folder_is_run_unless_it_is_named(folder: Path) -> None:
    done = searchlab(folder, "run", "timed.yaml", "-j", "1")
    assert not (folder / "marks").exists(), (folder / "marks").read_text()
    assert done.returncode == 0, done.stdout + done.stderr + (folder / "runs/timed/log.txt").read_text()


def test_neither_as_a_module(folder: Path) -> None:
    # what Python itself imports before anything of ours is run, when it is started with -m
    (folder / "nothing").mkdir()
    (folder / "nothing/bare.py").write_text("import sys\nprint(*sys.modules)")
    bare = subprocess.run([sys.executable, "-m", "bare"], cwd=folder / "nothing", capture_output=True, text=True)
    for name in bare.stdout.split():
        (folder / f"{name}.py").unlink(missing_ok=True)
    assert len(list(folder.glob("*.py"))) > 100
    done = searchlab(folder, "run", "timed.yaml", "--dry-run", module=True)
    assert not (folder / "marks").exists(), (folder / "marks").read_text()
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_dry_run_calls_no_stranger(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(TIMED.replace("mine:doubled:n=64", "matmul").replace("mine:Mine", "random"))
    done = searchlab(tmp_path, "run", "bad.yaml", "--dry-run", 'space={sketch: {rules: ["os:abort"]}}')
    assert done.returncode == 2
    assert "rule 'os:abort' is the function abort of posix" in done.stderr
    assert "accepted: a class that extends spaces.sketch.rule.Rule" in done.stderr
