"""Native calls of a frame: lists of pixels, compiled programs, and one function that makes all calls in order."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.llvm.jit import LoadedObject, compile_ir
from searchlab.runtime.memory import aligned
from searchlab.runtime.threadpool import parallel_for_address
from searchlab.targets import detect
from searchlab.video.window_geometry import ReachedPlaces

Array = npt.NDArray[Any]
Words = tuple[int, ...]
FLAGS = 8  # that are looked at together


@cache
def _native() -> dict[str, int]:
    """The addresses of the functions on lists, for the life of the process."""
    text = Path(__file__).with_name("lists.ll").read_text(encoding="utf-8")
    target = detect()
    code = LoadedObject(compile_ir("".join(x for x in text.splitlines(True) if not x.startswith(";;")), target), target)
    found = {name: code.address(name) for name in ("keep", "mark", "collect", "pair", "run", "bands")}
    code.keep()
    return found


@cache
def _runner() -> Any:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(_native()["run"])


@dataclass
class PixelList:
    """Numbers of pixels, and how many there are; `grouped` are the same numbers with room for whole groups."""

    items: Array
    number: Array
    grouped: Array

    @staticmethod
    def of(pixels: range, *, full: bool = False, group: int = 1) -> PixelList:
        """Room for a list of some pixels, which is empty or has all of them, and for one more."""
        number = np.array([len(pixels) if full else 0], np.int32)
        grouped = pixels.start + np.arange(group * (len(pixels) // group + 1), dtype=np.int32)
        grouped = np.clip(grouped, 0, max(pixels.stop - 1, 0)).astype(np.int32)
        return PixelList(grouped[: len(pixels) + 1], number, grouped.reshape(-1, group))


@dataclass
class CallList:
    """Native calls in order, and what must stay alive for them."""

    words: list[Words] = field(default_factory=list)
    alive: list[Any] = field(default_factory=list)

    def native(self, name: str, *arrays: Array) -> None:
        """Calls a function on lists."""
        addresses = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        self.alive += [addresses, arrays]
        self.words.append((_native()[name], ctypes.addressof(addresses), 0, 0, 0, 0, 0, 1))

    def kernel(self, kernel: Any, inputs: dict[str, Array], outputs: dict[str, Array]) -> None:
        """Calls a compiled program."""

        def allocate(size: int) -> tuple[int, Array]:
            memory = aligned((size,), np.uint8)
            return memory.ctypes.data, memory

        runs = kernel.ready(inputs, {}, outputs, allocate)
        self.alive.append(runs)
        self.words.append(runs.words)

    def reached(
        self, given: Sequence[PixelList], reach: ReachedPlaces, made: PixelList, groups: Array | None = None
    ) -> None:
        """The places that the pixels of some lists reach, in order; `groups` becomes the number of their groups."""
        band, nowhere = reach.band, -(-reach.band.stop // FLAGS) * FLAGS
        flags = aligned((nowhere + 1,), np.dtype(np.uint8))
        flags[...] = 0
        lines, columns = reach.lines, reach.columns
        numbers = np.array([len(columns), lines.shape[1], columns.shape[1], nowhere], np.int64)
        for one in given:
            self.native("mark", one.items, one.number, lines, columns, numbers, flags)
        group, none = (1, band.stop - 1) if groups is None else (made.grouped.shape[1], reach.places)
        counted = np.zeros(1, np.int32) if groups is None else groups
        about = np.array([band.start // FLAGS, nowhere // FLAGS, group, none], np.int64)
        self.native("collect", flags, about, made.items, made.number, counted)

    @cached_property
    def table(self) -> Array:
        """The calls as native code reads them; there must be no others after this."""
        return np.array(self.words, np.uint64).astype(np.int64).reshape(len(self.words), -1)


@dataclass
class FrameCalls(CallList):
    """The calls of a frame, where those of steps begin, and bands whose calls run side by side."""

    begins: dict[str, int] = field(default_factory=dict)

    def fork(self, bands: Sequence[CallList], threads: int) -> None:
        """Runs the calls of bands, each in one thread, and waits for all."""
        pairs = [word for band in bands for word in (band.table.ctypes.data, len(band.words))]
        arguments = np.array(pairs, np.int64)
        self.alive += [arguments, *bands]
        pool = parallel_for_address(threads)
        self.words.append((_native()["bands"], arguments.ctypes.data, 0, 0, 0, len(bands), pool, threads))

    def __call__(self) -> None:
        _runner()(self.table.ctypes.data, len(self.words))

    def timed(self, seconds: dict[str, float]) -> None:
        """The same, step by step; adds the time of each to what there is under its name."""
        for step in self.begins:
            run = self.of(step)
            start = time.perf_counter()
            run()
            seconds[step] = seconds.get(step, 0.0) + time.perf_counter() - start

    def of(self, step: str) -> Callable[[], None]:
        """A function that makes the calls of one step alone."""
        begin = self.begins[step]
        end = min((n for n in self.begins.values() if n > begin), default=len(self.words))
        run, here = _runner(), (self, self.table[begin:])
        return lambda: run(here[1].ctypes.data, end - begin)
