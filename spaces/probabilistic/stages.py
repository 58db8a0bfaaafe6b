"""Values that a probabilistic schedule hands around: drawn places, factors still to be drawn, finished stages."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.tactics import Panel, Tiles
from spaces.probabilistic.instruction import Handle


class DrawnLocation(str):
    """A drawn place: the name of a loop, or inline or root, for `compute_at`."""

    handle: Handle


class Drawn(list[None]):
    """Factors that are drawn for the loop that `split` is given them for.

    `exact` ones never round it up; those for `vectors` do where no whole number of vectors divides it.
    """

    def __init__(
        self, name: str, parts: int, max_innermost: int | None, exact: bool = False, vectors: bool = False
    ) -> None:
        super().__init__([None] * parts)
        self.name, self.parts, self.max_innermost = name, parts, max_innermost
        self.exact, self.vectors = exact, vectors


@dataclass(frozen=True)
class Stages:
    """The work of the rules so far, for those after them: stages that are finished, tiled, fused into tiles, packed.

    Those in `kept` are finished for the post-processors too.  A packed operand has a panel, unless it is laid out for
    calls of an intrinsic.
    """

    done: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    tiled: tuple[Tiles, ...] = ()
    fused: tuple[tuple[str, Tiles], ...] = ()
    packed: tuple[tuple[str, Panel | None], ...] = ()
