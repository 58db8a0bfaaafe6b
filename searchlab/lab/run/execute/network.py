"""The bench of a network: those of its tasks, which take turns with one budget."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from searchlab.lab.records import RecordStore
from searchlab.lab.results import PartWinner, Winner
from searchlab.lab.run.execute.equipment import Bench, Final, Over, SingleBench
from searchlab.lab.study import JointStudy, Ledger
from searchlab.lab.study.objective import Latency

if TYPE_CHECKING:
    from searchlab.lab.manifest import Cell
    from searchlab.lab.results import CellResult


class NetworkBench(Bench[JointStudy]):
    """The benches of a network's tasks; times are those of one run of all, each task as often as it occurs."""

    def __init__(self, cell: Cell, parts: Sequence[SingleBench]) -> None:
        self._cell, self._parts = cell, parts
        self._latency = Latency(tuple(part.weight for part in cell.parts))
        self.recorded = cell.recorded
        optima = [o for p in parts if (o := p.optimum_s) is not None]
        self.optimum_s = self._latency(optima) if len(optima) == len(parts) else None

    def now(self) -> float:
        """Simulated clocks stand still while it is another one's turn, so that they add up."""
        return sum(part.now() for part in self._parts) if self.recorded else time.perf_counter()

    def study(self, over: Over, store: RecordStore, before: CellResult | None = None) -> JointStudy:
        ledger = Ledger()
        studies = [part.study(over, store, before, n, ledger) for n, part in enumerate(self._parts)]
        return JointStudy(studies, self._latency.weights, self._cell.scheduler, seed=self._cell.seed)

    def final(self, study: JointStudy) -> Final:
        """The last looks at all tasks, and the times of those who have one for every task."""
        parts = tuple(bench.final(one) for bench, one in zip(self._parts, study.studies, strict=True))
        others = self._latency.by_name([p.baselines for p in parts])
        return Final(self._latency([p.seconds for p in parts]), others, parts)

    def best(self, study: JointStudy, final: Final | None) -> Winner:
        parts = tuple(self._part(study, n, final) for n in range(len(self._parts)))
        return Winner(
            max(p.best.trial for p in parts),
            {p.task: p.best.knobs for p in parts},
            "; ".join(f"{p.task}: {p.best.point}" for p in parts),
            study.best_s if final is None else final.seconds,
            parts,
        )

    def _part(self, study: JointStudy, n: int, final: Final | None) -> PartWinner:
        part, last = self._cell.parts[n], None if final is None else final.parts[n]
        best = self._parts[n].best(study.studies[n], last)
        best = replace(best, trial=study.trial(n, best.trial))
        return PartWinner(part.label, part.weight, best, dict(last.baselines) if last else {})
