"""The layers of the project: which part may import which, read from the source of every module.

A *part* is a module or package directly under searchlab/, or one of the plug-in packages; the laboratory, which is the
largest, has parts of its own. All imports count: inside functions, under TYPE_CHECKING, and `import_module("...")` with
a literal name.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = {"spaces", "costmodels"}
# Not installed with searchlab, so nothing that is installed may need them.
OUTSIDE = {"benchmarks", "experiments", "tests"}

# What each part may import, from low to high. `searchlab/__init__.py` ("__init__") may import anything; what it imports
# before it is asked to is the business of test_import_time.py.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "dtype": set(),
    "interpreter": set(),
    "named": {"errors"},
    "ir": {"dtype", "errors"},
    "registry": {"errors", "named"},
    "targets": {"dtype", "errors", "interpreter", "registry"},
    "intrinsics": {"errors", "ir", "named", "registry", "targets"},
    "schedule": {"errors", "intrinsics", "ir"},
    "tensorization": {"errors", "intrinsics", "ir", "schedule"},
    "jsonfile": {"errors"},
    "wholefile": set(),
    "lower": {"errors", "ir", "targets"},
    "llvm": {"errors", "intrinsics", "ir", "lower", "targets"},
    "backend": {"errors", "named", "ir", "lower", "targets"},
    "runtime": {"errors", "ir", "lower", "llvm", "targets", "backend"},
    "cuda": {"errors", "intrinsics", "ir", "named", "lower", "llvm", "targets", "backend", "runtime"},
    "analysis": {"errors", "intrinsics", "ir", "schedule", "llvm", "targets"},
    "workloads": {"errors", "ir", "named", "registry"},
    "tactics": {"errors", "ir", "intrinsics", "schedule", "targets", "tensorization"},
    "defaults": {"ir", "schedule", "tactics", "targets"},
    "graph": {
        "backend",
        "defaults",
        "errors",
        "interpreter",
        "intrinsics",
        "ir",
        "llvm",
        "lower",
        "named",
        "registry",
        "runtime",
        "schedule",
        "tactics",
        "targets",
        "wholefile",
        "workloads",
    },
    "video": {
        *("backend", "errors", "graph", "intrinsics", "ir", "llvm", "registry", "runtime", "schedule", "search"),
        *("targets", "wholefile"),
    },
    "timing": {"errors"},
    "bench": {"errors", "interpreter", "ir", "backend", "runtime", "defaults", "targets", "timing", "workloads"},
    "search": {"errors", "ir", "named", "schedule", "analysis", "defaults", "registry", "targets", "workloads"},
    "strategies": {"errors", "search"},
    "measure": {
        "errors",
        "interpreter",
        "ir",
        "search",
        "llvm",
        "analysis",
        "backend",
        "runtime",
        "workloads",
        "targets",
        "timing",
    },
    "dataset": {"errors", "ir", "registry", "analysis", "search", "measure", "targets", "wholefile", "workloads"},
    "doctor": {"errors", "llvm", "backend", "measure", "targets", "timing", "workloads"},
}
for _known in ALLOWED.values():  # who knows programs knows what their elements are
    _known |= {"dtype"} if "ir" in _known else set()
ALLOWED["testing"] = set(ALLOWED)
ALLOWED["lab"] = set(ALLOWED) - {"testing"}
ALLOWED["cli"] = {*ALLOWED, "__init__"} - {"testing"}
ALLOWED["__main__"] = {"cli"}
for _plugin in PLUGINS:
    ALLOWED[_plugin] = {*ALLOWED, "__init__"} - {"cli", "lab", "testing", "__main__"} - PLUGINS


# The same for the parts of searchlab/lab, from low to high. A dotted name is a module or package inside another one;
# `X.__init__` is what a package gathers for its users, which is more than its own modules may know.
LAB: dict[str, set[str]] = {
    "records": set(),
    "auto": set(),
    "code": set(),
    "config": {"auto"},
    "study": {"auto", "records"},
    "manifest": {"code", "config", "study"},
    "results": {"code", "config", "manifest", "study"},
    "export": {"records"},
    "folder": {"code", "config", "export", "manifest", "records", "results", "study"},
    "history": {"code", "folder", "records"},
    "config.checks": {"auto", "config", "history"},
    "config.loading": {"config", "config.checks"},
    "config.__init__": {"config", "config.loading"},
    "cells": {"config", "history", "manifest"},
    "statistics": {"config", "results"},
    "run.cores": {"manifest"},
    "run.processes": set(),
    "run.runoff": {"folder", "manifest", "results", "run.cores", "run.processes", "study"},
    "run.readback": {"config", "folder", "results", "run.runoff"},
    "export.finding": {"folder", "results", "run.runoff"},
    "export.tuned_families": {"export.finding", "folder", "manifest", "results", "run.runoff", "study"},
    "export.opening": {"export", "export.finding", "export.tuned_families"},
    "export.verification": {"export", "export.opening"},
    "export.__init__": {
        "export",
        "export.finding",
        "export.opening",
        "export.tuned_families",
        "export.verification",
        "folder",
    },  # fmt: skip
}
LAB["run.execute"] = {part for part in LAB if not part.startswith("export")} - {"run.readback"}
LAB["run.status"] = {"code", "folder", "manifest", "results", "run.execute", "run.runoff", "statistics"}
LAB["run.__init__"] = {"folder", "run.execute", "run.readback"}
LAB["replay"] = {
    "cells", "code", "config.__init__", "export.finding", "folder", "manifest", "records", "results", "run.execute",
    "study",
}  # fmt: skip
LAB["leaderboard"] = {"export.finding", "folder", "results", "run.runoff", "statistics"}
LAB["tuning"] = {
    "config", "config.__init__", "export.finding", "folder", "manifest", "results", "run.__init__", "run.execute",
    "study",
}  # fmt: skip
LAB["report"] = {
    "config", "export.finding", "folder", "leaderboard", "records", "results", "statistics", "study", "tuning",
}  # fmt: skip
LAB["scaffold"] = set()
LAB["__init__"] = set()


def lab_part(module: str, modules: set[str]) -> str | None:
    """The part of searchlab/lab that a dotted name belongs to; None outside it, and what is in no part for itself."""
    name = module
    while name and name not in modules:
        name = name.rpartition(".")[0]
    inside = name.removeprefix("searchlab.lab").lstrip(".").split(".")
    if not name.startswith("searchlab.lab"):
        return None
    if f"{name}.__init__" in modules:
        inside = [*(word for word in inside if word), "__init__"]
    found = [".".join(inside[:n]) for n in range(len(inside), 0, -1) if ".".join(inside[:n]) in LAB]
    return found[0] if found else inside[0]


def lab_edges(files: dict[Path, str]) -> Iterator[tuple[str, str, str]]:
    """(importing part, imported part, where) for every import from one part of searchlab/lab into another."""
    dotted = {".".join(path.with_suffix("").parts): path for path in files}
    modules = {*dotted, *(name.removesuffix(".__init__") for name in dotted)}
    for name, path in dotted.items():
        owner = lab_part(name, modules)
        for line, module in imported_modules(path, files[path]) if owner is not None else ():
            part = lab_part(module, modules)
            if owner is not None and part is not None and part != owner:
                yield owner, part, f"{path}:{line} imports {module}"


def lab_violations(files: dict[Path, str]) -> list[str]:
    return [
        f"{where}: lab.{owner} may import {', '.join(sorted(LAB.get(owner, ()))) or 'no other part of lab'}, not {part}"
        for owner, part, where in lab_edges(files)
        if part not in LAB.get(owner, ())
    ]


def part_of(module: str) -> str | None:
    """The part a dotted name belongs to; None for a library."""
    top, _, rest = module.partition(".")
    if top == "searchlab":
        name = rest.partition(".")[0]
        # `from searchlab import compile` is an import of the root, `from searchlab import ir` is not.
        return name if name in ALLOWED else "__init__"
    return top if top in PLUGINS | OUTSIDE else None


def owner_of(path: Path) -> str:
    """The part a source file (relative to the root) belongs to."""
    return Path(path.parts[1]).stem if path.parts[0] == "searchlab" else path.parts[0]


@cache
def imported_modules(path: Path, source: str) -> tuple[tuple[int, str], ...]:
    """Line and absolute dotted name of everything that the file imports."""
    return tuple(_imports(path, ast.parse(source, str(path))))


def _imports(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    package = path.parts[:-1]

    def absolute(name: str, level: int) -> str:
        base = package[: len(package) - level + 1] if level else ()
        return ".".join([*base, *([name] if name else [])])

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, absolute(f"{node.module or ''}.{alias.name}".lstrip("."), node.level)
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            name = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            if called in {"import_module", "__import__"} and isinstance(name, str):
                yield node.lineno, absolute(name.lstrip("."), len(name) - len(name.lstrip(".")))


def edges(files: dict[Path, str]) -> Iterator[tuple[str, str, str]]:
    """(importing part, imported part, where) for every import that crosses from one part into another."""
    for path, source in files.items():
        owner = owner_of(path)
        for line, module in imported_modules(path, source):
            part = part_of(module)
            if part is not None and part != owner:
                yield owner, part, f"{path}:{line} imports {module}"


def violations(files: dict[Path, str]) -> list[str]:
    owners = {owner_of(path) for path in files}
    found = [
        f"searchlab/{owner} is not in the table: add it to ALLOWED in tests/test_layers.py with what it may import"
        for owner in sorted(owners - ALLOWED.keys() - {"__init__"})
    ]
    for owner, part, where in edges(files):
        allowed = ALLOWED.keys() - PLUGINS if owner == "__init__" else ALLOWED.get(owner)
        if allowed is not None and part not in allowed:
            found.append(f"{where}: {owner} may import {', '.join(sorted(allowed)) or 'no other part'}, not {part}")
    return found


def cycle(graph: dict[str, set[str]]) -> list[str] | None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def graph_of(files: dict[Path, str]) -> dict[str, set[str]]:
    """The parts each part imports; the root is left out, because it gathers all the others lazily."""
    graph: dict[str, set[str]] = {}
    for owner, part, _ in edges(files):
        if "__init__" not in (owner, part):
            graph.setdefault(owner, set()).add(part)
    return graph


@pytest.fixture(scope="module")
def files() -> dict[Path, str]:
    tops = ["searchlab", *sorted(PLUGINS)]
    paths = sorted(path for top in tops for path in (ROOT / top).rglob("*.py"))
    found = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in paths}
    missing = {"__init__", "ir", *PLUGINS} - {owner_of(path) for path in found}
    assert not missing, f"no source under {ROOT} for {sorted(missing)}: the walk would prove nothing"
    return found


def test_layers(files: dict[Path, str]) -> None:
    found = violations(files)
    assert not found, "\n" + "\n".join(found)


def test_no_cycles(files: dict[Path, str]) -> None:
    assert cycle(graph_of(files)) is None


def test_the_table_has_no_cycles() -> None:
    assert cycle({part: allowed - {"__init__"} for part, allowed in ALLOWED.items()}) is None


def test_layers_of_the_laboratory(files: dict[Path, str]) -> None:
    found = lab_violations(files)
    assert not found, "\n" + "\n".join(found)
    assert cycle(LAB) is None
    assert {part for edge in lab_edges(files) for part in edge[:2]} <= LAB.keys()


@pytest.mark.parametrize(
    "module", ["manifest", "results", "history.origins", "run.execute.cell_worker", "run.runoff.holder", "leaderboard"]
)
def test_parts_of_the_laboratory_are_imported_in_any_order(module: str) -> None:
    command = [sys.executable, "-c", f"import searchlab.lab.{module}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)


@pytest.mark.parametrize(
    ("path", "source", "message"),
    [
        ("searchlab/ir/expr.py", "import searchlab.llvm", "ir may import dtype, errors, not llvm"),
        ("searchlab/ir/expr.py", "from searchlab import schedule", "not schedule"),
        ("searchlab/ir/expr.py", "from ..schedule.split import split", "not schedule"),
        ("searchlab/ir/__init__.py", "from .. import schedule", "not schedule"),
        ("searchlab/ir/expr.py", "def f():\n    from searchlab.llvm.module import emit", "expr.py:2"),
        ("searchlab/ir/expr.py", "if TYPE_CHECKING:\n    import searchlab.lab", "not lab"),
        ("searchlab/ir/expr.py", "importlib.import_module('searchlab.llvm')", "not llvm"),
        ("searchlab/ir/expr.py", "import_module('..llvm', __package__)", "not llvm"),
        ("searchlab/ir/expr.py", "from searchlab import compile", "not __init__"),
        ("searchlab/targets/cpu.py", "from ..ir import Program", "errors, interpreter, registry, not ir"),
        ("searchlab/errors.py", "from .ir import Program", "may import no other part, not ir"),
        ("searchlab/lab/run.py", "import spaces.template", "not spaces"),
        ("searchlab/__init__.py", "def f():\n    import costmodels", "not costmodels"),
        ("searchlab/cli.py", "import benchmarks.codegen", "not benchmarks"),
        ("spaces/template/gemm.py", "from costmodels import gbt", "not costmodels"),
        ("searchlab/novel/thing.py", "", "searchlab/novel is not in the table: add it"),
    ],
)
def test_an_offence_is_found(path: str, source: str, message: str) -> None:
    (found,) = violations({Path(path): source})
    assert message in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("searchlab/ir/expr.py", "import numpy, ast\nfrom . import printer\nfrom .buffer import Buffer"),
        ("searchlab/ir/expr.py", "from ..errors import Error\nfrom searchlab import errors\nimport searchlab.ir"),
        ("searchlab/__init__.py", "def f():\n    from .runtime import compile\n    from . import cli"),
        ("searchlab/cli.py", "import searchlab as sl\nfrom searchlab.lab import run"),
        ("spaces/template/gemm.py", "import searchlab\nfrom searchlab.search import Sketch\nfrom .. import template"),
    ],
)
def test_what_is_allowed_is_let_through(path: str, source: str) -> None:
    assert violations({Path(path): source}) == []


def test_an_offence_in_the_laboratory_is_found() -> None:
    files = {
        Path("searchlab/lab/config/__init__.py"): "from searchlab.lab.config.loading import load",
        Path("searchlab/lab/config/loading.py"): "",
        Path("searchlab/lab/config/settings.py"): "",
        Path("searchlab/lab/manifest.py"): "from searchlab.lab.config.settings import split",
        Path("searchlab/lab/results.py"): "def f():\n    from searchlab.lab.config import load",
        Path("searchlab/lab/novel.py"): "import searchlab.lab.manifest",
    }
    first, second = lab_violations(files)
    assert first.startswith("searchlab/lab/results.py:2 imports searchlab.lab.config.load: lab.results may import code")
    assert first.endswith("not config.__init__") and "lab.novel may import no other part of lab" in second


def test_a_cycle_is_found() -> None:
    sources = {Path("searchlab/ir/a.py"): "import searchlab.errors", Path("searchlab/errors.py"): "from . import ir"}
    assert set(cycle(graph_of(sources)) or ()) == {"ir", "errors"}
