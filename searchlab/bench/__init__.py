"""Timing workloads beside numpy and torch: contenders for every operator, an interleaved race, rows of results."""

from searchlab.bench.rows import (
    LIBRARIES,
    OURS,
    Row,
    contest,
    geometric_mean,
    libraries,
    measure,
    prepare,
    prepare_program,
)
from searchlab.bench.timing import Contender, OtherLoad, Steady, Times, joined, noise, race, threads

__all__ = [
    "LIBRARIES", "OURS", "Contender", "OtherLoad", "Row", "Steady", "Times", "contest", "geometric_mean", "joined",
    "libraries", "measure", "noise", "prepare", "prepare_program", "race", "threads",
]  # fmt: skip
