"""A race: functions of this process, timed interleaved, with a given number of threads."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import ceil
from time import perf_counter, process_time, sleep
from typing import Any

from searchlab.timing.turns import Times, Turns, take_turns

# A function; its method `timed(count)`, if it has one, gives the seconds of some runs by the device that they run on.
Contender = Callable[[], Any]

# Shorter samples would measure the clock itself; a faster function runs several times per sample.
SAMPLE_SECONDS = 200e-6
_REST_S, _TURN = 0.03, 10
_LONG_S = 0.3  # after which a turn ends: of runs that take so long, rounds are worth more than samples


@dataclass(frozen=True, slots=True)
class Steady:
    """The extension of a race for precision: until its noise is at most `limit`, but no longer than `seconds`."""

    limit: float
    seconds: float

    def wants_more(self, turns: Turns, spent: float) -> bool:
        """Whether another round is needed."""
        return spent < self.seconds and turns.noise > self.limit


def race(
    contenders: Mapping[str, Contender | Sequence[Contender]],
    seconds: float = 1.0,
    min_rounds: int = 10,
    threads: int = 1,
    steady: Steady | None = None,
) -> dict[str, Times]:
    """Times functions interleaved, so that all of them meet the same machine conditions.

    In every round each function runs once untimed (the previous one has filled the caches) and is then sampled.  Rounds
    continue until `seconds` have passed and there are at least `min_rounds`, and beyond that while the best times are
    not `steady` enough.  If a contender is several functions, each gets its turn, and the best counts.

    Multi-threaded functions get longer turns with a pause before each: threads of the previous one keep spinning for
    milliseconds while they wait for work.
    """
    if not contenders:
        return {}
    rest, turn = (_REST_S, _TURN) if threads > 1 else (0.0, 1)
    copies = {name: [given] if callable(given) else list(given) for name, given in contenders.items()}
    with _undisturbed():
        repeats = {name: max(map(_calibrate, runs)) for name, runs in copies.items()}
        start = perf_counter()

        def sample(name: str) -> list[float]:
            return [s for run in copies[name] for s in _turn(run, repeats[name], turn, rest)]

        def more(turns: Turns) -> bool:
            spent = perf_counter() - start
            early = turns.count < min_rounds or spent < seconds
            return early or (steady is not None and steady.wants_more(turns, spent))

        return take_turns(list(copies), sample, more).times()


def _turn(run: Contender, repeats: int, samples: int, rest: float) -> list[float]:
    """Samples after one run that is not timed; of long runs, the first is the only one: no cache outlasts them."""
    sleep(rest)
    start, first = perf_counter(), _sample(run, 1)
    if perf_counter() - start > _LONG_S:
        return [first]
    taken = [_sample(run, repeats)]
    while len(taken) < samples and perf_counter() - start < _LONG_S:
        taken.append(_sample(run, repeats))
    return taken


def _sample(run: Contender, repeats: int) -> float:
    timed: Callable[[int], float | None] | None = getattr(run, "timed", None)
    if timed is not None and (own := timed(repeats)) is not None:
        return own / repeats
    start = perf_counter()
    for _ in range(repeats):
        run()
    return (perf_counter() - start) / repeats


def _calibrate(run: Contender) -> int:
    """The number of runs that make a sample long enough; the first runs also warm up caches, threads and allocators."""
    run()
    repeats = 1
    for _ in range(4):  # the first estimates are too pessimistic
        took = _sample(run, repeats)
        repeats = max(1, ceil(SAMPLE_SECONDS / max(took, 1e-8)))
        if took > _LONG_S:
            break
    return repeats


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Disables garbage collection and torch's gradient bookkeeping."""
    torch = sys.modules.get("torch")
    mode: AbstractContextManager[Any] = torch.inference_mode() if torch else nullcontext()
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with mode:
            yield
    finally:
        if collecting:
            gc.enable()


class OtherLoad:
    """Measures the load of other processes: a context that has their `share` of all cores afterwards.

    Threads that synchronise lose far more than this share, so times taken under load say little.
    """

    share = 0.0

    def __enter__(self) -> OtherLoad:
        self._before = self._seconds()
        return self

    def __exit__(self, *_: object) -> None:
        busy, own, total = (after - before for after, before in zip(self._seconds(), self._before, strict=True))
        self.share = max(0.0, busy - own) / total if total > 0 else 0.0

    @staticmethod
    def _seconds() -> tuple[float, float, float]:
        """CPU time of all processes, of this one, and of all cores whether idle or not."""
        import psutil

        cpu = psutil.cpu_times()
        idle = cpu.idle + getattr(cpu, "iowait", 0.0)
        # user time includes guest time
        total = sum(cpu) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0)
        return total - idle, process_time(), total
