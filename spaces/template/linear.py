"""Templates of matrix products: matmul, batch_matmul, dense, transpose_batch_matmul, qmatmul, qdense."""

from __future__ import annotations

from searchlab.ir.algebra import ceildiv
from searchlab.schedule import Schedule
from searchlab.search.task import Task
from searchlab.tactics import extent
from spaces.template.config import Config
from spaces.template.nests import finish, operand, reduction, share, vectors
from spaces.template.products import ProductLoops, tiled
from spaces.template.registry import template


@template("tiles", operator=("matmul", "batch_matmul", "dense", "transpose_batch_matmul", "qmatmul", "qdense"))
def tiles(cfg: Config, s: Schedule, task: Task) -> None:
    """Register tiles of rows by vectors of columns, the second operand packed into panels or not."""
    nest = reduction(s, task)
    *around, i, j = nest.space
    packed = operand(s, nest.block, [j])
    packs = ["none", "whole", "panel"] if packed.contiguous else ["whole", "panel"]
    packs += ["ahead"] if packed.read.buffer in task.weights else []
    product = ProductLoops(nest.block, tuple(around), i, j, nest.reduce, nest.lanes, packed)
    tiled(cfg, s, task, product, packs)


@template("dots", operator="transpose_batch_matmul")
def dots(cfg: Config, s: Schedule, task: Task) -> None:
    """Both operands lie along the sum: a tile of dot products, each with one partial sum per lane."""
    nest = reduction(s, task)
    *around, i, j = nest.space
    (k,) = nest.reduce
    i0, i1 = cfg.split("i", i, 2, tail=True, max_inner=8)
    j0, j1 = cfg.split("j", j, 2, tail=True, max_inner=8)
    k0, k1 = cfg.split("k", k, 2, tail=True, sizes=vectors(nest.lanes, extent(s, k), most=2))
    rows, columns, depth = (s.program.loops[x].extent for x in (i1, j1, k1))
    cfg.require(rows * columns * ceildiv(depth, nest.lanes) <= task.target.vector_registers)
    s.reorder(*around, i0, j0, k0, i1, j1, k1)
    s.unroll(i1, j1)
    s.vectorize(k1)
    finish(s, task, nest.block, j0)
    share(s, task, around, i0)
