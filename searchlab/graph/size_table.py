"""SizeTable: one of several things, depending on a size that is known only at run time."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from searchlab.errors import GraphError

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class SizeTable(Generic[T]):
    """`entries[i]` serves values of the size up to `last[i]`, which is included; the final entry serves all above.

    A table of one entry needs no size.
    """

    entries: tuple[T, ...]
    size: str = ""
    last: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.entries) != len(self.last) + 1:
            raise GraphError(f"a table of {len(self.entries)} entries has one limit fewer, not {len(self.last)}")
        if any(a >= b for a, b in itertools.pairwise(self.last)):
            raise GraphError(f"the limits of a table grow, unlike {', '.join(map(str, self.last))}")
        if self.last and not self.size:
            raise GraphError("a table of several entries names the size that decides between them")

    def at(self, value: int) -> T:
        """The entry for a value of the size."""
        return self.entries[bisect_left(self.last, value)]

    def map(self, change: Callable[[T], U]) -> SizeTable[U]:
        """The table with other entries for the same sizes."""
        return SizeTable(tuple(map(change, self.entries)), self.size, self.last)
