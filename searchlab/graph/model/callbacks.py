"""Library functions called by the machine: words to arrays, attributes to numbers, exceptions to errors of the run."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from searchlab.dtype import DTYPES
from searchlab.graph.library import library_function
from searchlab.graph.vm.call_sites import ArraySpec, LibrarySite, NumberSpec, ShapeSpec, Spec, Word64
from searchlab.graph.vm.machine import CALLBACK, LIBRARY_FAILED
from searchlab.ir.bfloat16 import stored


class Callbacks:
    """The functions that one state calls; `error` is what the last of them has raised."""

    def __init__(self, sites: Sequence[LibrarySite]) -> None:
        self.error: BaseException | None = None
        self._calls = [(site, library_function(site.function)) for site in sites]
        self.pointer = CALLBACK(self._call)

    @property
    def address(self) -> int:
        """Where the machine calls."""
        return ctypes.cast(self.pointer, ctypes.c_void_p).value or 0

    def _call(self, state: int, words: Any) -> int:
        site, function = self._calls[words[0]]
        try:
            given = _CallWords(words)
            arguments = [given.value(spec) for spec in (*site.inputs, *site.outputs)]
            attributes = {name: given.attribute(value) for name, value in site.attributes}
            function(*arguments, **attributes)
        except BaseException as e:  # whatever it is, the caller of the model gets it, not the machine
            self.error = e
            return LIBRARY_FAILED
        return 0


class _CallWords:
    """Reads the words of a call one after the other, after the number of its site."""

    def __init__(self, words: Any) -> None:
        self._words = _counted(words)

    def value(self, spec: Spec) -> Any:
        """An argument of a library function."""
        if isinstance(spec, ArraySpec):
            address = next(self._words)
            return _array(address, spec.dtype, tuple(next(self._words) for _ in range(spec.rank)))
        if isinstance(spec, ShapeSpec):
            return tuple(next(self._words) for _ in range(spec.rank))
        assert isinstance(spec, NumberSpec)
        return stored(np.asarray(self.attribute(spec.value)), spec.dtype)

    def attribute(self, value: Any) -> Any:
        """An attribute with numbers in place of what was not known before."""
        if isinstance(value, Word64):
            return next(self._words)
        return tuple(map(self.attribute, value)) if isinstance(value, tuple) else value


def _counted(words: Any) -> Iterator[int]:
    at = 0
    while True:
        at += 1
        yield words[at]


class _View:
    """Memory of the machine as numpy sees it during a call."""

    def __init__(self, address: int, dtype: str, shape: tuple[int, ...]) -> None:
        kind = np.dtype(DTYPES[dtype].storage).str
        self.__array_interface__ = {"data": (address, False), "typestr": kind, "shape": shape, "version": 3}


def _array(address: int, dtype: str, shape: tuple[int, ...]) -> Any:
    return np.asarray(_View(address, dtype, shape))
