"""Policies: the ways to split an extent, to order loops, and to annotate them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search.knob import Ints, split_knob

SPLITS = ("factors", "power2", "verbose", "candidate")
ORDERS = ("identity", "all", "interval", "candidate", "interleave", "interleave_inner")
KINDS = {"none": "serial", "unroll": "unrolled", "vec": "vectorized"}

T = TypeVar("T")
Filter = Callable[[tuple[int, ...]], bool]


def divisors(extent: int) -> list[int]:
    """All numbers that divide an extent, in order."""
    small = [d for d in range(1, int(extent**0.5) + 1) if extent % d == 0]
    return sorted({*small, *(extent // d for d in small)})


def powers_of_two(limit: int) -> list[int]:
    """1, 2, 4, ... up to a limit."""
    return [1 << e for e in range(limit.bit_length())]


def sizes(limit: int) -> list[int]:
    """Sizes worth trying where none has to divide: all small ones, then ever fewer, and those that divide `limit`."""
    steps = (s << e for e in range(limit.bit_length()) for s in (2, 3))
    return sorted({*range(1, min(limit, 8) + 1), *(s for s in (10, 12, 14, *steps) if s <= limit), *divisors(limit)})


def splits(extent: int, parts: int, policy: str, candidates: Sequence[Sequence[int]] | None = None) -> Ints:
    """One row of `parts` factors per way to split, outermost first; the outermost is rounded up where there is a tail.

    factors: exact ones only.  power2: the inner factors are powers of two.  verbose: they are divisors of the extent or
    powers of two.  candidate: the given ones; a first factor of -1 is worked out.
    """
    if policy == "factors":
        return np.array(split_knob("", extent, parts).options)
    if policy == "candidate":
        return _given(extent, parts, candidates)
    if policy not in SPLITS:
        raise SpaceError(f"unknown policy '{policy}' of a split; known: {', '.join(SPLITS)}")
    menu = sorted({*powers_of_two(extent), *(divisors(extent) if policy == "verbose" else ())})
    rows = [inner for inner in itertools.product(menu, repeat=parts - 1) if np.prod(inner) <= extent]
    return np.array([(-(-extent // int(np.prod(inner))), *inner) for inner in rows], dtype=np.int64)


def _given(extent: int, parts: int, candidates: Sequence[Sequence[int]] | None) -> Ints:
    if not candidates:
        raise SpaceError("policy 'candidate' needs `candidates`, a list of factors such as [[-1, 4], [-1, 8]]")
    rows = []
    for given in candidates:
        first, *inner = given
        needed = -(-extent // int(np.prod(inner)))
        if len(given) != parts or min(inner, default=1) < 1 or first not in (-1, needed):
            raise SpaceError(f"candidate {list(given)} does not split {extent} into {parts} parts")
        rows.append((needed, *inner))
    return np.array(rows, dtype=np.int64)


def kept(table: Ints, max_inner: int | None, max_factor: int | None, keep: Filter | None) -> Ints:
    """Rows whose innermost factor, inner factors and `keep` agree."""
    good = np.ones(len(table), np.bool_)
    if max_inner is not None:
        good &= table[:, -1] <= max_inner
    if max_factor is not None:
        good &= (table[:, 1:] <= max_factor).all(axis=1)
    if keep is not None:
        good &= np.array([keep(tuple(row)) for row in table.tolist()], dtype=np.bool_)
    return table[good]


def orders(
    loops: Sequence[str],
    policy: str,
    interval: tuple[int, int] | None = None,
    candidates: Sequence[Sequence[str]] | None = None,
    space: Sequence[Sequence[str]] = (),
    reduce: Sequence[Sequence[str]] = (),
) -> list[tuple[str, ...]]:
    """The orders of loops that a policy allows.

    all; interval: all orders of the loops from a first to before a last; candidate: the given ones.  interleave: chains
    of space and of reduction loops, each outermost first; the space chains but for their innermost loops are merged,
    longest chain first, then the innermost ones are merged with the reduction chains.  interleave_inner: the same, but
    the innermost space loops stay inside the reductions.
    """
    if policy not in ORDERS:
        raise SpaceError(f"unknown policy '{policy}' of an order; known: {', '.join(ORDERS)}")
    if policy == "identity":
        return [tuple(loops)]
    if policy == "all":
        return list(itertools.permutations(loops))
    if policy == "interval":
        first, end = _needed(interval, policy, "interval")
        return [(*loops[:first], *x, *loops[end:]) for x in itertools.permutations(loops[first:end])]
    if policy == "candidate":
        return _given_orders(loops, _needed(candidates, policy, "candidates"))
    return [_interleaved(_needed(space, policy, "space"), reduce, inner=policy == "interleave_inner")]


def _needed(given: T | None, policy: str, option: str) -> T:
    if not given:
        raise SpaceError(f"policy '{policy}' of an order needs `{option}`")
    return given


def _given_orders(loops: Sequence[str], candidates: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    wrong = [list(c) for c in candidates if sorted(c) != sorted(loops)]
    if wrong:
        raise SpaceError(f"{wrong[0]} is not an order of {list(loops)}")
    return [tuple(c) for c in candidates]


def _interleaved(space: Sequence[Sequence[str]], reduce: Sequence[Sequence[str]], inner: bool) -> tuple[str, ...]:
    outer = merged([c[:-1] for c in space])
    last = [c[-1:] for c in space]
    if inner:
        return (*outer, *merged(reduce), *(x for (x,) in last))
    return (*outer, *merged([*last, *reduce]))


def merged(chains: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """One sequence of several: the next loop comes from the chain that has most left, the first of equals."""
    left = [list(c) for c in chains]
    found = []
    while any(left):
        found.append(max(left, key=len).pop(0))
    return tuple(found)


def kinds(loops: int, policy: str) -> tuple[tuple[str, ...], list[tuple[int, ...]]]:
    """The kinds that a policy such as try_unroll_vec names, and for every option the kind of each loop.

    `try` stands for leaving a loop as it is; at most one loop is vectorised.
    """
    words = tuple("none" if w == "try" else w for w in policy.split("_"))
    if not set(words) <= set(KINDS) or len(set(words)) != len(words):
        raise SpaceError(f"unknown policy '{policy}' of annotations; known: try, unroll, vec, joined as in try_unroll")
    rows = itertools.product(range(len(words)), repeat=loops)
    return words, [r for r in rows if [words[k] for k in r].count("vec") <= 1]
