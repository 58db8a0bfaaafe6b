"""Control of the number of threads that numpy's BLAS and torch use; onnxruntime starts a pool for each session."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Makes numpy's BLAS and torch (if installed) use `count` threads, and restores the setting afterwards."""
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

# (get, set) symbols as named in numpy's wheels, distributions and conda
_SYMBOLS = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
)


def _blas() -> list[Pool]:
    """The thread-count functions of the BLAS libraries that this process has loaded."""
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
