"""ReplayMeasurer: looks times up in a recorded table instead of measuring, on a simulated clock.

A candidate of a recorded space has no program, so its job is a `TableJob`: just the integers of the point.
`ReplayMeasurer` is a `Measurer[TableJob]` where others are a `Measurer[Job]`, and yields the same `Outcome`s; a study
makes its jobs with one hook, `measurer.job(space, point)`, and otherwise treats hardware and tables alike.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from searchlab.measure.job import Measurer, Outcome
from searchlab.measure.recorded.tables import Table
from searchlab.search import Points, Space, SpaceError


@dataclass(frozen=True, slots=True)
class TableJob:
    """A candidate to be looked up: its sketch, then its options, as `Points.rows` gives them."""

    id: str
    point: tuple[int, ...]


class ReplayMeasurer(Measurer[TableJob]):
    """Measures points of a recorded space by looking them up.

    Outcomes are those of the table, in the order of the jobs, regardless of the number of workers; workers only divide
    the simulated time.  With `noise`, times are drawn from the recorded raw runs: each row has its own stream of draws,
    so times do not depend on the order of measurements, and re-measuring a row gives new times.

    `clock_s` advances as outcomes are consumed; the overhead of a recorded measurement counts as build time.
    """

    def __init__(
        self, table: Table, workers: int = 1, noise: bool = False, seed: int = 0, repeats: int | None = None
    ) -> None:
        if workers < 1:
            raise ValueError(f"replay takes at least one worker, got {workers}")
        if noise and table.runs is None:
            raise SpaceError(f"table '{table.name}' holds no raw runs to draw noise from")
        self.table = table
        self.workers = workers
        self.noise = noise
        self.seed = seed
        self.repeats = repeats
        self.clock_s = 0.0  # simulated time since the start
        self.busy_s = 0.0  # the same, summed over workers
        self._times_asked: dict[int, int] = {}

    def job(self, space: Space, point: Points, id: str | None = None) -> TableJob:
        """The job of one point; its id is the point's key unless another is given."""
        if id is None:
            id = f"{int(space.key(point)[0]):016x}"
        return TableJob(id, tuple(point.rows()[0]))

    def wait(self, seconds: float) -> None:
        """Advances the simulated clock while no worker is busy, by the time that the search itself takes."""
        self.clock_s += seconds

    def measure(self, jobs: Sequence[TableJob]) -> Iterator[Outcome]:
        """Yields one outcome per job, in order; a batch starts when the previous one has ended."""
        if not all(isinstance(j, TableJob) for j in jobs):
            raise SpaceError(f"table '{self.table.name}' holds no programs: make its jobs with measurer.job(...)")
        if not jobs:
            return iter(())
        points = Points.of((j.point for j in jobs), self.table.space.width)
        outcomes = [self._outcome(j, row) for j, row in zip(jobs, self.table.space.row(points).tolist(), strict=True)]
        return self._timed(outcomes)

    def _timed(self, outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
        """Assigns each outcome to the first free worker, and advances the clock."""
        free_at = [self.clock_s] * self.workers
        for o in outcomes:
            cost = o.build_s + o.check_s + o.run_s
            end = heapq.heappop(free_at) + cost
            heapq.heappush(free_at, end)
            self.clock_s = max(self.clock_s, end)
            self.busy_s += cost
            yield o

    def _outcome(self, job: TableJob, row: int) -> Outcome:
        t = self.table
        if row < 0:
            why = "was not measured" if t.space.coverage == "pool" else "is illegal"
            return Outcome(job.id, "constraints", error=f"{list(job.point)} {why}: it is not a row of '{t.name}'")
        times: tuple[float, ...] = ()
        error = ""
        if t.status[row] != "ok":
            error = t.errors[row] if t.errors else f"recorded as {t.status[row]}"
        else:
            times = self._draw(row) if self.noise else (float(t.seconds[row]),)
        return Outcome(
            job.id,
            t.status[row],
            times,
            error,
            number=1 if times else 0,
            build_s=float(t.build_s[row] + t.overhead_s[row]),
            check_s=float(t.check_s[row]),
            run_s=float(t.run_s[row]),
            worker="replay",
        )

    def _draw(self, row: int) -> tuple[float, ...]:
        runs = self.table.runs
        assert runs is not None
        asked = self._times_asked[row] = self._times_asked.get(row, 0) + 1
        rng = np.random.default_rng([self.seed, row, asked])
        recorded = runs[row]
        drawn = rng.choice(recorded, size=self.repeats or len(recorded))
        return tuple(float(x) for x in drawn)
