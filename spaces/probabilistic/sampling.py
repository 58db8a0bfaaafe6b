"""The three distributions: drawing from them, repairing a decision that no longer fits, and probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from searchlab.search.knob import Ints, split_knob

INLINE, ROOT = -2, -1  # places beside the loops of the reader, which are numbered from the outermost


@lru_cache(maxsize=1024)
def tiles(extent: int, parts: int, cap: int | None) -> Ints:
    """All ordered factorisations whose last factor is at most `cap`."""
    return split_knob("tile", extent, parts, cap).options


def draw_tile(extent: int, parts: int, cap: int | None, rng: np.random.Generator) -> tuple[int, ...]:
    """One factorisation, all equally likely."""
    table = tiles(extent, parts, cap)
    return tuple(table[rng.integers(len(table))].tolist())


def repair_tile(old: Sequence[int], extent: int, parts: int) -> tuple[int, ...]:
    """Old factors on a new extent, from the inside out: one that does not divide what is left takes all of it."""
    found, rest = [], extent
    for factor in [*reversed(old[1:]), *[1] * parts][: parts - 1]:
        factor = factor if factor > 0 and rest % factor == 0 else rest
        found.append(factor)
        rest //= factor
    return (rest, *reversed(found))


def untiled(parts: int) -> tuple[int, ...]:
    """The decision for an extent that is not constant."""
    return (-1, *[1] * (parts - 1))


def draw_option(probs: Sequence[float], rng: np.random.Generator) -> int:
    """The number of an option."""
    return int(rng.choice(len(probs), p=np.array(probs) / sum(probs)))


def draw_other(probs: Sequence[float], but: int, rng: np.random.Generator) -> int | None:
    """The number of another option, with the remaining probabilities; None if there is no other."""
    left = [0.0 if n == but else p for n, p in enumerate(probs)]
    return draw_option(left, rng) if sum(left) > 0 else None


def repair_place(old: int, legal: Sequence[int]) -> int:
    """An old place if it is still legal, else the nearest legal one outside it, else the root."""
    return old if old in legal else max((p for p in legal if ROOT <= p < old), default=ROOT)


def log_tile(factors: Sequence[int], cap: int | None) -> float:
    """The logarithm of a factorisation's probability."""
    if factors[0] < 0:
        return 0.0
    if cap is not None and factors[-1] > cap:
        return -math.inf
    return -math.log(len(tiles(math.prod(factors), len(factors), cap)))


def log_option(option: int, probs: Sequence[float]) -> float:
    """The logarithm of an option's probability."""
    return math.log(probs[option] / sum(probs)) if probs[option] > 0 else -math.inf
