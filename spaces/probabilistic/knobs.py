"""Draws as knobs: the table of options that a symbol may take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from searchlab.errors import SpaceError
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import ONE, Expr, Var, value_of
from searchlab.ir.walk import variables
from searchlab.search import Knob, category, menu, split_knob, tile_knob
from searchlab.search.knob import MOST_OPTIONS


def tile(name: str, extent: Expr, parts: int, cap: int | None, drawn: Sequence[Knob], rounded: bool = False) -> Knob:
    """The factorisations of an extent; of all its values, if it depends on what was drawn before.

    With `rounded` also splits that round it up, if it is a constant.
    """
    known = value_of(extent)
    if known is not None and rounded:
        return tile_knob(name, known, parts, cap, "always")
    if known is not None:
        return split_knob(name, known, parts, cap)
    # the largest comes first: neighbours are found by the prime factors of the first option
    tables = [split_knob(name, v, parts, cap) for v in sorted(_values(name, extent, drawn), reverse=True)]
    return Knob(name, "split", tables[0].symbols, np.concatenate([t.options for t in tables]))


def _values(name: str, extent: Expr, drawn: Sequence[Knob]) -> set[int]:
    """All values of an expression in symbols."""
    needed = {v.name for v in variables(extent)}
    involved = [k for k in drawn if needed & set(k.symbols)]
    if math.prod(len(k) for k in involved) > MOST_OPTIONS:
        raise SpaceError(f"draw '{name}': the extent '{extent}' depends on too many draws to list its values")
    values = {}
    for n, k in enumerate(involved):
        along = [len(k) if m == n else 1 for m in range(len(involved))]
        values.update({s: k.options[:, c].reshape(along) for c, s in enumerate(k.symbols)})
    return set(np.unique(np.asarray(evaluate(extent, values))).tolist())


def product_conditions(extent: Expr, symbols: Sequence[Var]) -> list[Expr]:
    """That the factors make the extent; nothing to say where every option does."""
    if value_of(extent) is not None:
        return []
    product: Expr = ONE
    for s in symbols:
        product = product * s
    return [product.equals(extent)]


def options(name: str, candidates: Sequence[int]) -> Knob:
    """Integers in their order as a menu, others as a category."""
    return (menu if list(candidates) == sorted(candidates) else category)(name, list(candidates), name)


def checked_shares(name: str, candidates: Sequence[Any], probs: Sequence[float] | None) -> tuple[float, ...]:
    """Probabilities, uniform if not given."""
    if not candidates:
        raise SpaceError(f"sample_categorical '{name}': no candidates")
    shares = tuple(float(p) for p in probs) if probs is not None else (1 / len(candidates),) * len(candidates)
    if len(shares) != len(candidates) or min(shares) < 0 or not math.isclose(sum(shares), 1, abs_tol=1e-6):
        raise SpaceError(
            f"sample_categorical '{name}': {len(candidates)} candidates need as many probabilities that add up to 1, "
            f"got {list(shares)}"
        )
    return shares
