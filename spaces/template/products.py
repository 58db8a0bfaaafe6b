"""The product of two operands in register tiles: what matrix products and 1x1 convolutions come down to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from searchlab.ir.expr import Expr
from searchlab.schedule import Schedule
from searchlab.search.task import Task
from searchlab.tactics import extent
from spaces.template.config import Config
from spaces.template.nests import (
    Operand,
    fill,
    finish,
    fit_registers,
    longer,
    pack_inside,
    panels,
    share,
    vectors,
)

MOST_ROWS = 16


@dataclass(frozen=True)
class ProductLoops:
    """The loops of a product by what they do: rows and columns of the result, sums, and what is around them.

    `packed` is the operand that may be packed into panels along the columns.
    """

    block: str
    around: tuple[str, ...]
    rows: str
    columns: str
    sums: tuple[str, ...]
    lanes: int
    packed: Operand


def tiled(cfg: Config, s: Schedule, task: Task, p: ProductLoops, packs: Sequence[str]) -> None:
    """Three levels of tiles: blocks for threads, blocks for caches, and a tile of accumulators in registers.

    The packed operand is stored in panels `ahead` of time, `whole` before the product, or one `panel` block at a time
    inside it; sums stay in `registers` from beginning to end, or are kept in `memory` between blocks of the sum.
    """
    pack = cfg.choose("pack", packs)
    partial = cfg.choose("sums", ["registers", "memory"]) == "memory"
    i0, i1, i2 = cfg.split("i", p.rows, 3, tail=True, max_inner=MOST_ROWS)
    j0, j1, j2 = cfg.split("j", p.columns, 3, tail=True, sizes=vectors(p.lanes, extent(s, p.columns)))
    rows, width = (s.program.loops[x].extent for x in (i2, j2))
    fit_registers(cfg, task, p.lanes, rows, width)
    blocks, sums = split_sums(cfg, s, p.sums, partial)
    outer = [j0, i0] if pack == "panel" else [i0, j0]
    s.reorder(*p.around, *outer, *blocks, i1, j1, *sums, i2, j2)
    s.unroll(i2)
    s.vectorize(j2)
    if pack != "none":
        _pack(s, task, p, pack, width, j0)
    home = outer[-1] if partial else j1
    finish(s, task, p.block, home, width, unroll=not partial)
    share(s, task, p.around, outer[0])


def _pack(s: Schedule, task: Task, p: ProductLoops, pack: str, width: Expr, home: str) -> None:
    name = panels(s, p.packed, width, pack == "ahead")
    if pack == "whole":
        fill(s, task, name)
    elif pack == "panel":
        pack_inside(s, name, home, along_rows=p.packed.contiguous)


def split_sums(cfg: Config, s: Schedule, sums: Sequence[str], partial: bool) -> tuple[list[str], list[str]]:
    """Blocks of the sum, if there are any, and the loops inside them, of which some are unrolled.

    The innermost part of a single sum is unrolled; of several, a knob says how many.
    """
    first, *taps = [*longer(s, sums), *(x for x in sums if extent(s, x) == 1)]
    tail = extent(s, first) is None
    if longer(s, taps):
        cfg.unrolled("unroll", longer(s, taps))
        parts = cfg.split("k", first, 2, tail=tail) if partial else [first]
    else:
        parts = cfg.split("k", first, 3 if partial else 2, tail=tail, max_inner=8)
        s.unroll(parts[-1])
    return (parts[:1], [*parts[1:], *taps]) if partial else ([], [*parts, *taps])
