"""The end of a study: a heat of its finalists, then the winner beside the default schedule and the libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from searchlab.backend import build
from searchlab.bench import DEFAULT, LIBRARIES, Steady, contest, prepare_program
from searchlab.bench.contests import ContestRow, Maker
from searchlab.errors import SpaceError
from searchlab.ir.program import Program
from searchlab.lab.study.fallback import Fallback, Origin, origin_of, taken_s
from searchlab.lab.study.objective import Latency
from searchlab.lab.study.size_dispatch import FamilyTable
from searchlab.targets import Target
from searchlab.workloads import Workload

_ROUNDS, _STEADY = 5, 0.03  # minimum number of rounds of the race; noise above which it continues


@dataclass(frozen=True)
class Finish:
    """The fastest times in the last race, which other programs disturb least: that of the best finalist (number
    `winner`), and those of the other contenders by name.

    `ratio` is the speed-up over the fastest library.  `load` is the share of all cores that other programs used: under
    high load the figures say little.  `fallback` is the default schedule, which is taken home where it beat the
    finalists.  `parts` are the final races of a network's tasks, and `weights` how often each occurs; the
    `table` of a family has programs for all of its sizes.
    """

    winner: int
    seconds: float
    baselines: Mapping[str, float] = field(default_factory=dict)
    ratio: float | None = None
    load: float = 0.0
    fallback: Fallback | None = None
    parts: tuple[Finish, ...] = ()
    weights: tuple[float, ...] = ()
    table: FamilyTable | None = None

    @property
    def origin(self) -> Origin:
        """Where the program to take home comes from; the tasks of a network have their own origins."""
        return origin_of(self.fallback)

    @property
    def taken_s(self) -> float:
        """The time of the program to take home; `seconds` is that of the search's best, or of a family's table."""
        if self.table is not None:
            return self.seconds
        if self.parts:
            return Latency(self.weights)([part.taken_s for part in self.parts])
        return taken_s(self.fallback, self.seconds)


def final_race(
    workload: Workload, target: Target, finalists: Sequence[Program], default: Program, seconds: float, most: float
) -> Finish:
    """Times the best finalist, the default schedule and the libraries' versions of the workload, in turns.

    The best finalist is the winner of a heat, in which there is time for many turns of each.
    """

    def maker(program: Program) -> Maker:
        built = cache(lambda: build(program, target))
        return lambda inputs, out: prepare_program(built(), workload, inputs, target, out=out)

    def timed(makers: Mapping[str, Maker], rivals: bool) -> ContestRow:
        row = contest(workload, target, makers, None, seconds, _ROUNDS, Steady(_STEADY, most), rivals=rivals)
        if not makers.keys() & row.times.keys() - {DEFAULT}:
            raise SpaceError(f"{workload.key}: {next(row.wrong[name] for name in makers if name in row.wrong)}")
        return row

    makers = {str(n): maker(program) for n, program in enumerate(finalists)}
    best = _fastest(timed(makers, rivals=False)) if len(makers) > 1 else "0"
    row = timed({best: makers[best], DEFAULT: maker(default)}, rivals=True)
    fastest = row.times[best].min
    others = {name: t.min for name, t in row.times.items() if name != best}
    rival = min((t for name, t in others.items() if name in LIBRARIES), default=None)
    ratio = None if rival is None else rival / fastest
    return Finish(int(best), fastest, others, ratio, row.other_load, _fallback(row, best, default))


def _fastest(row: ContestRow) -> str:
    return min(row.times, key=lambda name: row.times[name].min)


def _fallback(row: ContestRow, best: str, default: Program) -> Fallback | None:
    """The default schedule beside the best finalist; the noise is that of the two."""
    if DEFAULT not in row.times:
        return None
    noise = max(row.times[name].spread for name in (best, DEFAULT))
    return Fallback.of(default.hash, row.times[DEFAULT].min, row.times[best].min, noise)
