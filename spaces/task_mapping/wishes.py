"""First choices of the task-mapping space: tiles that fill the registers, and what usually suits the caches."""

from __future__ import annotations

from collections.abc import Iterator

from searchlab.search import Task
from searchlab.search.wishes import Wish


def wishes(task: Task) -> Iterator[Wish]:
    """Points to start with, most promising first; those of sketches that a task does not have are left out."""
    wide = task.target.vector_registers >= 32
    yield from _calls(wide)
    tiles = ((6, 4), (8, 3), (14, 2)) if wide else ((6, 2), (4, 3), (12, 1))
    for rows, vectors in ((14, 2), (6, 4)) if wide else ((6, 2), (12, 1)):
        for depth, band in ((16, 7), (64, 4)):
            for name in ("channels", "channels-unrolled"):
                yield Wish(name, {"rows": rows, "vectors": vectors, "depth": depth, "band": band})
    for rows, vectors in tiles:
        tile = {"rows": rows, "vectors": vectors}
        for name in ("ahead", "before"):
            yield Wish(name, {**tile, "panels": 1, "tiles": 16})
        yield Wish("panels", {**tile, "panels": 1, "prefetch": 0})
        yield Wish("columns", {**tile, "panels": 1, "prefetch": 0})
        yield Wish("panels", {**tile, "panels": 4, "prefetch": 8})
        yield Wish("direct", {**tile, "panels": 1, "tiles": 16, "prefetch": 0})
        yield Wish("parallel-k", {**tile, "panels": 1})
        yield Wish("panels-by-depth", {**tile, "panels": 4, "depth": 1 << 10})
        yield Wish("panels-padded", {**tile, "panels": 1})
    for name in ("windows-with-*", "windows"):
        for rows, vectors in ((4, 2), (2, 4)):
            yield Wish(name, {"rows": rows, "vectors": vectors})
    yield Wish("shared-sum", {"vectors": 4, "parts": 16, "chunk": 1})
    yield Wish("shared-sum", {"vectors": 8, "parts": 4, "chunk": 1})
    for name in ("rows-ahead", "rows", "stages"):
        for vectors, chunk, unroll in ((4, 4, 16), (4, 1, 1), (8, 4, 16)):
            yield Wish(name, {"vectors": vectors, "chunk": chunk, "unroll": unroll})


def _calls(wide: bool) -> Iterator[Wish]:
    """Tiles of calls, as in the default schedule first; then intrinsics that fill the registers alone, in turn."""
    tiles = ((10, 2), (14, 2), (8, 3), (6, 4)) if wide else ((6, 2), (4, 3), (4, 2), (12, 1))
    for rows, vectors in tiles:
        tile = {"rows": rows, "vectors": vectors}
        yield Wish("calls-columns/*", {**tile, "panels": 1})
        yield Wish("calls-channels/*", {**tile, "groups": 16, "band": 7})
        yield Wish("calls-blocks/*", {**tile, "panels": 1, "tiles": 16})
        yield Wish("calls-channels/*", {**tile, "groups": 64, "band": 4})
    for kernel in ("14x32", "6x64") if wide else ("6x16",):
        yield Wish(f"calls-columns/*_f32_{kernel}", {"panels": 1})
        yield Wish(f"calls-channels/*_f32_{kernel}", {"groups": 64, "band": 7})
