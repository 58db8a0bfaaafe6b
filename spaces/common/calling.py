"""The option `intrinsics` of spaces: for which products a space offers calls of tensor intrinsics."""

from __future__ import annotations

from typing import Literal, get_args

from searchlab.dtype import DTYPES
from searchlab.errors import SpaceError
from searchlab.ir.program import Program
from searchlab.tactics import IntrinsicView, call_views
from searchlab.targets import Target

Intrinsics = Literal["auto", "never", "always"]


def checked_intrinsics(space: str, given: str) -> Intrinsics:
    """The value of the option, which must be one of those that are accepted."""
    for known in get_args(Intrinsics):
        if given == known:
            return known  # type: ignore[no-any-return]
    raise SpaceError(f"space '{space}': intrinsics = {given!r}; accepted: {', '.join(get_args(Intrinsics))}")


def offered_calls(program: Program, block: str, target: Target, intrinsics: Intrinsics) -> tuple[IntrinsicView, ...]:
    """The views of a stage as calls that a space offers: with `auto`, where loops are no match for them."""
    if intrinsics == "never":
        return ()
    return tuple(v for v in call_views(program, block, target) if intrinsics == "always" or widens(program, v))


def widens(program: Program, view: IntrinsicView) -> bool:
    """Whether the operands are narrower than the sums, such as bytes: loops have to widen what instructions take."""
    into = program.blocks[view.block].store.buffer
    data, sums = (DTYPES[program.buffers[name].dtype].bytes for name in (view.data.buffer, into))
    return data < sums
