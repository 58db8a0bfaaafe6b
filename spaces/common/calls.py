"""Which stages of derived structures are tiled around calls of intrinsics: the option `intrinsics` of spaces."""

from __future__ import annotations

from typing import Literal, get_args

from searchlab.dtype import DTYPES
from searchlab.errors import SpaceError
from searchlab.ir.program import Program
from searchlab.schedule.primitive import consumers
from searchlab.search.task import Task
from searchlab.tactics import IntrinsicView, call_around, call_views
from spaces.common.predicates import needs_tiling

Intrinsics = Literal["auto", "always", "never"]
_WIDE = 4  # bytes of an element that ordinary vectors multiply as fast as any intrinsic does


def check_intrinsics(intrinsics: str) -> None:
    """Refuses words that do not say when stages call intrinsics."""
    if intrinsics not in get_args(Intrinsics):
        raise SpaceError(f"intrinsics = {intrinsics!r}: accepted are {', '.join(get_args(Intrinsics))}")


def searched_views(program: Program, block: str, task: Task, intrinsics: Intrinsics) -> tuple[IntrinsicView, ...]:
    """The views of a stage as calls that a space offers; of float32 only if calls are `always` wanted."""
    if intrinsics == "never" or not needs_tiling(program, block):
        return ()
    found = call_views(program, block, task.target, task.workload.ranges)
    return found if intrinsics == "always" or not loops_compete(found) else ()


def loops_compete(views: tuple[IntrinsicView, ...]) -> bool:
    """Whether structures without calls are worth trying beside these: loops over bytes widen every one of them."""
    return all(DTYPES[v.data.type].bytes >= _WIDE for v in views)


def feeds_calls(program: Program, block: str) -> bool:
    """Whether a call of an intrinsic reads the results of a stage, as they lie in memory."""
    readers = consumers(program, program.blocks[block].store.buffer)
    return any(call_around(program, r.name) is not None for r in readers)
