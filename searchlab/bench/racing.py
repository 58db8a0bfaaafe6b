"""Racing functions against each other on one machine, with as many threads as asked for."""

from __future__ import annotations

import ctypes
import gc
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

Contender = Callable[[], Any]

# Shorter samples would measure the clock; a function faster than this runs several times per sample.
SAMPLE_SECONDS = 200e-6
_REST_S, _TURN = 0.03, 10
_MOST = 0.9


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds per run: the best sample, the typical one, and how many there were.

    `spread` is how far the best of every other round is from the best of the rounds between, relative to the best.
    """

    min: float
    median: float
    rounds: int
    spread: float = 0.0


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
    rest, turn = (_REST_S, _TURN) if threads > 1 else (0.0, 1)
    copies = {name: [given] if callable(given) else list(given) for name, given in contenders.items()}
    samples: dict[str, list[list[float]]] = {name: [] for name in contenders}
    with _undisturbed():
        repeats = {name: max(map(_calibrate, runs)) for name, runs in copies.items()}
        start, rounds = perf_counter(), 0
        while contenders and (
            rounds < min_rounds
            or (spent := perf_counter() - start) < seconds
            or (steady is not None and steady.wants_more(samples, spent))
        ):
            for name, runs in copies.items():
                samples[name].append([])
                for run in runs:
                    sleep(rest)
                    run()
                    samples[name][-1] += [_sample(run, repeats[name]) for _ in range(turn)]
            rounds += 1
    return {name: _times(found) for name, found in samples.items()}


@dataclass(frozen=True, slots=True)
class Steady:
    """How long a race goes on for the sake of precision: `seconds` at most, or until `noise` is not above `limit`."""

    limit: float
    seconds: float

    def wants_more(self, samples: Mapping[str, Sequence[Sequence[float]]], spent: float) -> bool:
        """Whether another round is worth it."""
        return spent < self.seconds and noise([_times(s).spread for s in samples.values()]) > self.limit


def noise(spreads: Sequence[float]) -> float:
    """What the spreads of nine of ten do not exceed."""
    ordered = sorted(spreads)
    return ordered[ceil(_MOST * len(ordered)) - 1] if ordered else 0.0


def _times(rounds: Sequence[Sequence[float]]) -> Times:
    every = [sample for one in rounds for sample in one]
    halves = [min(map(min, half)) for half in (rounds[::2], rounds[1::2]) if half]
    return Times(min(every), statistics.median(every), len(every), (max(halves) - min(halves)) / min(halves))


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


# --- threads ----------------------------------------------------------------------------------------------------------


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Lets numpy's BLAS and torch (if it is installed) use that many threads, and puts things back afterwards."""
    pools = [*_blas(), *_torch()]
    before = [get() for get, _ in pools]
    try:
        for _, put in pools:
            put(count)
        yield
    finally:
        for (_, put), old in zip(pools, before, strict=True):
            put(old)


Pool = tuple[Callable[[], int], Callable[[int], object]]

# get, set; the names that numpy's wheels, distributions and conda give them
_SYMBOLS = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
)


def _blas() -> list[Pool]:
    """The thread counts of the BLAS libraries that this process has loaded."""
    import numpy  # noqa: F401  # its BLAS must be loaded to be found

    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:  # not Linux: the count stays as it is
        return []
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/")}
    return [pool for path in sorted(paths) if (pool := _pool(path)) is not None]


@cache
def _pool(path: str) -> Pool | None:
    name = Path(path).name
    if "openblas" not in name and "libmkl_rt" not in name:
        return None
    library = ctypes.CDLL(path)
    for get, put in _SYMBOLS:
        if hasattr(library, get) and hasattr(library, put):
            return getattr(library, get), getattr(library, put)
    return None


def _torch() -> list[Pool]:
    if find_spec("torch") is None:
        return []
    import torch

    return [(torch.get_num_threads, torch.set_num_threads)]
