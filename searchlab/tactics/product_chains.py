"""Two products in a row with stages between them, as in attention: all are computed for a few rows at a time.

So what lies between the products, such as the scores of attention, is held for these rows only, and is still in the
cache when the second product reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.ir.expr import Expr, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import consumers, producers
from searchlab.tactics.attempts import attempt
from searchlab.tactics.axes import axis_loops, extent, loops_inside, operands, reduce_axes, space_axes
from searchlab.tactics.panels import Panel, pack
from searchlab.tactics.products import ProductView, product_views
from searchlab.tactics.register_tiles import register_tile
from searchlab.tactics.sharing import LARGE, parallelize
from searchlab.tactics.vectors import contiguous_reduction, vectorize_outputs
from searchlab.targets import Target

_FEW = 4  # rows below which there is nothing to share


@dataclass(frozen=True)
class ProductChain:
    """The first product, seen as one whose operand is packed, and the stages from there to the last, in order."""

    first: ProductView
    between: tuple[str, ...]
    last: str


def product_chain(program: Program) -> ProductChain | None:
    """The chain that a whole program is: all stages have the axes of the last product's rows before their own."""
    *others, last = program.blocks.values()
    sums = [b for b in others if _is_product(b)]
    if len(sums) != 1 or not _is_product(last) or last.store.buffer not in program.outputs or sums[0] is not others[0]:
        return None
    rows = [it.extent for it in space_axes(last)[:-1]]
    if (value_of(rows[-1]) or LARGE) < _FEW or any(not _has_rows(b, rows) for b in others):
        return None
    made = {b.store.buffer for b in others}
    if any(ld.buffer in made and ld.indices[: len(rows)] != last.store.indices[:-1] for ld in operands(last)):
        return None
    views = [v for v in product_views(sums[0]) if v.plain and v.contiguous and not producers(program, v.operand.buffer)]
    if not views or views[0].row != len(rows) - 1:
        return None
    return ProductChain(views[0], tuple(b.name for b in others[1:]), last.name)


def _is_product(b: Block) -> bool:
    return b.reduces and len(reduce_axes(b)) == 1 and len(operands(b)) >= 2 and bool(product_views(b))


def _has_rows(b: Block, rows: list[Expr]) -> bool:
    space = space_axes(b)
    return len(space) in (len(rows), len(rows) + 1) and [it.extent for it in space[: len(rows)]] == rows


def by_rows_of_products(s: Schedule, target: Target) -> bool:
    """Schedules a chain of two products; False, and nothing is changed, if the program is none."""
    chain = product_chain(s.program)
    if chain is None:
        return False
    made = Schedule(s.program)
    if not attempt(_schedule, made, chain, target):
        return False
    s.program = made.program
    return True


def _schedule(s: Schedule, chain: ProductChain, target: Target) -> None:
    most, width = _tile(s, chain.first.block, chain.first.row, chain.first.vector, target)
    packed = _packed(s, chain.first, width)
    (*around, row, column), reduction = axis_loops(s, chain.last)
    height, columns = _tile(s, chain.last, -2, -1, target)
    rows, i = s.split(row, [None, min(height, most)], tail=True)  # both products have these rows in registers
    j0, j1 = s.split(column, [None, columns], tail=True)
    s.reorder(*around, rows, j0, *reduction, i, j1)
    s.unroll(i)
    s.vectorize(j1)
    for name in reversed(chain.between):
        s.compute_at(name, rows)
    rest = _tile_first(s, chain, rows, width)
    for name in rest:
        _in_vectors(s, name, rows, target)
    parallelize(s, [*around, rows], target)
    *packing, lanes = s.loops(packed)
    s.vectorize(lanes)
    parallelize(s, packing, target)


def _tile(s: Schedule, block: str, row: int, column: int, target: Target) -> tuple[int, int]:
    """Rows and columns of a product, given by the numbers of their axes, that fit registers."""
    space, _ = axis_loops(s, block)
    dtype = s.program.buffers[s.program.blocks[block].store.buffer].dtype
    most = 4 if target.vector_registers >= 32 else 2
    rows, columns = (extent(s, space[axis]) or LARGE for axis in (row, column))
    return register_tile(target, dtype, rows, columns, most)


def _packed(s: Schedule, view: ProductView, width: int) -> str:
    """Packs the operand of the first product into panels, all of them before anything else.

    A run-time number of columns is rounded up to whole panels, whose ends are zero, so that all tiles fit registers.
    """
    space, _ = axis_loops(s, view.block)
    assert view.dimension is not None
    made = pack(s, view.block, Panel(view.operand.buffer, view.vector, view.dimension), width, ahead=False)
    if extent(s, space[view.vector]) is None:
        s.round_up(view.block, {space_axes(s.program.blocks[view.block])[view.vector].var.name: width})
    return made


def _tile_first(s: Schedule, chain: ProductChain, rows: str, width: int) -> tuple[str, ...]:
    """Tiles of all rows by some columns, finished by the stage that follows if it computes each element alone.

    Returns the stages that are left.
    """
    block, (follower, *rest) = chain.first.block, chain.between
    if s.program.blocks[follower].reduces or len(consumers(s.program, s.program.blocks[block].store.buffer)) > 1:
        s.compute_at(block, rows)
        _tile_columns(s, block, rows, width)
        return chain.between
    tiles = _tile_columns(s, follower, rows, width)
    s.compute_at(block, tiles)
    *_, row, column, reduction = loops_inside(s, block, tiles)
    s.reorder(reduction, row, column)
    s.unroll(row)
    s.vectorize(column)
    return tuple(rest)


def _tile_columns(s: Schedule, block: str, rows: str, width: int) -> str:
    """Splits the columns of a stage; returns the loop over tiles."""
    sums = len(reduce_axes(s.program.blocks[block]))
    inside = loops_inside(s, block, rows)
    row, column, *reduction = inside[len(inside) - sums - 2 :]
    j0, j1 = s.split(column, [None, width], tail=True)
    s.reorder(j0, *reduction, row, j1)
    s.unroll(row)
    s.vectorize(j1)
    return j0


def _in_vectors(s: Schedule, name: str, rows: str, target: Target) -> None:
    """Runs a stage of rows in vectors: along its columns, or along a sum."""
    b = s.program.blocks[name]
    inside = loops_inside(s, name, rows)
    lanes = 4 * target.lanes(s.program.buffers[b.store.buffer].dtype)
    sums = inside[len(inside) - len(reduce_axes(b)) :] if b.reduces else []
    if not sums:
        vectorize_outputs(s, inside[-1], [], lanes)
    elif (lane := contiguous_reduction(b, sums)) is not None:
        _, inner = s.split(lane, [None, lanes], tail=True)
        attempt(s.vectorize, inner)
