"""Native calls of a frame: lists of pixels, compiled programs, and one function that makes all calls in order."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.llvm.jit import LoadedObject, compile_ir
from searchlab.runtime.memory import aligned
from searchlab.targets import detect

Array = npt.NDArray[Any]
Words = tuple[int, ...]


@cache
def _native() -> dict[str, int]:
    """The addresses of the functions on lists, for the life of the process."""
    text = Path(__file__).with_name("lists.ll").read_text(encoding="utf-8")
    target = detect()
    code = LoadedObject(compile_ir("".join(x for x in text.splitlines(True) if not x.startswith(";;")), target), target)
    found = {name: code.address(name) for name in ("keep", "mark", "pair", "run")}
    code.keep()
    return found


@cache
def _runner() -> Any:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(_native()["run"])


@dataclass
class PixelList:
    """Numbers of pixels, how many there are, and whether it is to be all of them."""

    items: Array
    number: Array

    @staticmethod
    def of(pixels: int, *, full: bool = False) -> PixelList:
        number = np.array([pixels if full else 0], np.int32)
        return PixelList(np.minimum(np.arange(pixels + 1, dtype=np.int32), pixels), number)


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
