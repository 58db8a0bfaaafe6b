"""Pattern analysis: how an operator's result depends on its operands, read off its tensor program.

A read is classified by comparing its indices with those of the store; a stage is the largest kind of its reads; a
program combines its stages.  Nothing is registered for an operator, so a new one is classified as soon as it exists.
"""

from __future__ import annotations

from enum import IntEnum

from searchlab.ir.expr import Binary, Cast, Expr, Load, Var
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.ir.walk import loads, variables


class PatternKind(IntEnum):
    """How elements of a result depend on elements of operands, from the simplest to the least known."""

    ELEMENTWISE = 0  # on the element at the same place
    BROADCAST = 1  # on an element that several places share
    INJECTIVE = 2  # on an element at a place that follows from the indices
    REDUCTION = 3  # on a whole axis
    ANCHOR = 4  # on sums of products, or on reductions: elementwise operators can be fused after it
    OPAQUE = 8  # nothing is known

    @property
    def word(self) -> str:
        """The kind as it is written in tables."""
        return "out-elementwise-fusible" if self is PatternKind.ANCHOR else self.name.lower()


def pattern_kind(program: Program) -> PatternKind:
    """The kind of a whole program: the largest of its stages, whose order is that of the program.

    Where a reduction is followed by a stage that computes the result place by place, as in softmax, elementwise
    operators can follow as they can follow a product.
    """
    found = PatternKind.ELEMENTWISE
    for block in program.blocks.values():
        kind = stage_kind(program, block)
        finishes = block.store.buffer in program.outputs and kind <= PatternKind.INJECTIVE
        if finishes and found is PatternKind.REDUCTION:
            found = PatternKind.ANCHOR
        found = max(found, kind)
    return found


def stage_kind(program: Program, block: Block) -> PatternKind:
    """The kind of one stage; reading at the same place and being broadcast besides counts as elementwise."""
    if not _stores_plainly(block):
        return PatternKind.OPAQUE
    kinds = {read_kind(program, block, ld) for ld in loads(block.store.value) if ld.buffer != block.store.buffer}
    if block.reduces:
        return PatternKind.ANCHOR if adds_products(block) else PatternKind.REDUCTION
    if kinds == {PatternKind.ELEMENTWISE, PatternKind.BROADCAST}:
        return PatternKind.ELEMENTWISE
    return max(kinds, default=PatternKind.ELEMENTWISE)


def read_kind(program: Program, block: Block, load: Load) -> PatternKind:
    """How the element that a stage stores depends on the place of one read."""
    places, at = block.store.indices, load.indices
    shape, stored = program.buffers[load.buffer].shape, program.buffers[block.store.buffer].shape
    if at == places and shape == stored:
        return PatternKind.ELEMENTWISE
    if _is_broadcast(at, shape, places, stored):
        return PatternKind.BROADCAST
    known = {v for v in places if isinstance(v, Var)}
    used = {v for e in at for v in variables(e) if v.role == "iter"}
    return PatternKind.INJECTIVE if used <= known else PatternKind.REDUCTION


def input_kind(program: Program, name: str) -> PatternKind:
    """How the result depends on one input: the largest kind of its reads.

    What an input becomes on its way is part of it: one that is padded before a convolution is summed up.
    """
    tainted = {name: PatternKind.ELEMENTWISE}
    for block in program.blocks.values():
        kinds = [
            max(tainted[ld.buffer], _through(program, block, ld))
            for ld in loads(block.store.value)
            if ld.buffer in tainted and ld.buffer != block.store.buffer
        ]
        if kinds:
            tainted[block.store.buffer] = max(kinds)
    return max((kind for n, kind in tainted.items() if n in program.outputs), default=PatternKind.ELEMENTWISE)


def _through(program: Program, block: Block, load: Load) -> PatternKind:
    if block.reduces:
        return stage_kind(program, block)
    return read_kind(program, block, load) if _stores_plainly(block) else PatternKind.OPAQUE


def _stores_plainly(block: Block) -> bool:
    space = [it.var for it in block.iters if it.kind == "space"]
    return list(block.store.indices) == space


def _is_broadcast(
    at: tuple[Expr, ...], shape: tuple[Expr, ...], places: tuple[Expr, ...], stored: tuple[Expr, ...]
) -> bool:
    """Whether indices are some of those stored at, in order, over whole axes; axes of extent 1 may stand between."""
    left = list(zip(places, stored, strict=True))
    for i, extent in zip(at, shape, strict=True):
        if not variables(i) and not variables(extent) and str(extent) == "1":
            continue
        while left and left[0] != (i, extent):
            left.pop(0)
        if not left:
            return False
        left.pop(0)
    return True


def adds_products(block: Block) -> bool:
    """Whether a stage adds products up: its value is the old one plus a product of different reads."""
    value = block.store.value
    if not (isinstance(value, Binary) and value.op == "add"):
        return False
    own = [e for e in (value.a, value.b) if isinstance(e, Load) and e.buffer == block.store.buffer]
    added = value.b if own and own[0] is value.a else value.a
    if not own or not (isinstance(added, Binary) and added.op == "mul"):
        return False
    a, b = _uncast(added.a), _uncast(added.b)
    return bool(loads(a)) and bool(loads(b)) and a != b


def _uncast(e: Expr) -> Expr:
    return _uncast(e.a) if isinstance(e, Cast) else e
