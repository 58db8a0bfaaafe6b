"""Loads the kernel of this folder; requires numpy and the C library only.

from kernel import load
kernel = load()
c = kernel(a, b)                 # allocates the output
kernel(a, b, out=c)              # writes into an existing array
fast = kernel.bind(B=weights)    # packs a constant input once
c = fast(a)
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LIBRARY, OBJECT, DESCRIPTION = "libkernel.so", "kernel.o", "kernel.json"
_BITS = "bfloat16"


class ExportedKernel:
    """A compiled function on numpy arrays; `address` gives the address of each of its C functions."""

    def __init__(self, about: dict[str, Any], address: Callable[[str], int], keep: Any = None) -> None:
        self.about = about
        self.inputs, self.outputs = about["inputs"], about["outputs"]
        self.threads = int(about["threads"])
        self.address, self._keep = address, keep
        count = len(self.inputs) + len(self.outputs)
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (count + 1), ctypes.c_int64)
        self._call = signature(address(f"{about['function']}_with"))
        need = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address(f"{about['function']}_scratch"))
        self.scratch_bytes = need(self.threads)
        self._scratch: list[Any] = []
        self._bound: dict[str, Any] = {}

    def __repr__(self) -> str:
        arrays = ", ".join(f"{a['name']}: {a['dtype']}{a['shape']}" for a in self.inputs)
        return f"<kernel {self.about['function']}({arrays}), {self.threads} thread{'s' * (self.threads > 1)}>"

    def bind(self, **arrays: Any) -> ExportedKernel:
        """The kernel with these inputs fixed: packed now, and left out of later calls."""
        known = {a["name"]: a for a in self.inputs}
        made = ExportedKernel(self.about, self.address, self._keep)
        made._bound = dict(self._bound)
        for name, array in arrays.items():
            if name not in known:
                raise ValueError(f"no input '{name}'; inputs: {', '.join(known)}")
            made._bound[name] = self._packed(known[name], array).copy()
        return made

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """The outputs: one array, or a tuple of several."""
        run, outputs = self.prepare(*arrays, out=out)
        run()
        return outputs[0] if len(outputs) == 1 else outputs

    def prepare(self, *arrays: Any, out: Any = None) -> tuple[Callable[[], None], tuple[Any, ...]]:
        """A function without arguments that runs the kernel on these arrays, and its output arrays."""
        values, outputs = self.arrays(*arrays, out=out)
        pointers = [x.ctypes.data for x in (*values, *outputs)]
        call, threads, scratch, size = self._call, self.threads, self._scratch, self.scratch_bytes

        def run() -> None:
            # each call has its own scratch memory, so that threads may share a kernel
            memory = scratch.pop() if scratch else _aligned((size,), np.dtype(np.uint8))
            call(*pointers, memory.ctypes.data, threads)
            scratch.append(memory)

        run.keep = (self, values, outputs)  # type: ignore[attr-defined]
        return run, outputs

    def arrays(self, *arrays: Any, out: Any = None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arguments of the native call: inputs, checked and packed, and outputs."""
        given = [a for a in self.inputs if a["name"] not in self._bound]
        if len(arrays) != len(given):
            names = ", ".join(a["name"] for a in given)
            raise ValueError(f"{self.about['function']} takes {len(given)} arrays ({names}), got {len(arrays)}")
        found = {a["name"]: self._packed(a, x) for a, x in zip(given, arrays, strict=True)} | self._bound
        values = tuple(found[a["name"]] for a in self.inputs)
        if out is None:
            return values, tuple(_aligned(tuple(a["shape"]), _dtype(a)) for a in self.outputs)
        outputs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        for a, x in zip(self.outputs, outputs, strict=True):
            _check(a, x)
            if not x.flags.writeable or any(np.may_share_memory(x, y) for y in values):
                raise ValueError(f"output '{a['name']}' is read-only or overlaps an input")
        return values, outputs

    def _packed(self, argument: dict[str, Any], array: Any) -> Any:
        _check(argument, array)
        if argument["packed"] is None:
            return array
        packed = _aligned(tuple(argument["packed"]), _dtype({"dtype": argument.get("held") or argument["dtype"]}))
        pack = self.address(f"{self.about['function']}_pack_{argument['name']}")
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(pack)(array.ctypes.data, packed.ctypes.data)
        return packed


