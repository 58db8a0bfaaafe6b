"""Templates of reductions and normalisations: softmax, layer_norm, l2_norm, global_avg_pool2d, reduce."""

from __future__ import annotations

from searchlab.ir.walk import variables
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import consumers
from searchlab.search.task import Task
from searchlab.tactics import attempt, extent, fetch_next_rows, next_rows, operands
from spaces.template.config import Config
from spaces.template.nests import axis_of, finish, reduction, share, vectors
from spaces.template.registry import template


@template("rows", operator=("softmax", "layer_norm"))
def rows(cfg: Config, s: Schedule, task: Task) -> None:
    """Every stage of a row before the next row: sums and maxima with partial results in lanes, the rest in vectors.

    The exponentials of softmax are kept for the second pass, or computed again.
    """
    _by_rows(cfg, s, task)


@template("rows-ahead", operator=("softmax", "layer_norm"))
def rows_ahead(cfg: Config, s: Schedule, task: Task) -> None:
    """The same, and the next row is fetched while this one is worked on."""
    _by_rows(cfg, s, task)
    if not next_rows(s):
        cfg.skip("its rows are too short to be fetched ahead")
    fetch_next_rows(s)


def _by_rows(cfg: Config, s: Schedule, task: Task) -> None:
    if "E" in s.program.blocks and cfg.choose("exponentials", ["kept", "again"]) == "again":
        s.compute_inline("E")
    *stages, last = s.program.blocks
    row, column = s.loops(last)
    lanes = task.target.lanes(s.program.buffers[last].dtype)
    sizes = vectors(lanes, extent(s, column), most=8)
    across = {True: cfg.knob("partial", sizes), False: cfg.knob("width", sizes)}
    block, row = cfg.split("block", row, 2, tail=True, max_inner=64)
    for stage in reversed(stages):
        s.compute_at(stage, row)
    for stage in (*stages, last):
        if len(s.program.blocks[stage].iters) > 1:
            _, inner = s.split(s.loops(stage)[-1], [None, across[s.program.blocks[stage].reduces]], tail=True)
            s.vectorize(inner)
    share(s, task, [], block)


@template("lanes", operator=("l2_norm", "global_avg_pool2d", "reduce"))
def lanes(cfg: Config, s: Schedule, task: Task) -> None:
    """The sum runs along memory: partial results in lanes, and, if wanted, one for every part that a thread takes."""
    nest = reduction(s, task)
    if not _walks(s, nest.block, nest.reduce[-1]):
        cfg.skip("the reduction does not run along memory")
    k = s.fuse(*nest.reduce) if len(nest.reduce) > 1 else nest.reduce[0]
    sizes = vectors(nest.lanes, extent(s, k), most=8)
    if cfg.choose("share", ["outputs", "sums"]) == "outputs":
        k0, k1 = cfg.split("k", k, 2, tail=True, sizes=sizes)
        _outputs(cfg, s, task, nest.block, list(nest.space), [k0], k1)
        return
    parts, k0, k1 = cfg.split("k", k, 3, tail=True, sizes=sizes)
    s.rfactor(parts)
    s.reorder(parts, *nest.space, k0, k1)
    s.vectorize(k1)
    share(s, task, [], parts)
    finish(s, task, nest.block, s.loops(nest.block)[len(nest.space) - 1])


def _outputs(cfg: Config, s: Schedule, task: Task, block: str, space: list[str], sums: list[str], inner: str) -> None:
    """Outputs shared among threads, a block of them each."""
    whole = s.fuse(*space) if len(space) > 1 else space[0]
    first, some = cfg.split("block", whole, 2, tail=True, max_inner=64)
    s.reorder(first, some, *sums, inner)
    s.vectorize(inner)
    for reader in consumers(s.program, s.program.blocks[block].store.buffer):
        attempt(s.reverse_compute_at, reader.name, some)
    share(s, task, [], first)


@template("columns", operator="reduce")
def columns(cfg: Config, s: Schedule, task: Task) -> None:
    """Neighbouring outputs come from neighbouring inputs: vectors of outputs, the sum unrolled or not."""
    nest = reduction(s, task)
    *around, column = nest.space
    (k,) = nest.reduce
    if not _walks(s, nest.block, column):
        cfg.skip("neighbouring outputs do not come from neighbouring inputs")
    x0, x1 = cfg.split("x", column, 2, tail=True, sizes=vectors(nest.lanes, extent(s, column), most=8))
    k0, k1 = cfg.split("k", k, 2, tail=True, max_inner=8)
    s.reorder(*around, x0, k0, k1, x1)
    s.unroll(k1)
    s.vectorize(x1)
    finish(s, task, nest.block, x0)
    share(s, task, around, x0)


def _walks(s: Schedule, block: str, loop: str) -> bool:
    """Whether a loop moves along the last dimension of what a stage reads."""
    axis = axis_of(s, block, loop)
    return any(axis in variables(ld.indices[-1]) for ld in operands(s.program.blocks[block]))
