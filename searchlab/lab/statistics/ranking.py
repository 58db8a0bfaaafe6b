"""Rankings: mean ranks over blocks, Friedman's test, then Wilcoxon with Holm, and cliques that cannot be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from searchlab.lab.results import Floats
from searchlab.lab.statistics.pairs import Pair, pairs
from searchlab.lab.statistics.scores import Score
from searchlab.lab.statistics.significance import Friedman, cliques, critical_difference, friedman, ranks_in_blocks
from searchlab.lab.statistics.verdicts import NO_DIFFERENCE, Verdict


@dataclass(frozen=True)
class Ranking:
    """Entries from the best mean rank to the worst.

    `cliques` are the sets of entries without a pairwise verdict of better; pairs are tested only if Friedman's test
    finds a difference (or there is a control).  `nemenyi_cliques` are the sets whose mean ranks are within the
    `critical_difference`.
    """

    entries: tuple[str, ...]
    mean_ranks: dict[str, float]
    blocks: int  # shared by all entries
    unit: str
    alpha: float
    band: float
    friedman: Friedman | None  # None for fewer than three entries
    critical_difference: float | None
    cliques: tuple[tuple[str, ...], ...]
    nemenyi_cliques: tuple[tuple[str, ...], ...]
    pairs: tuple[Pair, ...]

    @property
    def letters(self) -> dict[str, str]:
        """The cliques of every entry as letters; entries that share a letter cannot be told apart."""
        return {e: "".join(_letter(n) for n, c in enumerate(self.cliques) if e in c) for e in self.entries}

    @property
    def leading(self) -> tuple[str, ...]:
        """The entries that no other beats by the tests; no two of them can be told apart."""
        return tuple(e for e in self.entries if self.place(e) == 1)

    def better(self, entry: str, other: str) -> bool:
        """Whether one entry is better than another by the tests."""
        ways = ((entry, other, Verdict.FASTER), (other, entry, Verdict.SLOWER))
        return any((p.a, p.b, p.verdict) in ways for p in self.pairs)

    def place(self, entry: str) -> int:
        """One more than the number of entries that are better by the tests."""
        return 1 + sum(self.better(other, entry) for other in self.entries)


def ranking(
    rows: Sequence[Score],
    rng: np.random.Generator,
    *,
    band: float = 0.02,
    alpha: float = 0.05,
    unit: str = "seed",
    control: str | None = None,
) -> Ranking:
    """Ranks the entries of the rows on the blocks that all of them have; `unit` and `control` are those of `pairs`."""
    entries, times = complete_blocks(rows, unit)
    ranks = ranks_in_blocks(times).mean(axis=0) if len(times) else np.full(len(entries), (len(entries) + 1) / 2)
    order = np.argsort(ranks, kind="stable").tolist()
    ordered = [entries[n] for n in order]
    found = pairs(rows, rng, band=band, alpha=alpha, unit=unit, control=control)
    overall = friedman(times) if len(entries) > 2 else None
    if overall is not None and overall.p_f >= alpha and control is None:
        found = tuple(replace(p, verdict=Verdict.UNKNOWN, why=NO_DIFFERENCE) if p.verdict.ordered else p for p in found)
    distance = critical_difference(len(entries), len(times), alpha) if len(entries) > 1 and len(times) > 1 else None
    gaps = np.abs(ranks[order][:, None] - ranks[order])
    return Ranking(
        tuple(ordered),
        {entries[n]: float(ranks[n]) for n in order},
        len(times),
        unit,
        alpha,
        band,
        overall,
        distance,
        _named(ordered, _different(ordered, found)),
        _named(ordered, gaps > (np.inf if distance is None else distance)),
        found,
    )


def complete_blocks(rows: Sequence[Score], unit: str = "seed") -> tuple[list[str], Floats]:
    """The entries, and their times as blocks x entries, for the blocks that all entries have."""
    entries = list(dict.fromkeys(r.entry for r in rows))
    cells: dict[tuple[object, ...], dict[str, list[float]]] = {}
    for r in rows:
        block = r.stratum if unit == "task" else (*r.stratum, r.seed)
        cells.setdefault(block, {}).setdefault(r.entry, []).append(r.seconds)
    full = [b for b in cells.values() if len(b) == len(entries)]
    times = [[float(np.median(b[e])) for e in entries] for b in full]
    return entries, np.array(times).reshape(len(full), len(entries))


def _different(entries: Sequence[str], found: Sequence[Pair]) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    different = np.zeros((len(entries), len(entries)), dtype=np.bool_)
    for p in found:
        if p.verdict.ordered:
            a, b = entries.index(p.a), entries.index(p.b)
            different[a, b] = different[b, a] = True
    return different


def _named(
    entries: Sequence[str], different: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(entries[n] for n in c) for c in cliques(different))


def _letter(number: int) -> str:
    """a, b, ... z, then a2, b2, ..."""
    return chr(ord("a") + number % 26) + (str(number // 26 + 1) if number >= 26 else "")
