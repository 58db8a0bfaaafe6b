"""A library for some calls only: which, is decided for each kind of call, by measuring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from searchlab.graph.functions import GraphModule
from searchlab.graph.library import GRAPH_LIBRARIES, GraphLibrary
from searchlab.graph.passes.library_dispatch import LibraryPattern, PatternMatch, dispatch_libraries
from searchlab.registry import Component


@GRAPH_LIBRARIES.add
class ChosenCalls(GraphLibrary):
    """What another library computes of the named calls, or of all.

    A call is named as "linear(float32[16, 512], float32[10, 512])": its operators and operands.  `seen` counts the
    calls that it was given.
    """

    name: ClassVar[str] = "chosen"

    def __init__(self, library: Component, calls: Sequence[str] | None = None) -> None:
        self.library, self.calls = GRAPH_LIBRARIES.make(library), calls
        self.seen: Counter[str] = Counter()

    def patterns(self) -> list[LibraryPattern]:
        """The patterns of the library, each of which accepts the named calls alone."""
        return [replace(p, accepts=self._accepts(p)) for p in self.library.patterns()]

    def _accepts(self, pattern: LibraryPattern) -> Callable[[PatternMatch], bool]:
        def accepts(match: PatternMatch) -> bool:
            text = call_text(match)
            if not pattern.accepts(match) or (self.calls is not None and text not in self.calls):
                return False
            self.seen[text] += 1
            return True

        return accepts


def call_text(match: PatternMatch) -> str:
    """What a pattern has matched, in words: the same for equal calls of different values."""
    operators = "+".join(call.callee for call in match.calls)
    return f"{operators}({', '.join(map(str, match.annotations))})"


def library_calls(module: GraphModule, library: Component) -> Counter[str]:
    """The calls of a module that a library could compute, and how often each occurs."""
    every = ChosenCalls(library)
    dispatch_libraries(module, [every])
    return every.seen
