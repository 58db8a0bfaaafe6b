"""Other Python processes: they look for modules where this one does, and in the current folder last.

Modules of a user lie in the current folder as a rule. It comes after Python's own modules and installed packages: what
happens to lie there under the name of one of those must not be run in its place.
"""

from __future__ import annotations

import os
import sys


def command(*words: str) -> list[str]:
    """The words that start a Python which does not put the current folder first, as it would with -m and -c."""
    return [sys.executable, "-P", *words]


def search_path() -> list[str]:
    """Where this process looks for modules; the current folder, if it is not named but meant, comes last."""
    named = [p for p in sys.path if p]
    return named if len(named) == len(sys.path) else [*named, os.getcwd()]


def environment() -> dict[str, str]:
    """The environment of a process to which "module:attribute" means the same as to this one."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(search_path())}
