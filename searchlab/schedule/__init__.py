"""Schedule primitives: pure functions Program -> Program, their trace, and a fluent Schedule on top."""

from searchlab.schedule.block_layout import transform_block_layout
from searchlab.schedule.domains import round_up
from searchlab.schedule.fill import decompose_padding
from searchlab.schedule.fluent import Schedule
from searchlab.schedule.hierarchy import blockize
from searchlab.schedule.layout import transform_layout
from searchlab.schedule.loops import annotate, bind, choose_kind, fuse, parallel, reorder, split, unroll, vectorize
from searchlab.schedule.padding import pad, unpad
from searchlab.schedule.primitive import PRIMITIVES, Step, loops_around, replay, trace_json
from searchlab.schedule.reduction import commute, decompose_reduction, rfactor
from searchlab.schedule.reindexing import reindex
from searchlab.schedule.stages import (
    cache_read,
    cache_write,
    compute_at,
    compute_inline,
    prefetch,
    reverse_compute_at,
    reverse_compute_inline,
)
from searchlab.schedule.tensorization import tensorize
from searchlab.schedule.widening import widen

__all__ = [
    "PRIMITIVES", "Schedule", "Step", "annotate", "bind", "blockize", "cache_read", "cache_write", "choose_kind",
    "commute", "compute_at", "compute_inline", "decompose_padding", "decompose_reduction", "fuse", "loops_around",
    "pad", "parallel", "prefetch", "reindex", "reorder", "replay", "reverse_compute_at", "reverse_compute_inline",
    "rfactor", "round_up", "split", "tensorize", "trace_json", "transform_block_layout", "transform_layout", "unpad",
    "unroll", "vectorize", "widen",
]  # fmt: skip
