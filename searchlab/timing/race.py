"""A race: functions of this process, timed in turns, with as many threads as asked for."""

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

Contender = Callable[[], Any]

# Shorter samples would measure the clock; a function faster than this runs several times per sample.
SAMPLE_SECONDS = 200e-6
_REST_S, _TURN = 0.03, 10


@dataclass(frozen=True, slots=True)
class Steady:
    """How long a race goes on for the sake of precision: `seconds` at most, or until its noise is not above `limit`."""

    limit: float
    seconds: float

    def wants_more(self, turns: Turns, spent: float) -> bool:
        """Whether another round is worth it."""
        return spent < self.seconds and turns.noise > self.limit


def race(
    contenders: Mapping[str, Contender | Sequence[Contender]],
    seconds: float = 1.0,
    min_rounds: int = 10,
    threads: int = 1,
    steady: Steady | None = None,
) -> dict[str, Times]:
    """Times functions in turns, so that whatever else the machine does meets all of them alike.

    In every round each function runs once unmeasured (the one before it has filled the caches) and is then sampled.
    Rounds go on until `seconds` have passed in all, and there are at least `min_rounds`; beyond that while the best
    times are not `steady` enough.  Of a contender that is several functions, each takes its turn, and the best counts.

    Functions of several threads get longer turns with a rest before each: threads of the one before wait for more work
    for milliseconds, and keep the cores busy with it.
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
    sleep(rest)
    run()
    return [_sample(run, repeats) for _ in range(samples)]


def _sample(run: Contender, repeats: int) -> float:
    start = perf_counter()
    for _ in range(repeats):
        run()
    return (perf_counter() - start) / repeats


def _calibrate(run: Contender) -> int:
    """How many runs make a sample long enough; the first runs also warm up caches, threads and allocators."""
    run()
    repeats = 1
    for _ in range(4):  # the first estimates are too pessimistic
        repeats = max(1, ceil(SAMPLE_SECONDS / max(_sample(run, repeats), 1e-8)))
    return repeats


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage collection, and no bookkeeping for gradients in torch."""
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
    """Measures how busy other processes keep this machine: a context that knows its `share` of all cores afterwards.

    Threads that wait for each other lose far more than this share, so times taken under load say little.
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
        # guest time is contained in user time
        total = sum(cpu) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0)
        return total - idle, process_time(), total
