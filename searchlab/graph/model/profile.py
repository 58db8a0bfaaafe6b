"""Profiles: where the time of a model goes, call by call."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from searchlab.graph.vm.call_sites import CallFacts
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import Expr
from searchlab.ir.walk import variables


@dataclass(frozen=True, slots=True)
class ProfiledCall:
    """A call: its result, what is called, seconds, and operations on values where these are known."""

    name: str
    callee: str
    seconds: float
    flops: int | None

    @property
    def gflops(self) -> float | None:
        """Operations per nanosecond."""
        return None if not self.flops or self.seconds <= 0 else self.flops / self.seconds / 1e9


@dataclass(frozen=True)
class ModelProfile:
    """The calls of a function in order, with the time that each takes."""

    function: str
    sizes: Mapping[str, int]
    calls: tuple[ProfiledCall, ...]

    @staticmethod
    def of(
        function: str, calls: Sequence[CallFacts], sizes: Mapping[str, int], times: Sequence[Sequence[int]]
    ) -> ModelProfile:
        """A profile from the nanoseconds at which calls began in several runs: the median for each."""
        rows, made = [], [at for at in range(len(calls) + 1) if times[0][at]]  # without the other halves of branches
        for at, after in itertools.pairwise(made):
            call = calls[at]
            seconds = statistics.median(run[after] - run[at] for run in times) / 1e9
            flops = None if call.flops is None else _known(call.flops, sizes)
            rows.append(ProfiledCall(call.name, call.callee, seconds, flops))
        return ModelProfile(function, dict(sizes), tuple(rows))

    @property
    def seconds(self) -> float:
        """The time of all calls."""
        return sum(c.seconds for c in self.calls)

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {n}" for name, n in self.sizes.items())
        rows = [("call", "calls", "us", "share", "GFLOP/s")]
        for c in self.calls:
            share = c.seconds / self.seconds if self.seconds else 0.0
            speed = "" if c.gflops is None else f"{c.gflops:.1f}"
            rows.append((c.name, c.callee, f"{c.seconds * 1e6:.1f}", f"{share:.1%}", speed))
        flops = sum(c.flops or 0 for c in self.calls)
        total = f"{flops / self.seconds / 1e9:.1f}" if flops and self.seconds else ""
        rows.append(("total", "", f"{self.seconds * 1e6:.1f}", "", total))
        widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
        head = f"{self.function}{f' at {at}' * bool(at)}\n"
        return head + "\n".join(_line(row, widths) for row in rows)


def _known(flops: Expr, sizes: Mapping[str, int]) -> int | None:
    """The value of an expression; None if it has symbols of another function."""
    known = {v.name for v in variables(flops)} <= sizes.keys()
    return int(evaluate(flops, sizes)) if known else None


def _line(row: tuple[str, ...], widths: Sequence[int]) -> str:
    names = "  ".join(f"{text:{width}}" for text, width in zip(row[:2], widths[:2], strict=True))
    figures = "  ".join(f"{text:>{width}}" for text, width in zip(row[2:], widths[2:], strict=True))
    return f"  {names}  {figures}".rstrip()
