"""Recording a task: programs of all spaces that claim it, measured, with the features of all views.

Random programs say little about good ones, so a third are drawn at random, a third are those that the analytical
estimate favours among a thousand, and a third are children of the fastest measured so far.
"""

from __future__ import annotations

import datetime
import platform
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from searchlab.analysis import schema
from searchlab.dataset.archive import Recording, part_name
from searchlab.dataset.stored import STORED_VIEWS, StoredTask, gathered
from searchlab.dataset.task_table import TaskSpec
from searchlab.errors import SearchLabError, SpaceError
from searchlab.ir.program import Program
from searchlab.measure import Job, Limits, Measurer, Outcome, Protocol
from searchlab.search import MODELS, SPACES, CostModel, Points, Space, Task, space
from searchlab.search.knob import Floats
from searchlab.search.reach import Reach
from searchlab.targets import CpuTarget

# Few samples: a data set wants many programs.  One that is 8 times slower than the best is run once.
PROTOCOL = Protocol(repeats=5, min_repeat_ms=0.5, early_stop=8.0, beaten=1.5)
LIMITS = Limits(build_s=5.0, run_s=5.0)
_BATCH = 48
_DRAWN = 1024  # points among which the estimate chooses
_PARENTS = 12
_MAIN_SPACE, _MAIN_SHARE = "sketch", 0.5  # the space that searches use most has half of the programs
_FRUITLESS = 3  # batches without a new program after which the spaces count as exhausted
ORIGINS = ("random", "favoured", "child")


@dataclass(frozen=True, eq=False)
class _Chosen:
    """A program that is to be measured, and where it comes from."""

    pool: _Pool
    point: Points
    origin: str
    program: Program


