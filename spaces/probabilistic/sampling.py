"""The three distributions: drawing from them, repairing a decision that no longer fits, and probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from searchlab.search import Knob, split_knob, tile_knob

INLINE, ROOT = -2, -1  # places beside the loops of the reader, which are numbered from the outermost


@lru_cache(maxsize=1024)
def tiles(extent: int, parts: int, cap: int | None, rounded: bool = False) -> Knob:
    """All ordered factorisations whose last factor is at most `cap`; with `rounded` also splits that round up."""
    return tile_knob("tile", extent, parts, cap, "always") if rounded else split_knob("tile", extent, parts, cap)


def draw_tile(
    extent: int, parts: int, cap: int | None, rng: np.random.Generator, rounded: bool = False
) -> tuple[int, ...]:
    """One split, all equally likely."""
    table = tiles(extent, parts, cap, rounded).options
    return tuple(table[rng.integers(len(table))].tolist())


def repair_tile(old: Sequence[int], extent: int, parts: int) -> tuple[int, ...]:
    """Old factors on a new extent, from the inside out: one that does not divide what is left takes all of it."""
    found, rest = [], extent
    for factor in [*reversed(old[1:]), *[1] * parts][: parts - 1]:
        factor = factor if factor > 0 and rest % factor == 0 else rest
        found.append(factor)
        rest //= factor
    return (rest, *reversed(found))


def repair_rounded(old: Sequence[int], extent: int, parts: int, cap: int | None) -> tuple[int, ...]:
    """The split of a new extent that rounds up and whose inner factors are nearest to old ones, each by its ratio."""
    table = tiles(extent, parts, cap, rounded=True).options
    inner = [1, *[1] * parts, *old[1:]][-(parts - 1) :] if parts > 1 else []
    away = np.abs(np.log2(table[:, 1:] / np.maximum(inner, 1))).sum(axis=1)
    return tuple(table[int(away.argmin())].tolist())


def tile_moves(factors: Sequence[int], extent: int, cap: int | None) -> list[tuple[int, ...]]:
    """The neighbours of a split that may round up."""
    knob = tiles(extent, len(factors), cap, rounded=True)
    (at,) = knob.find([tuple(factors)]).tolist()
    first, flat = knob.neighbours
    return [tuple(knob.options[n].tolist()) for n in flat[first[at] : first[at + 1]]] if at >= 0 else []


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


def log_tile(factors: Sequence[int], cap: int | None, covers: int | None = None) -> float:
    """The logarithm of a split's probability; `covers` is the extent of one that may round up."""
    if factors[0] < 0:
        return 0.0
    if cap is not None and factors[-1] > cap:
        return -math.inf
    extent = math.prod(factors) if covers is None else covers
    return -math.log(len(tiles(extent, len(factors), cap, covers is not None)))


def log_option(option: int, probs: Sequence[float]) -> float:
    """The logarithm of an option's probability."""
    return math.log(probs[option] / sum(probs)) if probs[option] > 0 else -math.inf
