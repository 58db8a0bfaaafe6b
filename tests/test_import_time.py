"""`import searchlab` is cheap: the heavy libraries are imported when they are used, not before."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"torch", "onnx", "onnxruntime", "ray", "optuna", "xgboost", "scipy", "llvmlite", "rich", "typer", "numpy"}


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after running `statement`."""
    code = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_import_searchlab_leaves_heavy_libraries_alone() -> None:
    # A folder without __init__.py could be imported as well; it would have no file.
    modules = modules_after("import searchlab; assert searchlab.__file__")
    assert not modules & HEAVY


def test_the_command_line_needs_only_what_it_prints_with() -> None:
    assert modules_after("import searchlab.cli") & HEAVY <= {"rich", "typer"}


def test_a_heavy_import_would_be_seen() -> None:
    assert modules_after("import rich") & HEAVY == {"rich"}
