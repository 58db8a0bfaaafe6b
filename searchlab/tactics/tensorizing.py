"""Products by calls of an intrinsic: operands laid out for them, loops split around them, and the calls themselves."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.ir.expr import Expr, Like, Var, value_of
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import producers
from searchlab.tactics.axes import axis_loops, operands, reduce_axes, space_axes
from searchlab.tactics.intrinsic_views import IntrinsicView
from searchlab.tactics.placing import fresh_stages
from searchlab.tactics.sharing import fuse_parallel, outermost
from searchlab.tactics.value_ranges import values_of
from searchlab.tactics.vectors import vectorize_outputs
from searchlab.targets import Target

_MOST_ROWS = 10
_VECTORS = 4  # that one iteration of a copy stores
_JOBS = 4  # the fewest iterations of a parallel loop for each thread


@dataclass(frozen=True)
class CallLoops:
    """The loops of a stage around the calls of an intrinsic.

    around: further axes of space; columns, rows: over tiles; sums: over the reduction; row, vector: calls of a tile,
    each with accumulators of its own; call: the loops inside a call, outermost first.
    """

    around: tuple[str, ...]
    columns: str
    rows: str
    sums: tuple[str, ...]
    row: str
    vector: str
    call: tuple[str, ...]


@dataclass(frozen=True)
class LaidOperands:
    """The operands of a stage as its calls read them: `copies` are stages that pack while the kernel runs.

    `in_order`: the data keep their order, and only get room for whole calls; `grouped`: their last dimension has the
    terms of a call.
    """

    weight: str
    data: str
    copies: tuple[str, ...]
    in_order: bool
    grouped: bool


def lay_for_calls(s: Schedule, view: IntrinsicView, ahead: bool) -> LaidOperands:
    """Lays out the operands for an intrinsic, and rounds columns and depth up to whole calls; rows keep their number.

        B[k, j]  =>  B[j // 16, k // 4, j % 16, k % 4]        A[i, k]  =>  A[i, k // 4, k % 4], unless it lies like that

    With `ahead` the weight is a constant input that is packed before the kernel runs.  Operands of narrower types than
    the intrinsic's are widened where they are packed.
    """
    copies = []
    data_type, weight_type = view.types
    weight = view.weight.buffer
    if not ahead:
        weight = s.cache_read(view.block, weight)
        copies.append(weight)
    _lay_weight(s, view, weight)
    if weight_type != view.weight.type:
        s.widen(weight, weight_type)
    data, lies_well = view.data.buffer, _lies_well(s, view)
    if not lies_well or data_type != view.data.type:
        if data in s.program.inputs or not _is_made_by_copying(s, data):
            data = s.cache_read(view.block, data)
        copies.append(data)
    if not lies_well:
        _lay_data(s, view, data)
    if data_type != view.data.type:
        s.widen(data, data_type)
    _round_up(s, view)
    in_order = view.data.indices[-1] == view.axes(s.program)[2]
    return LaidOperands(weight, data, tuple(copies), in_order, grouped=not lies_well)


def _digits(x: Var, extents: tuple[int, ...]) -> list[Expr]:
    """The digits of an index, the first of them the number of whole calls."""
    found: list[Expr] = []
    low = 1
    for n in reversed(extents):
        found.append((x // low) % n)
        low *= n
    return [x // low, *reversed(found)]


def _lay_weight(s: Schedule, view: IntrinsicView, buffer: str) -> None:
    _, column, depth = view.axes(s.program)
    olds = tuple(Var(f"x{n}") for n in range(len(view.weight.indices)))
    at = dict(zip(view.weight.indices, olds, strict=True))
    free = {it.var for it in space_axes(s.program.blocks[view.block])} - {column}
    front = [x for i, x in at.items() if i in free]
    groups = _digits(at[depth], view.shape.along("depth"))
    inner = groups[-1:] if len(groups) > 1 else []
    rest: list[Expr] = []
    for i, x in at.items():
        rest += groups[: len(groups) - len(inner)] if i == depth else [] if i == column or x in front else [x]
    width = view.shape.columns
    s.transform_layout(buffer, (olds, (*front, at[column] // width, *rest, at[column] % width, *inner)))


def _lies_well(s: Schedule, view: IntrinsicView) -> bool:
    """Whether the terms of a call lie side by side in the data, in whole calls."""
    depth, whole = reduce_axes(s.program.blocks[view.block])[view.depth], view.shape.depth
    long = value_of(depth.extent)
    return whole == 1 or (view.data.indices[-1] == depth.var and long is not None and long % whole == 0)


def _is_made_by_copying(s: Schedule, buffer: str) -> bool:
    """Whether a stage sets every element once, such as padding, and so can do it in another order."""
    makers = producers(s.program, buffer)
    return (
        len(makers) == 1
        and not makers[0].reduces
        and makers[0].store.indices == tuple(it.var for it in makers[0].iters)
    )


def _lay_data(s: Schedule, view: IntrinsicView, buffer: str) -> None:
    _, _, depth = view.axes(s.program)
    olds = tuple(Var(f"x{n}") for n in range(len(view.data.indices)))
    x = olds[view.data.indices.index(depth)]
    news = [o // view.shape.depth if o is x else o for o in olds]
    s.transform_layout(buffer, (olds, (*news, x % view.shape.depth)))


def _round_up(s: Schedule, view: IntrinsicView) -> None:
    _, column, depth = view.axes(s.program)
    b = s.program.blocks[view.block]
    wide = value_of(space_axes(b)[view.column].extent)
    if (wide is None or wide % view.shape.columns) and b.store.buffer in s.program.outputs:
        s.cache_write(view.block)
    s.round_up(view.block, {column.name: view.shape.columns, depth.name: view.shape.depth})


def run_copies(s: Schedule, laid: LaidOperands, target: Target) -> None:
    """Schedules the stages that lay out operands in nests of their own, in vectors of a call's terms or longer ones.

    Threads share the outermost loops only: an index that is taken apart for every few bytes would cost more than they.
    """
    for stage in (x for x in fresh_stages(s) if x in laid.copies):
        *outer, last = s.loops(stage)
        if stage == laid.data and laid.in_order:
            if laid.grouped:
                last = s.fuse(outer.pop(), last)
            lanes = target.lanes(s.program.buffers[stage].dtype)
            whole = value_of(s.program.loops[last].extent) or lanes
            outer = [*outer, vectorize_outputs(s, last, [], lanes * max(1, min(_VECTORS, whole // lanes)))]
        else:
            s.vectorize(last)
        if target.threads > 1 and outer:
            fuse_parallel(s, outermost(s, outer, _JOBS * target.threads, unknown=_JOBS * target.threads))


# --- loops ------------------------------------------------------------------------------------------------------------


def split_for_calls(s: Schedule, view: IntrinsicView, rows: Like, vectors: Like) -> CallLoops:
    """Splits the axes of a stage into tiles of `rows` by `vectors` calls; what is left over in a tile has fewer calls.

    The caller unrolls the calls of a tile and orders the loops, with those of `call` innermost, in their order.
    """
    space, sums = axis_loops(s, view.block)
    i0, i1, *i2 = s.split(space[view.row], [None, rows, *view.shape.along("row")], tail=True)
    j0, j1, j2 = s.split(space[view.column], [None, vectors, view.shape.columns], tail=True)
    inner = view.shape.along("depth")
    k0, *k = s.split(sums[view.depth], [None, *inner]) if inner else [sums[view.depth]]
    left = {"row": i2, "column": [j2], "depth": k}
    call = tuple(left[part].pop(0) for part, _ in view.shape.parts)
    around = tuple(x for n, x in enumerate(space) if n not in (view.row, view.column))
    outer = tuple(k0 if n == view.depth else x for n, x in enumerate(sums))
    return CallLoops(around, j0, i0, outer, i1, j1, call)


def insert_calls(s: Schedule, view: IntrinsicView, loops: CallLoops) -> str:
    """Replaces the innermost loops by calls; comes last, since the operands keep their layouts from then on."""
    if not view.intrinsic.promise.ranges:
        return s.tensorize(loops.call[0], view.intrinsic.name)
    read = dict.fromkeys(ld.buffer for ld in operands(s.program.blocks[view.block]))
    found = {n: values_of(s.program, n, view.ranges) for n in read}
    return s.tensorize(loops.call[0], view.intrinsic.name, {n: span for n, span in found.items() if span is not None})


def call_tile(target: Target, view: IntrinsicView, rows: int, columns: int, vectors: int = 2) -> tuple[int, int]:
    """Rows and vectors of calls whose accumulators fill the registers of a target, within the size of the problem.

    There are at most so many `vectors`.  An intrinsic with rows of its own fills the registers by itself.
    """
    if view.shape.rows > 1:
        return 1, 1
    across = max(1, min(vectors, -(-columns // view.shape.columns)))
    spare = view.intrinsic.needs.registers - 2  # per vector of columns, and once for the row
    most = max(1, min(_MOST_ROWS, (target.vector_registers - across * spare - spare) // across))
    tiles = -(-rows // most)
    return -(-rows // tiles), across
