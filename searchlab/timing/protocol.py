"""The protocol of a measurement: how a candidate is timed, and which figure of its samples counts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# The fastest sample suffers least from other programs, which make a sample slower and never faster; recorded tables
# have medians.
Figure = Literal["fastest", "median"]


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a candidate is timed: `repeats` samples, each of as many runs as last `min_repeat_ms` together.

    Of long runs there are fewer, at least five: all together take at most four times as long as is said with that.
    `cache` is "warm" (runs follow each other) or "cold" (caches are emptied before every run).  With `steady`, samples
    that another program interrupted or that met the core in a slow moment are taken again, three times as many as are
    wanted in all at most.

    Precision is for candidates that may win: one whose first run is `early_stop` times slower than the best so far is
    not repeated, and one whose first three samples all are `beaten` times slower gets no more than these.
    """

    warmup: int = 1
    repeats: int = 15
    min_repeat_ms: float = 1.0
    cache: Literal["warm", "cold"] = "warm"
    steady: bool = True
    check: bool = True
    early_stop: float | None = 5.0
    beaten: float | None = 1.3


def figure_of(times: Sequence[float], figure: Figure) -> float:
    """One figure of some samples; infinite if there are none."""
    if not times:
        return float("inf")
    return min(times) if figure == "fastest" else statistics.median(times)
