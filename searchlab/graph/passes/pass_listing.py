"""Passes one after the other, and what each of them changes as text."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from searchlab.graph.functions import GraphModule
from searchlab.graph.wellformed import verify_graph

Pass = Callable[[GraphModule], GraphModule]
Watch = Callable[[str, GraphModule, GraphModule], None]


def apply_passes(module: GraphModule, passes: Iterable[Pass], watch: Watch | None = None) -> GraphModule:
    """The module after several passes, each of which is verified; `watch(name, before, after)` sees every step."""
    for change in passes:
        after = change(module)
        verify_graph(after)
        if watch is not None:
            watch(getattr(change, "__name__", str(change)), module, after)
        module = after
    return module


def print_changes(name: str, before: GraphModule, after: GraphModule) -> None:
    """Prints what a pass changed; a way to watch passes."""
    print(f"--- {name}")
    print(module_changes(before, after), end="")


def module_changes(before: GraphModule, after: GraphModule) -> str:
    """The lines that differ between two modules: those that are gone with a minus, those that are new with a plus."""
    lines = difflib.unified_diff(str(before).splitlines(), str(after).splitlines(), n=0, lineterm="")
    return "".join(f"{line}\n" for line in lines if not line.startswith(("---", "+++", "@@")))
