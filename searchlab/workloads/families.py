"""Families: a workload with one size that is known only at run time, its range, and how often its sizes occur.

    family = read_family("matmul:m=dyn(1..512),n=768,k=768")
    read_family("matmul:m=dyn(1..512, 1: 0.7, 128: 0.3),n=768,k=768")      # these sizes occur, this often

Without weights, sizes occur log-uniformly: as often between 1 and 2 as between 256 and 512.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from searchlab.errors import WorkloadError
from searchlab.workloads.catalogue import parse, workload
from searchlab.workloads.definition import Workload

_DYNAMIC = re.compile(r"(\w+)\s*=\s*dyn\(([^()]*)\)")
_FORM = "dyn(1..512), or dyn(1..512, 1: 0.7, 128: 0.3) with weights of sizes"
_MAPPING = '{dyn: [1, 512]}, or {dyn: [1, 512], weights: {"1": 0.7, "128": 0.3}}'
_COUNT = 5  # sizes that stand for a range
_MOST = 6  # weighted sizes that are all taken
_NEAR = 0.1  # how far such a size may move to one with more divisors, which leave spaces more tiles to choose from
_LARGEST = 1 << 20  # of a range


@dataclass(frozen=True)
class DynamicRange:
    """The sizes of a family, from `low` to `high`; `weights` says how often which occur, if not log-uniformly."""

    low: int
    high: int
    weights: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.low < self.high <= _LARGEST:
            raise WorkloadError(
                f"{self.low}..{self.high} is no range of sizes; accepted: 1 <= first < last <= {_LARGEST}"
            )
        for size, weight in self.weights:
            if not self.low <= size <= self.high:
                raise WorkloadError(f"size {size} has a weight but is not in {self.low}..{self.high}")
            if not 0 < weight < math.inf:
                raise WorkloadError(f"the weight of size {size} says how often it occurs: above 0, not {weight:g}")
        if len({size for size, _ in self.weights}) < len(self.weights):
            raise WorkloadError("a size has two weights")

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"

    @property
    def spec(self) -> str:
        """The form that `read_family` reads."""
        return f"dyn({self}{''.join(f', {s}: {w:g}' for s, w in self.weights)})"

    @cached_property
    def representatives(self) -> tuple[tuple[int, float], ...]:
        """A few sizes that stand for all of them, and the share of calls that each stands for.

        A size stands for those that are nearer to it than to the others, by their ratio.
        """
        sizes, often = self._distribution()
        chosen = np.array(sorted(self._chosen(sizes, often)))
        distance = np.abs(np.log(sizes)[:, None] - np.log(chosen)[None, :])
        share = np.bincount(distance.argmin(axis=1), often, len(chosen)) / often.sum()
        return tuple((int(s), round(float(w), 6)) for s, w in zip(chosen, share, strict=True) if w > 0)

    def _distribution(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The sizes that occur, and how often."""
        if self.weights:
            ordered = sorted(self.weights)
            return np.array([s for s, _ in ordered]), np.array([w for _, w in ordered])
        sizes = np.arange(self.low, self.high + 1)
        return sizes, np.log((sizes + 0.5) / (sizes - 0.5))

    def _chosen(self, sizes: np.ndarray[Any, Any], often: np.ndarray[Any, Any]) -> set[int]:
        if len(sizes) <= _MOST:
            return set(map(int, sizes))
        if self.weights:  # the sizes in the middle of shares of equal weight
            reached, middles = np.cumsum(often) / often.sum(), (np.arange(_COUNT) + 0.5) / _COUNT
            return {int(s) for s in sizes[np.searchsorted(reached, middles)]}
        steps = np.geomspace(self.low, self.high, _COUNT)
        return {self.low, self.high, *(_with_divisors(float(s)) for s in steps[1:-1])}


@dataclass(frozen=True)
class Family:
    """A workload with one run-time size, named `size`, and the range of that size."""

    workload: Workload
    size: str
    range: DynamicRange

    def __post_init__(self) -> None:
        if (sizes := self.workload.sizes) != (self.size,):
            others = ", ".join(s for s in sizes if s != self.size)
            raise WorkloadError(f"{self.workload.label}: a family has one run-time size, and {others} is open, too")

    @property
    def label(self) -> str:
        """The readable form `matmul(m=1..512, n=768, k=768)`."""
        return self.workload.label.replace(f"{self.size}=?{self.size}", f"{self.size}={self.range}", 1)

    @property
    def spec(self) -> str:
        """The form for files and command lines, which `read_family` reads back."""
        return self.workload.spec.replace(f"{self.size}=?{self.size}", f"{self.size}={self.range.spec}", 1)

    def __str__(self) -> str:
        return self.label

    @property
    def representatives(self) -> tuple[tuple[int, float], ...]:
        """The sizes at which it is searched and measured, and the share of calls that each stands for."""
        return self.range.representatives

    def at(self, size: int) -> Workload:
        """The workload at one size."""
        return self.workload.at(**{self.size: size})


