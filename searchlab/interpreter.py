"""Starting other Python processes, with this one's module search path and the current folder last.

User modules are usually in the current folder. It comes after the standard library and installed packages, so that a
file there cannot shadow one of those.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def command(*words: str) -> list[str]:
    """The command that starts Python without putting the current folder first, as -m and -c would."""
    return [sys.executable, "-P", *words]


def search_path() -> list[str]:
    """The module search path of this process; the current folder, if it is implied by "", comes last."""
    named = [p for p in sys.path if p]
    return named if len(named) == len(sys.path) else [*named, os.getcwd()]


@contextmanager
def installed_only() -> Iterator[None]:
    """Imports without the current folder, for packages with namespace packages: any file of that name hides these."""
    before = list(sys.path)
    sys.path[:] = [p for p in before if p not in ("", os.getcwd())]
    try:
        yield
    finally:
        sys.path[:] = before


def environment() -> dict[str, str]:
    """The environment of a process that resolves "module:attribute" as this one does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(search_path())}