def _check(argument: dict[str, Any], array: Any) -> None:
    name, shape, dtype = argument["name"], tuple(argument["shape"]), argument["dtype"]
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != _dtype(argument):
        got = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
        bits = f" with the bits of {dtype}" if dtype == _BITS else ""
        raise ValueError(f"'{name}' must be a numpy array {_dtype(argument)}{list(shape)}{bits}, got {got}")
    if not array.flags.c_contiguous or array.ctypes.data % array.itemsize:
        raise ValueError(f"'{name}' must be contiguous and aligned (numpy.ascontiguousarray makes it so)")


def _dtype(argument: dict[str, Any]) -> np.dtype[Any]:
    """The type of arrays that hold such elements: numpy has no bfloat16."""
    return np.dtype("uint16" if argument["dtype"] == _BITS else argument["dtype"])


def _aligned(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array aligned to a cache line."""
    count = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count].view(dtype).reshape(shape)


def _features() -> set[str]:
    """The CPU features in /proc/cpuinfo, without underscores; empty if the file does not exist."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return {flag.replace("_", "") for line in lines if line.startswith("flags") for flag in line.split()}


def description(folder: Path) -> dict[str, Any]:
    """The contents of kernel.json; ValueError if it is damaged."""
    path = folder / DESCRIPTION
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if not _well_formed(about):
            raise ValueError("a field has the wrong form")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
        reason = f"{e} is missing" if isinstance(e, KeyError) else e or type(e).__name__
        raise ValueError(f"{path} is damaged: {reason}; export the kernel again") from None
    return dict(about)


def _well_formed(about: dict[str, Any]) -> bool:
    """Whether all fields that the loader reads have the types and ranges that it relies on."""
    arrays = [*about["inputs"], *about["outputs"]]
    texts = [
        about["function"],
        about.get("permission", ""),
        *about["needs"],
        *about.get("sha256", {}).values(),
        *(a["name"] for a in arrays),
    ]
    numbers = [about["threads"], *(n for a in arrays for n in (*a["shape"], *(a["packed"] or [])))]
    return (
        all(type(t) is str for t in texts)
        and all(type(n) is int and n > 0 for n in numbers)
        and all(type(about[k]) is list for k in ("inputs", "outputs", "needs"))
        and all(_dtype(a).kind in "biuf" for a in arrays)
        and all(_dtype({"dtype": a.get("held") or "int8"}).kind in "biuf" for a in arrays)
    )


def checked(path: Path, about: dict[str, Any]) -> bytes:
    """The contents of a code file; ValueError if its checksum differs, since running it could do anything."""
    code = path.read_bytes()
    expected = about.get("sha256", {}).get(path.name)  # earlier exports have none
    if expected is not None and hashlib.sha256(code).hexdigest() != expected:
        raise ValueError(f"{path} is damaged: its checksum is not the one in {DESCRIPTION}; export the kernel again")
    return code


def load(folder: str | Path | None = None) -> ExportedKernel:
    """The kernel of a folder, by default the folder of this file."""
    here = Path(__file__).parent if folder is None else Path(folder)
    about = description(here)
    features = _features()
    if features and (missing := set(about["needs"]) - features):
        raise OSError(f"{here}: this CPU lacks {', '.join(sorted(missing))}, which the kernel needs")
    checked(here / LIBRARY, about)
    library = ctypes.CDLL(str((here / LIBRARY).resolve()))

    def address(symbol: str) -> int:
        try:
            return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
        except AttributeError:
            raise ValueError(f"{here / LIBRARY} is damaged: it has no {symbol}; export the kernel again") from None

    if wanted := about.get("permission"):
        permitted = ctypes.CFUNCTYPE(ctypes.c_int)(address(f"{about['function']}_permitted"))
        if permitted():
            raise OSError(f"{here}: the system does not let this process use {wanted}, which the kernel needs")
    return ExportedKernel(about, address, library)
