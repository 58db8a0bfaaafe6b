"""Times a function by a protocol: warm-up, samples long enough for the clock, early stopping of hopeless candidates.

The speed of a core varies: neighbours share it, its clock changes.  So a clock probe (a *pulse*) is taken directly
before and after every sample, and samples beside a slow one are retaken, up to a bound (see `Protocol.steady`).
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from searchlab.timing.probe import Pulse
from searchlab.timing.protocol import Protocol

Runs = Callable[[int], float | None]
Evict = Callable[[], None]

# Page faults and cold caches cannot slow a run of this length down several times.
_LONG_S = 0.01
# Flushing the caches takes milliseconds, so a cold sample has few runs, however short they are.
_COLD_RUNS = 8
_CORRECTIONS = 8
_SURE = 3  # samples needed to decide that a candidate is beaten
_FEW = 5  # long samples suffice
_LONGER = 4.0  # the factor by which their total may exceed the nominal time
_PREEMPTED_SHARE, _PREEMPTED_S = 0.01, 20e-6

# A pulse within this factor of the fast level counts as fast; at most this many times the wanted number of samples are
# taken.  A sample longer than a moment spans fast and slow phases, whatever the pulses at its ends say.
NEAR, MOST = 1.05, 3
MOMENT_S = 0.05
_LONGEST_S = 0.08  # samples that take this long in total are not retaken: a search has better uses for the time
_FAST_SHARE = 0.25


@dataclass(frozen=True)
class Samples:
    """Seconds per run of each sample, the number of runs per sample, and the slower of the two pulses beside each."""

    times: tuple[float, ...]
    number: int
    pulses: tuple[float, ...] = ()
    stopped_early: bool = False
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Sample:
    seconds: float  # of all runs together
    elapsed: float  # including the work between them
    preempted: bool
    pulse: float  # the slowest beside its runs


class Sampler:
    """Samples one function until the protocol is satisfied or `deadline` (of time.monotonic) is near.

    `runs(n)` runs it n times, and returns the seconds if a device has timed them; `threads` is the number of its
    threads; `evict`, if given, is called before every run.
    `pulse` is the clock probe of the core, and `level` its recent reading when the core was fast.
    """

    def __init__(
        self,
        runs: Runs,
        protocol: Protocol,
        threads: int = 1,
        deadline: float = math.inf,
        evict: Evict | None = None,
        pulse: Pulse | None = None,
        level: float | None = None,
    ) -> None:
        self._runs, self._protocol, self._deadline, self._evict = runs, protocol, deadline, evict
        self._alone = threads == 1
        self._pulse, self._level = pulse or (lambda: 0.0), math.inf if level is None else level
        self._beaten_s = math.inf
        self._before: float | None = None  # the pulse after one sample is the one before the next

    def take(self, best_s: float | None = None, guess_s: float | None = None) -> Samples:
        """Takes all samples; `best_s` is the time of the best candidate so far, `guess_s` that of an earlier run."""
        p = self._protocol
        hopeless, self._beaten_s = _times(best_s, p.early_stop), _times(best_s, p.beaten)
        if not (guess_s is not None and guess_s > max(hopeless, _LONG_S)):
            self._warm_up(hopeless)
        first = self._sample(1)
        if _LONG_S > first.seconds > hopeless:  # such a short run may have been disturbed
            first = min((first, self._sample(1), self._sample(1)), key=lambda s: s.seconds)
        if first.seconds > hopeless:
            notes = {"preempted": "1 of 1"} if first.preempted else {}
            return Samples((first.seconds,), 1, (first.pulse,), stopped_early=True, notes=notes)
        return self._repeat(first)

    def _warm_up(self, hopeless: float) -> None:
        for _ in range(self._protocol.warmup):
            if self._sample(1).seconds > max(hopeless, _LONG_S):
                return

    def _repeat(self, sample: _Sample) -> Samples:
        """Takes samples that all last long enough.

        A shorter one shows that earlier ones were disturbed (the first run always is), so sampling restarts with more
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
            if self._beaten(samples, number):
                kept = [s.seconds / number for s in samples]
                return Samples(tuple(kept), number, tuple(s.pulse for s in samples), stopped_early=True)
            if samples and (late or self._enough(samples)):
                return self._chosen(samples, number)
            sample = self._sample(number)

    def _beaten(self, samples: list[_Sample], number: int) -> bool:
        few = _SURE <= len(samples) < self._protocol.repeats
        return few and min(s.seconds for s in samples) / number > self._beaten_s

    def _wanted(self, samples: list[_Sample]) -> int:
        """The wanted number of samples of this length."""
        p = self._protocol
        length = min(s.seconds for s in samples)  # the others were disturbed
        time_s = _LONGER * p.repeats * p.min_repeat_ms / 1000
        return min(p.repeats, max(_FEW, int(time_s / max(length, 1e-9))))

    def _enough(self, samples: list[_Sample]) -> bool:
        wanted = self._wanted(samples)
        if len(samples) < wanted:
            return False
        if not self._protocol.steady or len(samples) >= MOST * wanted or samples[0].seconds > MOMENT_S:
            return True
        if sum(s.seconds for s in samples) >= _LONGEST_S:
            return True
        return sum(self._clean(samples)) >= wanted

    def _clean(self, samples: list[_Sample]) -> list[bool]:
        """Which samples had an undisturbed, fast core."""
        slowest = NEAR * min(self._level, fast_pulse([s.pulse for s in samples]))
        return [not s.preempted and s.pulse <= slowest for s in samples]

    def _chosen(self, samples: list[_Sample], number: int) -> Samples:
        """The samples that count: the first clean ones, and if these are too few, the ones closest to clean."""
        clean = self._clean(samples)
        worth = [(not c, s.preempted, 0.0 if c else s.pulse) for c, s in zip(clean, samples, strict=True)]
        best = sorted(range(len(samples)), key=worth.__getitem__)
        wanted = self._wanted(samples)
        kept = sorted(best[:wanted])
        counted = [samples[i] for i in kept]
        notes = _notes(counted, sum(not clean[i] for i in kept), len(samples), wanted)
        return Samples(tuple(s.seconds / number for s in counted), number, tuple(s.pulse for s in counted), notes=notes)

    def _more(self, number: int, seconds: float, need: float) -> int:
        """The number of runs that last longer than `need`, given that `number` of them lasted `seconds`."""
        wanted = math.ceil(1.2 * need / max(seconds / number, 1e-9))
        # a first estimate may be far off, and too many runs cannot be undone
        more = max(number + 1, min(wanted, 100 * number))
        return min(more, _COLD_RUNS) if self._evict else more

    def _sample(self, number: int) -> _Sample:
        if self._evict is not None:
            return self._cold_sample(number, self._evict)
        before = self._pulse() if self._before is None else self._before
        seconds, disturbed = self._timed(number)
        self._before = self._pulse()
        return _Sample(seconds, seconds, disturbed, max(before, self._before))

    def _cold_sample(self, number: int, evict: Evict) -> _Sample:
        begin, seconds, disturbed, slowest = time.perf_counter(), 0.0, False, 0.0
        for _ in range(number):
            evict()
            before = self._pulse()
            lasted, hit = self._timed(1)
            seconds += lasted
            disturbed, slowest = disturbed or hit, max(slowest, before, self._pulse())
        return _Sample(seconds, time.perf_counter() - begin, disturbed, slowest)

    def _timed(self, number: int) -> tuple[float, bool]:
        """The seconds of some runs, and whether they were interrupted."""
        before = self._interruptions()
        start = time.perf_counter()
        own = self._runs(number)
        seconds = time.perf_counter() - start
        if own is not None:  # this thread has only waited
            return own, False
        return seconds, self._disturbed(before, seconds)

    def _interruptions(self) -> float:
        # A lone thread is always running; threads that wait for others are not, so their context switches are counted.
        return time.thread_time() if self._alone else resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw

    def _disturbed(self, before: float, seconds: float) -> bool:
        found = self._interruptions() - before
        return seconds - found > _PREEMPTED_SHARE * seconds + _PREEMPTED_S if self._alone else found > 0


def fast_pulse(pulses: Sequence[float]) -> float:
    """The pulse of the core in its fast phases."""
    return sorted(pulses)[int(_FAST_SHARE * len(pulses))]


def _times(best_s: float | None, factor: float | None) -> float:
    return math.inf if best_s is None or factor is None else best_s * factor


def _notes(counted: list[_Sample], slow: int, taken: int, wanted: int) -> dict[str, str]:
    notes = {}
    preempted = sum(s.preempted for s in counted)
    if preempted:
        notes["preempted"] = f"{preempted} of {len(counted)}"
    if slow > preempted:
        notes["slow"] = f"{slow - preempted} of {len(counted)}: the core was slower than it can be"
    if taken > len(counted):
        notes["retaken"] = f"{taken - len(counted)} of {taken}"
    if len(counted) < wanted:
        notes["repeats"] = f"{len(counted)} of {wanted}: run_s leaves no time for more"
    return notes
