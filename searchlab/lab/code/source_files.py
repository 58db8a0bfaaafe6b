"""The source of a module: its file, and those of all modules that it imports from its own folder or package.

Nothing is imported to find them: imports are read from the source, including those inside functions.  Modules loaded in
other ways (by names computed at run time) and data files are not seen.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

from searchlab.named import INSTALLED, is_shipped


def digest(module: str) -> str | None:
    """Twelve hex digits of a module's source; None if it has none, as in a notebook."""
    found = files(module)
    if not found:
        return None
    made = hashlib.sha256()
    for name in sorted(found):
        content = found[name].read_bytes()
        made.update(f"{name} {len(content)}\n".encode() + content)
    return made.hexdigest()[:12]


def files(module: str) -> dict[str, Path]:
    """The files that a module consists of, keyed by module name."""
    place = _place(module)
    found: dict[str, Path] = {}
    if place is None:
        return found
    todo = [place.first]
    while todo:
        name = todo.pop()
        for part in _with_parents(name):
            if part not in found and (file := place.file(part)) is not None:
                found[part] = file
                todo += [n for n in _imports(part, file) if place.holds(n)]
    return found


@dataclass(frozen=True)
class _SourcePlace:
    """The location of a module: the folder of its outermost package, or its own."""

    folder: Path
    first: str

    def holds(self, name: str) -> bool:
        """Whether a module of this name would belong to the same folder or, if installed, to the same package."""
        top = name.partition(".")[0]
        same = top == self.first.partition(".")[0]
        return not is_shipped(name) and (same or self.folder.name not in INSTALLED)

    def file(self, name: str) -> Path | None:
        """The file of a module; None if it has none, such as a namespace package."""
        path = self.folder.joinpath(*name.split("."))
        suffixes = [".py", *EXTENSION_SUFFIXES]
        choices = [path / "__init__.py", *(path.with_name(path.name + suffix) for suffix in suffixes)]
        return next((c for c in choices if c.is_file()), None)


def _place(module: str) -> _SourcePlace | None:
    if module == "__main__":
        file = getattr(sys.modules[module], "__file__", None)
        return None if file is None else _SourcePlace(Path(file).absolute().parent, Path(file).stem)
    top = module.partition(".")[0]
    try:
        spec = find_spec(top)
    except ValueError:  # a module that was created by hand
        return None
    if spec is None:
        return None
    inside = next(iter(spec.submodule_search_locations or ()), None)
    file = inside or (spec.origin if spec.has_location else None)
    return None if file is None else _SourcePlace(Path(file).absolute().parent, module)


def _with_parents(name: str) -> Iterator[str]:
    """A module and its parent packages, which are imported before it."""
    parts = name.split(".")
    return (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def _imports(name: str, file: Path) -> Iterator[str]:
    """The absolute names of all modules that a module may import."""
    if file.suffix != ".py":
        return
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError):  # a file that does not parse has no imports to follow
        return
    package = name if file.stem == "__init__" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            outer = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*filter(None, outer), *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}".strip(".") for alias in node.names)
            if base:
                yield base
