"""Mutators: each changes one decision of a trace; how often it is used is its share.

class Narrow(Mutator):
    share = 0.5
    def apply(self, trace, rng):
        return trace.with_decision("j", (24, 2))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from searchlab.search import Knob
from spaces.probabilistic import sampling
from spaces.probabilistic.instruction import CATEGORICAL, LOCATION, Decision, Instruction
from spaces.probabilistic.trace import Trace, decides_control_flow


class Mutator(ABC):
    """One kind of change.  `share` is how often it is used compared with the others."""

    share: float = 1.0

    def __init__(self, share: float | None = None) -> None:
        self.share = type(self).share if share is None else share

    @abstractmethod
    def apply(self, trace: Trace, rng: np.random.Generator) -> Trace | None:
        """The changed trace, or None if there is nothing of this kind to change."""

    def changes(self, knob: Knob) -> bool:
        """Whether a knob is what this mutator changes: its share of the moves of whole populations."""
        return False


class MutateTileSize(Mutator):
    """Moves a factor of one tile from one slot to another; the innermost stays within its limit.

    Where tiles round up, the size in one slot may become the next larger or smaller one instead.
    """

    share = 0.90

    def apply(self, trace: Trace, rng: np.random.Generator) -> Trace | None:
        """The trace with one factor of one tile moved to another slot."""
        tiles = [(i, trace.decisions[i.name]) for i in trace.draws() if i.tiles and i.name in trace.decisions]
        large = [(i, d) for i, d in tiles if isinstance(d.value, tuple) and len(d.value) > 1 and np.prod(d.value) >= 2]
        if not large:
            return None
        i, old = large[int(rng.integers(len(large)))]
        moves = _moves(old, i.arguments["max_innermost"])
        return trace.with_decision(i.name, moves[int(rng.integers(len(moves)))]) if moves else None

    def changes(self, knob: Knob) -> bool:
        """Whether the knob is a split."""
        return knob.kind == "split"


def _moves(old: Decision, cap: int | None) -> list[tuple[int, ...]]:
    assert isinstance(old.value, tuple)
    return sampling.tile_moves(old.value, old.among[0], cap) if old.among else _factor_moves(old.value, cap)


def _factor_moves(factors: Sequence[int], cap: int | None) -> list[tuple[int, ...]]:
    """All splits that differ by one factor moved between two slots."""
    found = []
    for give, old in enumerate(factors):
        for take in range(len(factors)):
            for factor in (f for f in range(2, old + 1) if old % f == 0 and take != give):
                moved = list(factors)
                moved[give] //= factor
                moved[take] *= factor
                if cap is None or moved[-1] <= cap:
                    found.append(tuple(moved))
    return found


class MutateComputeLocation(Mutator):
    """Draws another place for one stage."""

    share = 0.05

    def apply(self, trace: Trace, rng: np.random.Generator) -> Trace | None:
        """The trace with one stage at another legal place."""
        drawn = [i for i in trace.draws() if i.kind == LOCATION and i.name in trace.decisions]
        choices = [(i, [p for p in trace.decisions[i.name].among if p != trace.decisions[i.name].value]) for i in drawn]
        choices = [(i, others) for i, others in choices if others]
        if not choices:
            return None
        i, others = choices[int(rng.integers(len(choices)))]
        return trace.with_decision(i.name, others[int(rng.integers(len(others)))])


class _MutateOption(Mutator):
    """Draws another option of a categorical draw whose name ends with `word`."""

    word: str

    def apply(self, trace: Trace, rng: np.random.Generator) -> Trace | None:
        drawn = [i for i in trace.draws() if self._mine(i) and i.name in trace.decisions]
        if not drawn:
            return None
        i = drawn[int(rng.integers(len(drawn)))]
        old = trace.decisions[i.name].value
        assert isinstance(old, int)
        other = sampling.draw_other(i.arguments["probs"], old, rng)
        return None if other is None else trace.with_decision(i.name, other)

    def _mine(self, i: Instruction) -> bool:
        return i.kind == CATEGORICAL and not decides_control_flow(i) and i.name.endswith(self.word)

    def changes(self, knob: Knob) -> bool:
        return knob.kind != "split" and knob.name.endswith(self.word)


class MutateUnroll(_MutateOption):
    """Draws another limit of unrolling."""

    share = 0.03
    word = "unroll"


class MutateParallel(_MutateOption):
    """Draws another degree of parallelism, where a program draws one under the name `parallel`."""

    share = 0.02
    word = "parallel"


DEFAULT_MUTATORS: tuple[Mutator, ...] = (MutateTileSize(), MutateComputeLocation(), MutateUnroll(), MutateParallel())


def mutate(trace: Trace, mutators: Sequence[Mutator], rng: np.random.Generator, tries: int = 10) -> Trace | None:
    """The trace changed by one mutator, drawn by its share; None if none of several tries found anything to change."""
    shares = np.array([m.share for m in mutators], dtype=np.float64)
    for _ in range(tries):
        changed = mutators[int(rng.choice(len(mutators), p=shares / shares.sum()))].apply(trace, rng)
        if changed is not None:
            return changed
    return None
