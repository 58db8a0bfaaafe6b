"""Creates a new plug-in: a folder with a module, its conformance test, a package and an experiment."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from searchlab.errors import ComponentError
from searchlab.lab.scaffold import texts
from searchlab.registry import nearest
from searchlab.search import REGISTRIES
from searchlab.workloads import operators

# kind -> (the entry point group, its name in `searchlab list`)
KINDS = {
    "space": ("searchlab.spaces", "spaces"),
    "model": ("searchlab.costmodels", "models"),
    "strategy": ("searchlab.strategies", "strategies"),
    "workload": ("searchlab.workloads", "workloads"),
}
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class MadePlugin:
    """A new plug-in: its folder, the files written, and the name to use without installing it."""

    folder: Path
    files: tuple[str, ...]
    component: str


def make(kind: str, name: str, directory: str | os.PathLike[str] = ".") -> MadePlugin:
    """Writes a plug-in into `directory`/`name`, which must not exist."""
    if kind not in KINDS:
        raise ComponentError(f"unknown kind '{kind}'{nearest(kind, KINDS)}")
    words = _words(kind, name)
    folder = Path(directory) / name
    if folder.exists():
        raise ComponentError(f"{folder} already exists and is not overwritten; choose another name or --dir")
    files = {
        f"{words['module']}.py": _plugin(kind, words),
        f"test_{words['module']}.py": texts.TESTS[kind].format(**words),
        "experiment.yaml": texts.EXPERIMENTS[kind].format(**words),
        "pyproject.toml": texts.PYPROJECT.format(**words),
        "README.md": texts.README.format(**words),
    }
    try:
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as e:
        raise ComponentError(f"{folder}: cannot be written: {e.strerror}") from e
    return MadePlugin(folder, tuple(files), f"{words['module']}:{words['class']}")


def _words(kind: str, name: str) -> dict[str, str]:
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise ComponentError(
            f"'{name}' is not a valid name for a {kind}: use lower-case letters, digits and hyphens, such as my-{kind}"
        )
    module = name.replace("-", "_")
    if keyword.iskeyword(module) or module in sys.stdlib_module_names or importlib.util.find_spec(module) is not None:
        raise ComponentError(f"'{name}': '{module}' is already a Python keyword or module; try my-{name}")
    if name in _known(kind):
        raise ComponentError(f"'{name}': a {kind} of this name already exists; try my-{name}")
    camel = "".join(part.capitalize() for part in module.split("_"))
    group, listed = KINDS[kind]
    called = module if kind == "workload" else camel
    return {"name": name, "kind": kind, "module": module, "class": called, "group": group, "listed": listed}


def _known(kind: str) -> list[str]:
    if kind == "workload":
        return list(operators())
    return REGISTRIES[kind].names()


def _plugin(kind: str, words: dict[str, str]) -> str:
    text = (_TEMPLATES / f"example_{kind}.py").read_text(encoding="utf-8")
    small = words["module"] if kind == "workload" else words["name"]
    text = text.replace(f"Example{kind.capitalize()}", words["class"])
    return text.replace("Example", words["class"]).replace("example", small)
