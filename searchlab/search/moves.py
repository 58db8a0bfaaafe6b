"""Moves within a sketch: mutation, crossover and neighbourhoods of whole populations; results are always valid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from searchlab.search.knob import Floats, Ints, Kind
from searchlab.search.points import Options
from searchlab.search.sketch import Sketch

_ROUNDS = 6  # random attempts before the valid changes of the remaining rows are enumerated
_CHUNK = 512  # points whose changes are enumerated together


def mutate(
    sketch: Sketch, options: Options, rng: np.random.Generator, local: float, weights: Floats | None = None
) -> Options:
    """Changes one knob of every row; a row without a valid single change is returned unchanged.

    `weights` are the relative probabilities of the knobs; without them all are equally likely.
    """
    result = options.copy()
    left = np.arange(len(options))
    for _ in range(_ROUNDS):
        tried = change_one(sketch, options[left], rng, local, weights)
        good = sketch.valid(tried)
        result[left[good]] = tried[good]
        left = left[~good]
        if not len(left):
            return result
    for start in range(0, len(left), _CHUNK):
        rows = left[start : start + _CHUNK]
        owner, changed = one_knob_changes(sketch, options[rows], False, _live(sketch, weights)[0])
        chosen = _one_each(owner, rng)
        result[rows[owner[chosen]]] = changed[chosen]
    return result


def change_one(
    sketch: Sketch, options: Options, rng: np.random.Generator, local: float, weights: Floats | None = None
) -> Options:
    """Sets a random knob to a neighbouring option (with probability `local`) or to any other, valid or not."""
    live, weights = _live(sketch, weights)
    if not len(live) or not len(options):
        return options
    count = len(options)
    rows = np.arange(count)
    knob = live[rng.integers(len(live), size=count) if weights is None else _weighted(weights, count, rng)]
    draw, adjacent = rng.random(count), rng.random(count) < local
    changed = options.copy()
    changed[rows, knob] = sketch.moves.step(knob, options[rows, knob], draw, adjacent)
    return changed


def _live(sketch: Sketch, weights: Floats | None) -> tuple[Ints, Floats | None]:
    """The knobs that can change, and their weights; if all weights are zero, all knobs are equally likely."""
    live = np.flatnonzero(sketch.sizes > 1)
    if weights is None or not (weights[live] > 0).any():
        return live, None
    live = live[weights[live] > 0]
    return live, weights[live]


def by_kind(kinds: Mapping[Kind, float]) -> Callable[[Sketch], Floats]:
    """Weights of knobs by their kind; the weight of a kind is divided evenly among its knobs."""

    def weights(sketch: Sketch) -> Floats:
        present = [k.kind for k in sketch.knobs]
        return np.array([kinds.get(k, 0.0) / present.count(k) for k in present])

    return weights


def _weighted(weights: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Positions drawn with these weights."""
    edges = np.cumsum(weights)
    positions: Ints = np.searchsorted(edges[:-1], rng.random(count) * edges[-1], side="right")
    return positions


def one_knob_changes(
    sketch: Sketch, options: Options, adjacent: bool, knobs: Iterable[int] | None = None
) -> tuple[Ints, Options]:
    """All valid rows that differ in one of `knobs`, by a neighbouring option or by any, and the row each came from."""
    owners, changes = [], []
    moves = sketch.moves
    for k in range(len(sketch.knobs)) if knobs is None else knobs:
        old, size = options[:, k], int(sketch.sizes[k])
        at = moves.base[k] + old
        degree = moves.degree[at] if adjacent else np.full(len(old), size - 1)
        owner = np.repeat(np.arange(len(old)), degree)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(degree) - degree, degree)
        changed = options[owner]
        changed[:, k] = moves.flat[moves.first[at][owner] + place] if adjacent else (old[owner] + 1 + place) % size
        owners.append(owner)
        changes.append(changed)
    owner, changed = np.concatenate(owners), np.concatenate(changes)
    good = sketch.valid(changed)
    return owner[good], changed[good]


def _one_each(owner: Ints, rng: np.random.Generator) -> Ints:
    """The position of one entry per owner, drawn uniformly from the owner's entries."""
    order = np.lexsort((rng.random(len(owner)), owner))
    return order[np.flatnonzero(np.diff(owner[order], prepend=-1))]


def crossover(sketch: Sketch, a: Options, b: Options, rng: np.random.Generator) -> Options:
    """Rows that take each knob from either parent; the first parent where no attempt gives a valid row."""
    result = a.copy()
    left = np.arange(len(a))
    for _ in range(_ROUNDS):
        if not len(left):
            break
        child = np.where(rng.random((len(left), a.shape[1]), dtype=np.float32) < 0.5, a[left], b[left])
        good = sketch.valid(child)
        result[left[good]] = child[good]
        left = left[~good]
    return result
