"""Streams as subjects: latency of a network on a clip, with knobs for what is skipped, within a bound on errors.

A point has no program: its job is a pass over the clip that checks every frame, and further ones that are timed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from searchlab.backend import Kernel
from searchlab.errors import SpaceError
from searchlab.ir.program import Program
from searchlab.lab.records import Record, SearchPlace, toolchain
from searchlab.lab.records.identity import fingerprint
from searchlab.lab.records.record import now
from searchlab.lab.study.finish import Finish
from searchlab.lab.study.subject import Candidate, SpaceSubject
from searchlab.measure import Measurer, Outcome, Protocol
from searchlab.measure.job import PENALISED
from searchlab.search import Points, Space
from searchlab.targets import Target, detect
from searchlab.timing.turns import alternating, take_turns
from searchlab.video import StreamOptions
from searchlab.video.stream_bench import StreamBench, StreamCheck
from searchlab.video.stream_space import StreamChoice

DENSE, ONE_LEVEL = "dense", "one level"  # baselines: the plain graph, and the best threshold that all layers share
_PASSES = 5  # timed passes of a trial at most: a pass is many frames, and the fastest counts
_BEYOND = (
    10.0  # times the dense time that a violated bound counts as, and more the larger the error: no stream is so slow
)
_ROUNDS = 5
_FALLBACK = StreamOptions(dense_above=1.0)


@dataclass(frozen=True, slots=True)
class StreamJob:
    """A point to be tried: its sketch, then its options; `best_s` is the best time so far."""

    id: str
    point: tuple[int, ...]
    best_s: float | None


class StreamMeasurer(Measurer[StreamJob]):
    """Runs streams in this process, one after the other."""

    def __init__(self, bench: StreamBench, protocol: Protocol) -> None:
        self.bench, self.protocol = bench, protocol
        self._dense_s: float | None = None

    @property
    def dense_s(self) -> float:
        """The time per frame of the plain graph."""
        if self._dense_s is None:
            self._dense_s = min(float(self.bench.dense_seconds().mean()) for _ in range(2))
        return self._dense_s

    def measure(self, jobs: Sequence[StreamJob]) -> Iterator[Outcome]:
        """Yields one outcome per job, in order."""
        for job in jobs:
            yield self._outcome(job)

    def _outcome(self, job: StreamJob) -> Outcome:
        space, bound = self.bench.space, self.bench.settings.relative_error
        start = time.perf_counter()
        choice, check = self.bench.tried(StreamChoice.of(space.choice(Points.of([job.point], space.width))))
        checked = time.perf_counter()
        within = bool(check.error <= bound)  # an error that is no number is not within
        passes = self._passes(choice, within, job.best_s)
        fastest = np.min(passes, axis=0)
        notes = _notes(check, fastest) | {"dense_s": f"{self.dense_s:.6g}", "bound": f"{bound:g}"}
        if within and (job.best_s is None or fastest.mean() < job.best_s):
            notes["layer_s"] = json.dumps({k: round(v, 7) for k, v in self.bench.layer_seconds(choice).items()})
        if not within:
            excess = check.error / bound if np.isfinite(check.error) else 1e6
            notes[PENALISED] = f"{max(float(fastest.mean()), _BEYOND * self.dense_s) * excess:.6g}"
        spent = time.perf_counter()
        return Outcome(
            job.id,
            "ok",
            tuple(float(p.mean()) for p in passes),
            number=len(fastest),
            check_s=checked - start,
            run_s=spent - checked,
            worker="stream",
            notes=notes,
        )

    def _passes(self, choice: StreamChoice, within: bool, best_s: float | None) -> list[Any]:
        """Times of frames, pass by pass: one where it cannot win."""
        found = [self.bench.seconds(choice)]
        while within and len(found) < min(_PASSES, self.protocol.repeats):
            beaten = self.protocol.beaten if len(found) > 1 else self.protocol.early_stop
            if best_s is not None and beaten is not None and min(p.mean() for p in found) > beaten * best_s:
                break
            found.append(self.bench.seconds(choice))
        return found


def _notes(check: StreamCheck, fastest: Any) -> dict[str, str]:
    """What records have of a trial beside its times."""
    layers = [[a.layer, *(round(v, 5) for v in (a.threshold, a.density, a.computed))] for a in check.layers]
    return {
        "relative_error": f"{check.error:.6g}",
        "mean_error": f"{check.errors.mean():.6g}",
        "drift": f"{check.drift:.3g}",
        "median_s": f"{np.median(fastest):.6g}",
        "p95_s": f"{np.percentile(fastest, 95):.6g}",
        "work": f"{check.work:.5g}",
        "dense_frames": str(sum(map(bool, check.dense))),
        "layers": json.dumps(layers),
    }


@dataclass(frozen=True, eq=False)
class StreamSubject(SpaceSubject):
    """A network on a clip with a bound on its errors."""

    bench: StreamBench
    protocol: Protocol = field(default_factory=Protocol)

    recorded = False
    raced = True
    builds = False
    optimum_s = None
    figure = "fastest"
    confirmed = False  # a trial is many frames, and the final race times the best again

    @property
    def name(self) -> str:  # type: ignore[override]
        """What is run, whatever the clip is called."""
        return self.bench.settings.text

    @property
    def space(self) -> Space:  # type: ignore[override]
        """The knobs of the stream."""
        return self.bench.space

    @property
    def kind(self) -> tuple[str, float]:
        """A kind of its own."""
        return self.name, 1.0

    @property
    def target(self) -> Target:
        """The machine."""
        return self.bench.target or detect()

    def now(self) -> float:
        """The wall time."""
        return time.perf_counter()

    def candidate(self, point: Points, best_s: float | None) -> Candidate:
        """The point with a job for a few passes over the clip."""
        key = int(self.space.key(point)[0])
        return Candidate(point, key, f"{key:016x}", StreamJob(f"{key:016x}", tuple(point.rows()[0]), best_s))

    def record(self, candidate: Candidate, outcome: Outcome, cell: str, place: SearchPlace) -> Record:
        """The trial; its notes have errors, shares and what a violated bound counts as."""
        measured = {n: getattr(outcome, n) for n in ("status", "times", "error", "number", "worker")}
        phases = {n: getattr(outcome, n) for n in ("build_s", "check_s", "run_s", "queue_s")}
        target = self.target
        return Record(
            task=self.name,
            label=self.bench.settings.label,
            target=fingerprint(target),
            cpu=target.name,
            threads=target.threads,
            toolchain=toolchain(target),
            protocol=asdict(self.protocol),
            space=self.space.name,
            space_version=self.space.version,
            knobs=self.space.choice(candidate.point),
            program=candidate.digest,
            cell=cell,
            job=outcome.id,
            timestamp=now(),
            notes={**outcome.notes, **place.notes},
            **measured,
            **phases,
        )

    def measurer(self, shared: Measurer[Any] | None = None) -> Measurer[Any]:
        """A measurer of its own; `shared` is not used."""
        return StreamMeasurer(self.bench, self.protocol)

    def final(self, finalists: Sequence[Points], best_s: float, seconds: float, most: float) -> Finish:
        """The finalists within the bound, one level for all layers, and the plain graph, pass by pass in turns."""
        tried = [self.bench.tried(StreamChoice.of(self.space.choice(p))) for p in finalists]
        bound = self.bench.settings.relative_error
        good = {str(n): choice for n, (choice, check) in enumerate(tried) if check.error <= bound}
        if not good:
            return Finish(0, best_s)
        alike = self.bench.one_level(options=_FALLBACK)

        def sample(name: str) -> tuple[float, ...]:
            taken = self.bench.dense_seconds() if name == DENSE else self.bench.seconds(good.get(name, alike))
            return (float(taken.mean()),)

        names = [*good, ONE_LEVEL, DENSE]
        turns = take_turns(names, sample, lambda turns: turns.count < _ROUNDS, alternating)
        fastest = {name: min(s for samples in turns.samples[name] for s in samples) for name in names}
        winner = min(good, key=fastest.__getitem__)
        return Finish(int(winner), fastest[winner], {name: fastest[name] for name in (ONE_LEVEL, DENSE)})

    def program(self, point: Points) -> Program:
        """Raises SpaceError: a point of a stream is no program."""
        raise self._none

    @property
    def default(self) -> Program:
        """Raises SpaceError: a stream has no default schedule."""
        raise self._none

    def kernel(self, program: Program) -> Kernel:
        """Raises SpaceError: a point of a stream is no program."""
        raise self._none

    @property
    def _none(self) -> SpaceError:
        return SpaceError(f"{self.bench.settings.label} is a stream: its points have no programs")
