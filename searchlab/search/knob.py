"""Knobs: the tuning parameters of a sketch, as tables of integers.

A knob lists its options; each option assigns one integer to each of the knob's symbols.  The knob also defines which
options are neighbours and how options are encoded for a surrogate model.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from searchlab.errors import SpaceError

Kind = Literal["split", "menu", "category"]
Label = int | float | str
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]

MOST_OPTIONS = 1 << 20


@dataclass(frozen=True, eq=False)
class Knob:
    """One tuning parameter: `options` is a matrix with a row for every option and a column for every symbol.

    A `split` holds factorisations, a `menu` ordered values, a `category` unordered values.  `labels` name options
    that are not integers, such as words or fractions; the integers then merely number them.  A split that rounds up
    has the extent that its rows `cover`; the product of a row may be larger.
    """

    name: str
    kind: Kind
    symbols: tuple[str, ...]
    options: Ints
    labels: tuple[Label, ...] = ()
    covers: int | None = None

    def __post_init__(self) -> None:
        table = np.array(self.options, dtype=np.int64)
        if self.kind not in get_args(Kind):
            raise SpaceError(f"knob '{self.name}': unknown kind '{self.kind}'; known: {', '.join(get_args(Kind))}")
        if table.ndim != 2 or table.shape[1] != len(self.symbols):
            raise SpaceError(f"knob '{self.name}': {table.shape} integers for the symbols {', '.join(self.symbols)}")
        if not len(table):
            raise SpaceError(f"knob '{self.name}' has no options")
        if len(np.unique(table, axis=0)) != len(table):
            raise SpaceError(f"knob '{self.name}' lists an option twice")
        if self.labels and len(self.labels) != len(table):
            raise SpaceError(f"knob '{self.name}' has {len(table)} options and {len(self.labels)} labels")
        table.setflags(write=False)
        object.__setattr__(self, "options", table)

    def __len__(self) -> int:
        return len(self.options)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}: {len(self)} options of {', '.join(self.symbols)}>"

    def label(self, option: int) -> str:
        """An option in readable form: `64`, `16x8x4`, `nearest`."""
        return str(self.labels[option]) if self.labels else "x".join(str(v) for v in self.options[option])

    def value(self, option: int) -> Label | list[int]:
        """An option as plain data: its label, its integer, or its integers."""
        if self.labels:
            return self.labels[option]
        row: list[int] = self.options[option].tolist()
        return row if self.kind == "split" or len(row) != 1 else row[0]

    def option(self, value: Any) -> int:
        """The option with a value in the form that `value` returns."""
        row = tuple(value) if isinstance(value, (list, tuple)) else (value,)
        plain = all(isinstance(v, int | float | str) for v in row)  # types that can be read from a file
        found = self.find([row]).tolist()[0] if plain else -1
        if found < 0:
            few = ", ".join(self.label(n) for n in range(min(len(self), 8)))
            raise SpaceError(f"knob '{self.name}' has no option {value!r}; its {len(self)} options: {few}, ...")
        return int(found)

    def read(self, text: str) -> Label | list[int]:
        """The value whose label is `text`."""
        for n in range(len(self)):
            if self.label(n) == text:
                return self.value(n)
        return text

    def same_options(self, other: Knob) -> bool:
        """Whether option numbers have the same meaning in both knobs."""
        return self is other or (self.labels == other.labels and np.array_equal(self.options, other.options))

    def find(self, rows: Iterable[Sequence[Any]]) -> Ints:
        """The options with these values (labels, if there are any), one row per option; -1 where there is none."""
        return np.array([self._numbers.get(tuple(row), -1) for row in rows], dtype=np.int64)

    @cached_property
    def _numbers(self) -> dict[tuple[Any, ...], int]:
        rows = [(x,) for x in self.labels] if self.labels else [tuple(row) for row in self.options.tolist()]
        return {row: n for n, row in enumerate(rows)}

    # --- neighbours ---------------------------------------------------------------------------------------------------

    @cached_property
    def neighbours(self) -> tuple[Ints, Ints]:
        """The pair (first, flat): the neighbours of option o are `flat[first[o]:first[o + 1]]`.

        Neighbours of a split differ by one prime factor moved from one slot to another; where splits round up, also by
        the next larger or smaller size in one slot, the outermost aside.  Those of an option of a menu are the previous
        and the next one; those in a category are all others.  The relation is symmetric.
        """
        count = len(self)
        here = np.arange(count)
        if self.kind == "split":
            start, end = _factor_moves(self.options) if self.covers is None else _size_moves(self.options)
        elif self.kind == "menu":
            start, end = np.concatenate([here[:-1], here[1:]]), np.concatenate([here[1:], here[:-1]])
        else:
            start = np.repeat(here, count - 1)
            end = (start + 1 + np.tile(np.arange(count - 1), count)) % count
        order = np.lexsort((end, start))
        first = np.concatenate([[0], np.cumsum(np.bincount(start, minlength=count))])
        return first.astype(np.int64), end[order].astype(np.int64)

    # --- for models and records ---------------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `encoding`."""
        if self.kind == "category":
            return tuple(f"{self.name}={self.label(n)}" for n in range(len(self)))
        return self.symbols

    @cached_property
    def encoding(self) -> Floats:
        """Every option as a surrogate model sees it: ordered values as logarithms, categories one-hot."""
        if self.kind == "category":
            return np.eye(len(self))
        numeric = self.labels and not any(isinstance(x, str) for x in self.labels)
        table = np.array([[x] for x in self.labels], dtype=np.float64) if numeric else self.options.astype(np.float64)
        lowest = table.min()
        if lowest < 0:
            return table
        return np.log2(table if lowest > 0 else table + 1)

    @cached_property
    def hashes(self) -> Keys:
        """A hash for every option that depends on its values only, so that options may be added later."""
        texts = (f"{self.name}={self.label(n)}" for n in range(len(self)))
        return np.array([hash_text(t) for t in texts], dtype=np.uint64)

    def to_json(self) -> dict[str, Any]:
        """The knob as plain data."""
        data: dict[str, Any] = {"name": self.name, "kind": self.kind, "symbols": list(self.symbols)}
        data["options"] = self.options.tolist()
        data |= {"labels": list(self.labels)} if self.labels else {}
        return data | ({"covers": self.covers} if self.covers is not None else {})

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Knob:
        """The knob that `to_json` wrote."""
        table = np.array(data["options"], dtype=np.int64)
        labels = tuple(data.get("labels", ()))
        return Knob(data["name"], data["kind"], tuple(data["symbols"]), table, labels, data.get("covers"))


