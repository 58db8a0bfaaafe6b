"""The soak: a short run in which nothing is lost or left, and what it calls growth."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("soak", ROOT / "benchmarks" / "soak.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made  # dataclasses look for their module
    spec.loader.exec_module(made)
    return made


def test_a_short_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", "0", "--json", "--store", tmp_path / "records"]
    found = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=250)
    report = json.loads(found.stdout.splitlines()[-1])
    assert report["unexpected"] == {} and report["lost"] == report["orphans"] == 0
    assert report["trials"] == 26 == len((tmp_path / "records").read_bytes().splitlines())
    assert report["statuses"] == {"build": 1, "crash": 2, "ok": 20, "oom": 1, "timeout": 1, "wrong": 1}


def test_growth_is_fitted_without_the_beginning(module: ModuleType) -> None:
    seconds = [float(n) for n in range(100)]
    flat = module.growth(seconds, [50.0 * (n < 20) + 100.0 for n in range(100)])
    assert flat.gained == pytest.approx(0.0, abs=1e-9) and flat.mean == pytest.approx(100.0)
    rising = module.growth(seconds, [100.0 + 0.5 * n for n in range(100)])
    assert rising.gained == pytest.approx(0.5 * 79) and rising.per_hour == pytest.approx(1800.0)
    assert module.growth([1.0], [5.0]).gained == 0.0


def test_what_counts_as_flat(module: ModuleType) -> None:
    quiet = module.Growth(100.0, 0.5, 1.0)
    assert module.is_flat(quiet, quiet)
    assert not module.is_flat(module.Growth(100.0, 10.0, 20.0), quiet)
    assert module.is_flat(module.Growth(1000.0, 10.0, 20.0), quiet)
    assert not module.is_flat(quiet, module.Growth(20.0, 5.0, 10.0))
