"""The kinds of loops: how their iterations run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LoopKind(StrEnum):
    """How the iterations of a loop run: in order, by threads, in lanes, written out, or by an axis of GPU threads."""

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
        """Whether an axis of GPU threads runs the iterations."""
        return self in THREAD_AXES

    @property
    def is_virtual(self) -> bool:
        """Whether the axis of threads is written out by code generation."""
        return self in _VIRTUAL

    @property
    def is_apart(self) -> bool:
        """Whether the iterations run where they cannot add to one result together: on cores or in blocks of threads."""
        return self in _APART


LOOP_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.UNROLLED)
THREAD_AXES = tuple(kind for kind in LoopKind if kind not in LOOP_KINDS)
_VIRTUAL = frozenset((LoopKind.VIRTUAL_X, LoopKind.VIRTUAL_Y, LoopKind.VIRTUAL_Z))
_APART = frozenset((LoopKind.PARALLEL, LoopKind.BLOCK_X, LoopKind.BLOCK_Y, LoopKind.BLOCK_Z))


@dataclass(frozen=True, slots=True)
class KindChoice:
    """A loop's note `kinds`: those among which its note `kind` chooses by number, once that is known."""

    kinds: tuple[LoopKind, ...]

    def __str__(self) -> str:
        return "|".join(self.kinds)

    @staticmethod
    def read(text: str) -> KindChoice:
        """The choice that `str` wrote."""
        return KindChoice(tuple(map(LoopKind, text.split("|"))))