def hash_text(text: str) -> int:
    """A 64-bit hash that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


# --- making knobs -----------------------------------------------------------------------------------------------------


def split_knob(
    name: str, extent: int, parts: int, max_inner: int | None = None, symbols: Sequence[str] | None = None
) -> Knob:
    """All ordered factorisations of `extent` into `parts` factors, the last of which is at most `max_inner`.

    The symbols are name0, name1, ... unless given.
    """
    if extent < 1 or parts < 1:
        raise SpaceError(f"knob '{name}': cannot split {extent} into {parts} parts")
    count = math.prod(math.comb(e + parts - 1, parts - 1) for e in factorize(extent).values())
    if count > MOST_OPTIONS:
        raise SpaceError(f"knob '{name}': {count} ways to split {extent} into {parts} parts are too many to be listed")
    table = factorisations(extent, parts)
    if max_inner is not None:
        table = table[table[:, -1] <= max_inner]
    table = table[np.lexsort(table.T[::-1])]
    return Knob(name, "split", tuple(symbols or (f"{name}{n}" for n in range(parts))), table)


def factorisations(extent: int, parts: int) -> Ints:
    """All ordered factorisations of a number, one in each row."""
    table = np.ones((1, parts), dtype=np.int64)
    for prime, exponent in factorize(extent).items():
        powers = prime ** _compositions(exponent, parts)
        table = (table[:, None, :] * powers[None, :, :]).reshape(-1, parts)
    return table


def menu(name: str, values: Sequence[Label], symbol: str | None = None) -> Knob:
    """A choice among ordered values, given in that order."""
    return _listed(name, "menu", values, symbol)


def category(name: str, values: Sequence[Label], symbol: str | None = None) -> Knob:
    """A choice among unordered values."""
    return _listed(name, "category", values, symbol)


def _listed(name: str, kind: Kind, values: Sequence[Label], symbol: str | None) -> Knob:
    plain = all(isinstance(v, (int, np.integer)) and not isinstance(v, bool) for v in values)
    if not plain and len(set(values)) != len(values):
        raise SpaceError(f"knob '{name}' lists an option twice")
    table = np.array(values if plain else range(len(values)), dtype=np.int64).reshape(-1, 1)
    return Knob(name, kind, (symbol or name,), table, () if plain else tuple(values))


def factorize(number: int) -> dict[int, int]:
    """The prime factors of a number with their exponents."""
    found: dict[int, int] = {}
    prime = 2
    while prime * prime <= number:
        while number % prime == 0:
            found[prime] = found.get(prime, 0) + 1
            number //= prime
        prime += 1
    return found | ({number: 1} if number > 1 else {})


def _compositions(total: int, parts: int) -> Ints:
    """All rows of `parts` non-negative integers with the sum `total`, by stars and bars."""
    bars = np.array(list(itertools.combinations(range(total + parts - 1), parts - 1)), dtype=np.int64)
    bars = bars.reshape(math.comb(total + parts - 1, parts - 1), parts - 1)
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=-1)
    edges[:, -1] = total + parts - 1
    return np.diff(edges, axis=1) - 1


def _size_moves(options: Ints) -> tuple[Ints, Ints]:
    """Pairs of splits that round up, and differ by a prime factor moved, or by one step of one inner size."""
    totals = np.unique(options.prod(axis=1)).tolist()
    moves = [_factor_moves(options, sorted({p for total in totals for p in factorize(total)}))]
    for slot in range(1, options.shape[1]):
        others = [options[:, n] for n in range(1, options.shape[1]) if n != slot]
        order = np.lexsort((options[:, slot], *others))
        alike = np.logical_and.reduce(
            [x[order[1:]] == x[order[:-1]] for x in others] or [np.ones(len(order) - 1, bool)]
        )
        low, high = order[:-1][alike], order[1:][alike]
        moves += [(low, high), (high, low)]
    pairs = np.unique(np.concatenate([np.stack(m) for m in moves], axis=1), axis=1)
    return pairs[0], pairs[1]


def _factor_moves(options: Ints, primes: Sequence[int] = ()) -> tuple[Ints, Ints]:
    """Pairs of splits that differ by one prime factor moved from one slot to another.

    The primes are those of the first split unless given.
    """
    values, ranks = np.unique(options, return_inverse=True)
    strides = len(values) ** np.arange(options.shape[1], dtype=np.int64)
    codes = ranks.reshape(options.shape) @ strides
    order = np.argsort(codes)
    starts, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for prime in primes or factorize(int(options[0].prod())):
        for give, take in itertools.permutations(range(options.shape[1]), 2):
            rows = np.flatnonzero(options[:, give] % prime == 0)
            moved = options[rows]
            moved[:, give] //= prime
            moved[:, take] *= prime
            rank = np.minimum(np.searchsorted(values, moved), len(values) - 1)
            code = rank @ strides
            at = order[np.minimum(np.searchsorted(codes, code, sorter=order), len(codes) - 1)]
            # with a limit on the innermost factor, some moves lead to splits that are not listed
            known = (values[rank] == moved).all(axis=1) & (codes[at] == code)
            starts.append(rows[known])
            ends.append(at[known])
    return np.concatenate(starts), np.concatenate(ends)
