"""The end of a study: its finalists beside the default schedule and the libraries, timed in turns in one race."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from searchlab.bench import DEFAULT, LIBRARIES, Steady, contest, prepare, prepare_program
from searchlab.bench.contests import Maker
from searchlab.errors import SpaceError
from searchlab.ir.program import Program
from searchlab.targets import Target
from searchlab.workloads import Workload

_ROUNDS, _STEADY = 5, 0.03  # minimum number of rounds of the race; noise above which it continues


@dataclass(frozen=True)
class Finish:
    """The fastest times in the race, which other programs disturb least: that of the best finalist (number `winner`),
    and those of the other contenders by name.

    `ratio` is the speed-up over the better of numpy and torch.  `load` is the share of all cores that other programs
    used: under high load the figures say little.  `parts` are the final races of a network's tasks.
    """

    winner: int
    seconds: float
    baselines: Mapping[str, float] = field(default_factory=dict)
    ratio: float | None = None
    load: float = 0.0
    parts: tuple[Finish, ...] = ()


def final_race(workload: Workload, target: Target, finalists: Sequence[Program], seconds: float, most: float) -> Finish:
    """Times the finalists, the default schedule and the libraries' versions of the workload, in turns."""

    def maker(program: Program) -> Maker:
        return lambda inputs: prepare_program(program, workload, inputs, target)

    makers = {str(n): maker(program) for n, program in enumerate(finalists)}
    everyone = {**makers, DEFAULT: lambda inputs: prepare(workload, inputs, target)}
    row = contest(workload, target, everyone, None, seconds, _ROUNDS, Steady(_STEADY, most))
    ours = [name for name in makers if name in row.times]
    if not ours:
        raise SpaceError(f"{workload.key}: {row.wrong[next(iter(makers))]}")
    best = min(ours, key=lambda name: row.times[name].min)
    fastest = row.times[best].min
    others = {name: t.min for name, t in row.times.items() if name not in makers}
    rival = min((t for name, t in others.items() if name in LIBRARIES), default=None)
    return Finish(int(best), fastest, others, None if rival is None else rival / fastest, row.other_load)
