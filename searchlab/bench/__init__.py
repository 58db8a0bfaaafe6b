"""Timing workloads beside numpy and torch: contenders for every operator, an interleaved race, rows of results."""

from searchlab.bench.rows import LIBRARIES, OURS, Row, geometric_mean, libraries, measure, prepare
from searchlab.bench.timing import Contender, OtherLoad, Times, race, threads

__all__ = [
    "LIBRARIES", "OURS", "Contender", "OtherLoad", "Row", "Times", "geometric_mean", "libraries", "measure", "prepare",
    "race", "threads",
]  # fmt: skip
