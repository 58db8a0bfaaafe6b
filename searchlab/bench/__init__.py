"""Timing workloads beside libraries: contenders for every operator, an interleaved race, rows of results."""

from searchlab.bench.contests import (
    BASELINES,
    DEFAULT,
    EVERY_LIBRARY,
    LIBRARIES,
    OURS,
    ContestRow,
    contest,
    geometric_mean,
    libraries,
    measure,
    prepare,
    prepare_program,
)
from searchlab.bench.library_threads import threads
from searchlab.timing.race import Contender, OtherLoad, Steady, race
from searchlab.timing.turns import Times, noise

__all__ = [
    "BASELINES", "DEFAULT", "EVERY_LIBRARY", "LIBRARIES", "OURS", "Contender", "ContestRow", "OtherLoad", "Steady",
    "Times", "contest", "geometric_mean", "libraries", "measure", "noise", "prepare", "prepare_program", "race",
    "threads",
]  # fmt: skip
