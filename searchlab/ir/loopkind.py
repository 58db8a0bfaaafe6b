"""Loop kinds: how the iterations of a loop are executed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LoopKind(StrEnum):
    """How iterations are executed: serially, by threads, in vector lanes, unrolled, or along a GPU thread axis."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    BLOCK_X = "blockIdx.x"
    BLOCK_Y = "blockIdx.y"
    BLOCK_Z = "blockIdx.z"
    THREAD_X = "threadIdx.x"
    THREAD_Y = "threadIdx.y"
    THREAD_Z = "threadIdx.z"
    VIRTUAL_X = "vthread.x"
    VIRTUAL_Y = "vthread.y"
    VIRTUAL_Z = "vthread.z"

    @property
    def is_thread(self) -> bool:
        """Whether the loop is bound to an axis of GPU threads."""
        return self in THREAD_AXES

    @property
    def is_virtual(self) -> bool:
        """Whether the axis is one of virtual threads, which code generation unrolls."""
        return self in _VIRTUAL

    @property
    def is_apart(self) -> bool:
        """Whether iterations cannot accumulate into one result: they run on different cores or thread blocks."""
        return self in _APART


LOOP_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.UNROLLED)
THREAD_AXES = tuple(kind for kind in LoopKind if kind not in LOOP_KINDS)
BLOCKS = (LoopKind.BLOCK_X, LoopKind.BLOCK_Y, LoopKind.BLOCK_Z)
THREADS = (LoopKind.THREAD_X, LoopKind.THREAD_Y, LoopKind.THREAD_Z)
_VIRTUAL = frozenset((LoopKind.VIRTUAL_X, LoopKind.VIRTUAL_Y, LoopKind.VIRTUAL_Z))
_APART = frozenset((LoopKind.PARALLEL, *BLOCKS))


@dataclass(frozen=True, slots=True)
class KindChoice:
    """The annotation `kinds` of a loop: the alternatives that its annotation `kind` selects from by number."""

    kinds: tuple[LoopKind, ...]

    def __str__(self) -> str:
        return "|".join(self.kinds)

    @staticmethod
    def read(text: str) -> KindChoice:
        """Parses the output of `str`."""
        return KindChoice(tuple(map(LoopKind, text.split("|"))))
