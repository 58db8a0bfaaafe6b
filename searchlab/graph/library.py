"""Library functions, which graphs call by name in destination-passing style: `f(*inputs, *outputs, **attributes)`.

Functions of a `GraphLibrary` are called "library.function", so that a saved graph tells which library it needs.

Arrays are numpy's; bfloat16, which numpy lacks, is given as its bits.  A function writes its outputs and nothing else.
The memory of its arrays is used again after the call, unless it is registered as one that retains them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from searchlab.errors import ComponentError, GraphError
from searchlab.registry import Registry, nearest

if TYPE_CHECKING:
    from searchlab.graph.passes.library_dispatch import LibraryPattern

LibraryFunction = Callable[..., None]

_table: dict[str, LibraryFunction] = {}
_retaining: set[str] = set()


def library(name: str, retains: bool = False) -> Callable[[LibraryFunction], LibraryFunction]:
    """Registers a function under a name; `retains` says that it may keep references to arrays after it returned."""

    def register(function: LibraryFunction) -> LibraryFunction:
        known = _table.get(name)
        if known is not None and _path(known) != _path(function):
            raise GraphError(f"library function '{name}' of {_path(function)} is already defined by {_path(known)}")
        _table[name] = function
        (_retaining.add if retains else _retaining.discard)(name)
        return function

    return register


def library_function(name: str) -> LibraryFunction:
    """The function of a name; the library that the name begins with is imported if it is not yet."""
    owner = name.partition(".")[0]
    if name not in _table and owner in GRAPH_LIBRARIES.names():
        try:
            GRAPH_LIBRARIES.find(owner)
        except ComponentError as e:
            raise GraphError(f"library function '{name}': {e}") from e
    if name not in _table:
        raise GraphError(f"unknown library function '{name}'{nearest(name, sorted(_table))}")
    return _table[name]


def retains_arrays(name: str) -> bool:
    """Whether the arrays of a call may be used after it by the function itself; unknown functions may."""
    return name in _retaining or name not in _table


def library_functions() -> dict[str, LibraryFunction]:
    """All functions by name."""
    return dict(sorted(_table.items()))


def _path(function: Any) -> str:
    return f"{function.__module__}:{function.__qualname__}"


class GraphLibrary(ABC):
    """A library that computes parts of graphs; the arguments of its constructor are its options."""

    name: ClassVar[str]

    @abstractmethod
    def patterns(self) -> Sequence[LibraryPattern]:
        """The chains of operators that it computes, and by which functions."""


GRAPH_LIBRARIES: Registry[GraphLibrary] = Registry("library", "searchlab.libraries", GraphLibrary)  # type: ignore[type-abstract]
