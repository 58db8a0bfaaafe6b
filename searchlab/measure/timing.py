"""Timing a function by a protocol: warm-up, samples long enough for the clock, an early end for what is hopeless."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from searchlab.measure.job import Protocol
from searchlab.targets import Target

Runs = Callable[[int], None]
Evict = Callable[[], None]

# Page faults and cold caches cannot make a run of this length several times slower than it is.
_LONG_S = 0.01
# Emptying the caches takes milliseconds, so a cold sample has few runs, however short they are.
_COLD_RUNS = 8
_CORRECTIONS = 8
_PREEMPTED_SHARE, _PREEMPTED_S = 0.01, 20e-6


@dataclass(frozen=True)
class Samples:
    """Seconds per run of each sample, and how many runs a sample had."""

    times: tuple[float, ...]
    number: int
    stopped_early: bool = False
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Sample:
    seconds: float  # of all runs together
    elapsed: float  # with what was done between them
    preempted: bool


class Sampler:
    """Takes samples of one function until the protocol is fulfilled or `deadline` (of time.monotonic) is near.

    `runs(n)` runs it n times; `threads` is how many it uses; `evict`, if given, is called before every run.
    """

    def __init__(
        self,
        runs: Runs,
        protocol: Protocol,
        threads: int = 1,
        deadline: float = math.inf,
        evict: Evict | None = None,
    ) -> None:
        self._runs, self._protocol, self._deadline, self._evict = runs, protocol, deadline, evict
        self._alone = threads == 1

    def take(self, best_s: float | None = None, guess_s: float | None = None) -> Samples:
        """All samples; `best_s` is the time of the best candidate so far, `guess_s` what an earlier run took."""
        p = self._protocol
        hopeless = best_s * p.early_stop if best_s is not None and p.early_stop is not None else math.inf
        if not (guess_s is not None and guess_s > max(hopeless, _LONG_S)):
            self._warm_up(hopeless)
        first = self._sample(1)
        if _LONG_S > first.seconds > hopeless:  # so short a run may have met something else's
            first = min((first, self._sample(1), self._sample(1)), key=lambda s: s.seconds)
        if first.seconds > hopeless:
            return Samples((first.seconds,), 1, stopped_early=True, notes=_notes([first], p, stopped=True))
        return self._repeat(first)

    def _warm_up(self, hopeless: float) -> None:
        for _ in range(self._protocol.warmup):
            if self._sample(1).seconds > max(hopeless, _LONG_S):
                return

    def _repeat(self, sample: _Sample) -> Samples:
        """Samples that all last long enough.

        One that does not shows that earlier ones were disturbed (a first run always is), so it begins anew with more
        runs per sample.
        """
        p = self._protocol
        need = p.min_repeat_ms / 1000
        number, corrections, samples = 1, 0, list[_Sample]()
        while True:
            if sample.seconds >= need or corrections == _CORRECTIONS or (self._evict and number == _COLD_RUNS):
                samples.append(sample)
            else:
                number, corrections, samples = self._more(number, sample.seconds, need), corrections + 1, []
            late = time.monotonic() + 1.2 * sample.elapsed > self._deadline
            if len(samples) >= p.repeats or (samples and late):
                return Samples(tuple(s.seconds / number for s in samples), number, notes=_notes(samples, p))
            sample = self._sample(number)

    def _more(self, number: int, seconds: float, need: float) -> int:
        """How many runs last longer than `need` if `number` of them lasted `seconds`."""
        wanted = math.ceil(1.2 * need / max(seconds / number, 1e-9))
        # a first estimate may be far off, but too many runs cannot be taken back
        more = max(number + 1, min(wanted, 100 * number))
        return min(more, _COLD_RUNS) if self._evict else more

    def _sample(self, number: int) -> _Sample:
        if self._evict is not None:
            return self._cold_sample(number, self._evict)
        before = self._interruptions()
        start = time.perf_counter()
        self._runs(number)
        seconds = time.perf_counter() - start
        return _Sample(seconds, seconds, self._disturbed(before, seconds))

    def _cold_sample(self, number: int, evict: Evict) -> _Sample:
        begin, seconds, disturbed = time.perf_counter(), 0.0, False
        for _ in range(number):
            evict()
            before = self._interruptions()
            start = time.perf_counter()
            self._runs(1)
            lasted = time.perf_counter() - start
            seconds += lasted
            disturbed = disturbed or self._disturbed(before, lasted)
        return _Sample(seconds, time.perf_counter() - begin, disturbed)

    def _interruptions(self) -> float:
        # A thread that works alone is always running; one that waits for others is not, so there switches are counted.
        return time.thread_time() if self._alone else resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw

    def _disturbed(self, before: float, seconds: float) -> bool:
        found = self._interruptions() - before
        return seconds - found > _PREEMPTED_SHARE * seconds + _PREEMPTED_S if self._alone else found > 0


def evictor(target: Target) -> Evict:
    """A function that leaves nothing of what was used before in the caches."""
    # the cache sizes of a target are shares of one core
    size = min(max(4 * target.l3 * target.cores, 32 << 20), 256 << 20)
    memory = np.ones(size // 8, np.int64)

    def evict() -> None:
        np.add(memory, 1, out=memory)

    return evict


def _notes(samples: list[_Sample], protocol: Protocol, stopped: bool = False) -> dict[str, str]:
    notes = {}
    preempted = sum(s.preempted for s in samples)
    if preempted:
        notes["preempted"] = f"{preempted} of {len(samples)}"
    if len(samples) < protocol.repeats and not stopped:
        notes["repeats"] = f"{len(samples)} of {protocol.repeats}: run_s leaves no time for more"
    return notes
