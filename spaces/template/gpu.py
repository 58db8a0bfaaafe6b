"""Templates for GPUs: products, convolutions and windows in tiles of blocks and threads or warps; sums and elements.

Axes are split as in AutoTVM's templates, into blocks, virtual threads, threads and what a thread computes; the sum is
split in two, and the outer part steps through shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from searchlab.errors import ScheduleError
from searchlab.ir.expr import Like
from searchlab.schedule import Schedule
from searchlab.search import Tails
from searchlab.search.task import Task
from searchlab.tactics import attempt, inline_cheap, tile_calls_by
from searchlab.tactics.block_tiling import Staged, ThreadBlockTile, levels, stage_for_block, tile_for_blocks
from searchlab.targets import CudaTarget
from spaces.common import (
    KnobFactors,
    bind_rest,
    can_share_rows,
    can_share_sums,
    needs_tiling,
    searched_views,
    share_rows,
    share_sums,
)
from spaces.common.threads import CALL_LANES, LANES, tile_limits
from spaces.template.config import Config
from spaces.template.registry import GPU_CALLS, template

_PRODUCTS = ("matmul", "batch_matmul", "dense", "transpose_batch_matmul", "qmatmul", "qdense")
_PLANES = ("conv1d", "conv2d", "conv3d", "conv2d_bn_relu", "conv2d_transpose", "capsule_conv2d", "qconv2d")
_WINDOWS = ("depthwise_conv2d", "qdepthwise_conv2d", "max_pool2d", "avg_pool2d")
_SUMS = ("softmax", "layer_norm", "l2_norm", "global_avg_pool2d", "reduce", "capsule_conv2d")
_STRUCTURE = "SSSRRS"
_MAX_INNER = 16


@template("gpu-tiles", operator=(*_PRODUCTS, *_PLANES, "depthwise_conv2d", "qdepthwise_conv2d"), kind="cuda")
def tiles(cfg: Config, s: Schedule, task: Task) -> None:
    """Tiles of blocks and threads, with operands in shared memory or read where they are."""
    product = _product(cfg, s)
    shared = cfg.choose("operands", ["shared", "direct"]) == "shared"
    try:
        staged = stage_for_block(s, product, shared=shared)
    except ScheduleError as e:
        cfg.skip(str(e))
    splits = levels(s, staged.block, _STRUCTURE, _factors(cfg))
    tile = tile_for_blocks(s, staged, splits, cfg.knob("lanes", LANES) if shared else 1)
    _finish(cfg, s, task, staged, tile)


@template(GPU_CALLS, operator=(*_PRODUCTS, *_PLANES), kind="cuda")
def calls(cfg: Config, s: Schedule, task: Task) -> None:
    """Products of short numbers by tensor cores: tiles of blocks, warps and calls, with operands in shared memory."""
    product = _product(cfg, s)
    views = searched_views(s.program, product, task, "auto")
    if not views:
        cfg.skip("the target has no instruction for its products")
    view = cfg.choose("intrinsic", views, lambda v: v.intrinsic.name)
    try:
        staged, tile = tile_calls_by(s, view, _factors(cfg).exact, cfg.knob("lanes", CALL_LANES))
    except ScheduleError as e:
        cfg.skip(str(e))
    _finish(cfg, s, task, staged, tile)


@template("gpu-elements", operator=(*_PLANES, *_WINDOWS, *_SUMS, "elementwise"), kind="cuda")
def elements(cfg: Config, s: Schedule, task: Task) -> None:
    """A thread for every element of every stage."""
    inline_cheap(s)
    bind_rest(s, _menu(cfg))


@template("gpu-sums", operator=_SUMS, kind="cuda")
def sums(cfg: Config, s: Schedule, task: Task) -> None:
    """A block for every long sum, and a thread for every element of the other stages."""
    inline_cheap(s)
    shared = [n for n in s.program.blocks if can_share_sums(s.program, n)]
    if not shared:
        cfg.skip("no sum is long enough to be shared")
    for name in shared:
        attempt(share_sums, s, name, _menu(cfg))
    bind_rest(s, _menu(cfg))


@template("gpu-rows", operator=("softmax", "layer_norm"), kind="cuda")
def rows(cfg: Config, s: Schedule, task: Task) -> None:
    """One kernel: a block for a row or some rows, in which threads share all stages."""
    inline_cheap(s)
    assert isinstance(task.target, CudaTarget)
    if not can_share_rows(s.program, task.target):
        cfg.skip("its stages do not follow each other row by row")
    try:
        limits = share_rows(s, _menu(cfg), task.target)
    except ScheduleError as e:
        cfg.skip(str(e))
    for limit in limits:
        cfg.require(limit)


def _product(cfg: Config, s: Schedule) -> str:
    """The stage that is worth tiling."""
    inline_cheap(s)
    found = [n for n, b in s.program.blocks.items() if b.reduces and needs_tiling(s.program, n)]
    if not found:
        cfg.skip("no stage reuses data")
    return found[-1]


def _finish(cfg: Config, s: Schedule, task: Task, staged: Staged, tile: ThreadBlockTile) -> None:
    """The limits of a tiled stage as conditions, and threads for all other stages."""
    assert isinstance(task.target, CudaTarget)
    for limit in tile_limits(s.program, staged.block, tile, task.target):
        cfg.require(limit)
    bind_rest(s, _menu(cfg))


def _menu(cfg: Config) -> Callable[[str, Sequence[int]], Like]:
    return cfg.knob


def _factors(cfg: Config, tails: Tails = "auto") -> KnobFactors:
    """Factors of whole axes; where few sizes divide an axis, others that round it up."""
    factors = KnobFactors(_MAX_INNER, (), tails)
    factors.knobs = cfg.knobs
    return factors
