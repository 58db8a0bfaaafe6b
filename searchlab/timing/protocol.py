"""The measurement protocol: how a candidate is timed, and which figure of its samples counts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# The fastest sample suffers least from other programs, which only ever slow a sample down; recorded tables have
# medians.
Figure = Literal["fastest", "median"]


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a candidate is timed: `repeats` samples, each of as many runs as it takes to last `min_repeat_ms`.

    Long runs have fewer samples, at least five, such that the total is at most four times the nominal time.  `cache` is
    "warm" (runs follow each other) or "cold" (caches are flushed before every run).  With `steady`, samples that were
    interrupted by another program or met the core in a slow phase are retaken, up to three times the wanted number in
    total, or until all of them took 0.08 s.

    Precision is reserved for candidates that may win: one whose first run is `early_stop` times slower than the best so
    far is not repeated, and one whose first three samples are all `beaten` times slower gets no more samples.
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
    """The figure of samples; infinite if there are none."""
    if not times:
        return float("inf")
    return min(times) if figure == "fastest" else statistics.median(times)
