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
    found = {name: code.address(name) for name in ("keep", "mark", "collect", "pair", "run")}
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
    def of(pixels: int, *, full: bool = False, group: int = 1) -> PixelList:
        """Room for a list of pixels, which is empty or has all of them."""
        number = np.array([pixels if full else 0], np.int32)
        grouped = np.minimum(np.arange(group * (pixels // group + 1), dtype=np.int32), pixels)
        return PixelList(grouped[: pixels + 1], number, grouped.reshape(-1, group))


@dataclass
class FrameCalls:
    """Native calls in order, and what must stay alive for them."""

    words: list[Words] = field(default_factory=list)
    begins: dict[str, int] = field(default_factory=dict)  # where the calls of a step begin
    alive: list[Any] = field(default_factory=list)

    def native(self, name: str, *arrays: Array) -> None:
        addresses = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        self.alive += [addresses, arrays]
        self.words.append((_native()[name], ctypes.addressof(addresses), 0, 0, 0, 0, 0, 1))

    def reached(
        self, given: Sequence[PixelList], reach: ReachedPlaces, made: PixelList, groups: Array | None = None
    ) -> None:
        """The places that the pixels of some lists reach, in order; `groups` becomes the number of their groups."""
        nowhere = -(-reach.places // FLAGS) * FLAGS
        flags = aligned((nowhere + 1,), np.dtype(np.uint8))
        flags[...] = 0
        lines, columns = reach.lines, reach.columns
        numbers = np.array([len(columns), lines.shape[1], columns.shape[1], nowhere], np.int64)
        for one in given:
            self.native("mark", one.items, one.number, lines, columns, numbers, flags)
        group = made.grouped.shape[1] if groups is not None else 1
        counted = np.zeros(1, np.int32) if groups is None else groups
        about = np.array([nowhere // FLAGS, group, reach.places], np.int64)
        self.native("collect", flags, about, made.items, made.number, counted)

    def kernel(self, kernel: Any, inputs: dict[str, Array], outputs: dict[str, Array]) -> None:
        def allocate(size: int) -> tuple[int, Array]:
            memory = aligned((size,), np.uint8)
            return memory.ctypes.data, memory

        runs = kernel.ready(inputs, {}, outputs, allocate)
        self.alive.append(runs)
        self.words.append(runs.words)

    @cached_property
    def table(self) -> Array:
        return np.array(self.words, np.uint64).astype(np.int64)

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