class _Pool:
    """One space of the task, the points that were chosen in it, and the fastest of them."""

    def __init__(self, made: Space, share: float, estimate: CostModel, rng: np.random.Generator) -> None:
        self.space, self.share = made, share
        self._estimate, self._rng = estimate, rng
        self._reach, self._batches = Reach(made, rng), 0
        self._seen: set[int] = set()
        self._measured: list[tuple[float, Points]] = []

    def told(self, point: Points, seconds: float) -> None:
        """Notes the time of a point."""
        if np.isfinite(seconds):
            self._measured.append((seconds, point))

    def choose(self, count: int) -> Iterator[tuple[Points, str]]:
        """About `count` points that were not chosen before, of all origins."""
        part = self._reach.space(self._batches)
        self._batches += 1
        each = -(-count // len(ORIGINS))
        try:
            random, drawn = part.sample(each, self._rng), part.sample(_DRAWN, self._rng)
        except SpaceError:  # the conditions leave too little to draw from: what there is comes without repetition
            random = drawn = self.space.sample_new(_DRAWN, self._rng).points
        order = np.argsort(self._estimate.predict(self.space, drawn), kind="stable")
        for points, origin in zip((random, drawn[order], self._children(4 * each)), ORIGINS, strict=True):
            yield from ((point, origin) for point in self._new(points, each))

    def _children(self, count: int) -> Points:
        """Mutants and crossings of the fastest points so far; none before there are a few."""
        best = [point for _, point in sorted(self._measured, key=lambda m: m[0])[:_PARENTS]]
        if len(best) < 2:
            return Points.empty(self.space.width)
        parents = Points.concat(best)
        first, second = (parents[self._rng.integers(len(best), size=count)] for _ in range(2))
        crossed = self.space.crossover(first, second, self._rng)
        return self.space.mutate(Points.where(self._rng.random(count) < 0.5, crossed, first), self._rng)

    def _new(self, points: Points, most: int) -> Iterator[Points]:
        found = 0
        for point, key in zip(points, self.space.key(points).tolist(), strict=True):
            if key not in self._seen and found < most:
                self._seen.add(key)
                found += 1
                yield point


@dataclass(eq=False)
class TaskRecorder:
    """Records one task: up to `programs` programs, in up to `seconds`, of `spaces` (those installed, by default)."""

    task: Task
    measurer: Measurer[Job]
    rng: np.random.Generator
    programs: int = 500
    seconds: float | None = None
    spaces: Sequence[str] | None = None
    _done: list[tuple[_Chosen, Outcome]] = field(default_factory=list)
    _digests: set[str] = field(default_factory=set)
    _best: float = np.inf

    def record(self) -> StoredTask:
        """Measures the programs and returns them with their features."""
        start = time.monotonic()
        pools = self._pools()
        fruitless = 0
        while len(self._done) < self.programs and fruitless < _FRUITLESS:
            if self.seconds is not None and time.monotonic() - start > self.seconds:
                break
            chosen = self._batch(pools, min(_BATCH, self.programs - len(self._done)))
            fruitless = 0 if chosen else fruitless + 1
            self._measure(chosen)
        if not self._done:
            raise SpaceError(f"{self.task}: no program could be measured")
        return self._stored(time.monotonic() - start)

    def _pools(self) -> list[_Pool]:
        """The spaces that have something for the task."""
        estimate = MODELS.make("roofline")
        made = []
        for name in SPACES.names() if self.spaces is None else self.spaces:
            try:
                made.append(space(name, self.task))
            except SearchLabError:  # the space is for other operators
                continue
        if not made:
            raise SpaceError(f"no space has programs of {self.task}")
        main = _MAIN_SHARE if any(s.name == _MAIN_SPACE for s in made) and len(made) > 1 else 0.0
        others = sum(s.name != _MAIN_SPACE for s in made) or 1
        shares = [main if s.name == _MAIN_SPACE and main else (1.0 - main) / others for s in made]
        return [_Pool(s, share, estimate, self.rng) for s, share in zip(made, shares, strict=True)]

    def _batch(self, pools: Sequence[_Pool], count: int) -> list[_Chosen]:
        """New programs of all spaces; points with a program that is known are passed over."""
        found = []
        for pool in pools:
            for point, origin in pool.choose(round(pool.share * count) or 1):
                try:
                    program = pool.space.program(point)
                except SearchLabError:  # a point that breaks a constraint has no program to learn from
                    continue
                if program.hash not in self._digests:
                    self._digests.add(program.hash)
                    found.append(_Chosen(pool, point, origin, program))
        return found

    def _measure(self, chosen: Sequence[_Chosen]) -> None:
        workload, target = self.task.workload, self.task.target
        jobs = [
            Job(str(n), workload, target, c.program, limits=LIMITS, protocol=PROTOCOL, best_s=self._best)
            for n, c in enumerate(chosen)
        ]
        for outcome in self.measurer.measure(jobs) if jobs else ():
            if "environment" in outcome.notes:  # it says nothing about the program
                continue
            mine = chosen[int(outcome.id)]
            self._done.append((mine, outcome))
            mine.pool.told(mine.point, outcome.fastest)
            self._best = min(self._best, outcome.fastest)

    def _stored(self, seconds: float) -> StoredTask:
        chosen, outcomes = [c for c, _ in self._done], [o for _, o in self._done]
        parts = []
        for pool in dict.fromkeys(c.pool for c in chosen):
            numbers = np.array([n for n, c in enumerate(chosen) if c.pool is pool])
            parts.append((numbers, pool.space, Points.concat([chosen[n].point for n in numbers])))
        sizes = [self.measurer.code_bytes(c.program, self.task.target) for c in chosen]
        return StoredTask(
            self._about(seconds),
            seconds=np.array([o.fastest for o in outcomes]),
            status=np.array([o.status for o in outcomes]),
            space=np.array([c.pool.space.name for c in chosen]),
            origin=np.array([c.origin for c in chosen]),
            digest=np.array([c.program.hash for c in chosen]),
            build_s=_column(outcomes, "build_s"),
            run_s=_column(outcomes, "run_s"),
            code_bytes=np.array([-1 if size is None else size for size in sizes], np.int64),
            features=gathered(parts, len(chosen)),
        )

    def _about(self, seconds: float) -> dict[str, Any]:
        names = ("searchlab", "llvmlite", "numpy")
        return {
            "workload": self.task.workload.spec,
            "target": self.task.target.to_dict(),
            "views": {view: [schema(view).version, schema(view).width] for view in STORED_VIEWS},
            "columns": {view: schema(view).columns for view in STORED_VIEWS},
            "protocol": asdict(PROTOCOL),
            "versions": {name: version(name) for name in names} | {"python": platform.python_version()},
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 1),
        }


def _column(outcomes: Sequence[Outcome], name: str) -> Floats:
    return np.array([getattr(o, name) for o in outcomes], np.float64)


class TaskDone(NamedTuple):
    """A task of a recording: what was recorded; None if it was there before, or failed for the reason given."""

    spec: TaskSpec
    stored: StoredTask | None
    reason: str = ""


def record_tasks(
    recording: Recording,
    specs: Sequence[TaskSpec],
    machine: CpuTarget,
    measurer: Measurer[Job],
    programs: int = 500,
    seconds: float | None = None,
    seed: int = 0,
    spaces: Sequence[str] | None = None,
) -> Iterator[TaskDone]:
    """Records the tasks that a data set lacks, one by one, each stored before the next begins."""
    for spec in specs:
        task = spec.on(machine)
        name = part_name(task)
        if recording.has(name):
            yield TaskDone(spec, None, "recorded before")
            continue
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])  # the same whichever tasks are recorded
        try:
            stored = TaskRecorder(task, measurer, rng, programs, seconds, spaces).record()
        except SpaceError as e:
            yield TaskDone(spec, None, str(e))
            continue
        recording.add(name, stored)
        yield TaskDone(spec, stored)
