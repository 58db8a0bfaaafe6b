"""Library functions, which graphs call by name in destination-passing style: `f(*inputs, *outputs, **attributes)`.

Arrays are numpy's; bfloat16, which numpy lacks, is given as its bits.  A function writes its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from searchlab.errors import GraphError
from searchlab.registry import nearest

LibraryFunction = Callable[..., None]

_table: dict[str, LibraryFunction] = {}


def library(name: str) -> Callable[[LibraryFunction], LibraryFunction]:
    """Registers a function under a name."""

    def register(function: LibraryFunction) -> LibraryFunction:
        known = _table.get(name)
        if known is not None and _path(known) != _path(function):
            raise GraphError(f"library function '{name}' of {_path(function)} is already defined by {_path(known)}")
        _table[name] = function
        return function

    return register


def library_function(name: str) -> LibraryFunction:
    """The function of a name."""
    if name not in _table:
        raise GraphError(f"unknown library function '{name}'{nearest(name, sorted(_table))}")
    return _table[name]


def library_functions() -> dict[str, LibraryFunction]:
    """All functions by name."""
    return dict(sorted(_table.items()))


def _path(function: Any) -> str:
    return f"{function.__module__}:{function.__qualname__}"