def is_family(text: object) -> bool:
    """Whether a workload in the form of text has a size with a range."""
    return isinstance(text, str) and _DYNAMIC.search(text) is not None


def read_family(text: str) -> Family:
    """The family of a text such as `matmul:m=dyn(1..512),n=768,k=768`."""
    found = _DYNAMIC.findall(text)
    name, inside = _only([(name, inside) for name, inside in found], text)
    return _family(parse(_DYNAMIC.sub(lambda m: f"{m[1]}=?", text)), name, _range_of_text(inside))


def family(name: str, /, **params: Any) -> Family:
    """The family of an operator, one of whose parameters has a range: text, or {dyn: [1, 512], weights: {...}}."""
    found = [(k, v) for k, v in params.items() if is_range(v)]
    size, given = _only(found, name)
    return _family(workload(name, **{**params, size: "?"}), size, _range_of(given))


def is_range(value: object) -> bool:
    """Whether the value of a parameter is a range of sizes."""
    return (isinstance(value, Mapping) and "dyn" in value) or (isinstance(value, str) and value.startswith("dyn("))


def _family(made: Workload, size: str, sizes: DynamicRange) -> Family:
    found = Family(made, size, sizes)
    for end in (sizes.low, sizes.high):  # what is impossible at one size is refused here
        found.at(end)
    return found


def _only(found: Iterable[tuple[str, Any]], where: str) -> tuple[str, Any]:
    every = list(found)
    if len(every) != 1:
        names = " and ".join(name for name, _ in every) or "none"
        raise WorkloadError(f"'{where}': a family has one size with a range, such as m=dyn(1..512), not {names}")
    return every[0]


def _range_of(given: Any) -> DynamicRange:
    if isinstance(given, str):
        match = _DYNAMIC.fullmatch(f"size={given}")
        if match is None:
            raise WorkloadError(f"'{given}' is no range of sizes; accepted: {_FORM}")
        return _range_of_text(match[2])
    ends, weights = given["dyn"], given.get("weights") or {}
    if isinstance(ends, str):
        found = _range_of_text(ends)
    elif isinstance(ends, Iterable) and len(listed := list(ends)) == 2 and all(type(e) is int for e in listed):
        found = DynamicRange(*listed)
    else:
        raise WorkloadError(f"{dict(given)} is no range of sizes; accepted: {_MAPPING}")
    if set(given) - {"dyn", "weights"} or not isinstance(weights, Mapping):
        raise WorkloadError(f"{dict(given)} is no range of sizes; accepted: {_MAPPING}")
    return replace(found, weights=tuple(sorted(_weight(s, w) for s, w in weights.items())) or found.weights)


def _range_of_text(inside: str) -> DynamicRange:
    ends, *weights = (part.strip() for part in inside.split(","))
    low, dots, high = (part.strip() for part in ends.partition(".."))
    if not dots or not low.isdecimal() or not high.isdecimal():
        raise WorkloadError(f"'dyn({inside})' is no range of sizes; accepted: {_FORM}")
    pairs = [part.partition(":") for part in weights]
    return DynamicRange(int(low), int(high), tuple(sorted(_weight(s, w) for s, _, w in pairs)))


def _weight(size: object, weight: object) -> tuple[int, float]:
    try:
        return int(str(size)), float(str(weight))
    except ValueError:
        raise WorkloadError(f"'{size}: {weight}' is no size with a weight; accepted: {_FORM}") from None


def _with_divisors(size: float) -> int:
    """The number near a size that most numbers divide; of several the nearest."""
    near = range(math.ceil(size * (1 - _NEAR)), math.floor(size * (1 + _NEAR)) + 1)
    return min(near, key=lambda n: (-_divisors(n), abs(n - size)), default=round(size))


def _divisors(n: int) -> int:
    return sum(2 - (d * d == n) for d in range(1, math.isqrt(n) + 1) if n % d == 0)
