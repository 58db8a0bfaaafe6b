"""Tactics: reusable schedule fragments from which the default schedules and the search spaces are built.

Each takes a `Schedule` (or a program, if it only analyses) and does one thing: packs an operand, tiles a stage, fuses
its epilogues, parallelises its outer loops.  The caller decides which tactics to apply, and in which order.
"""

from searchlab.tactics.attempts import attempt, fuse_outer
from searchlab.tactics.axes import (
    axis_loops,
    call_around,
    constant,
    extent,
    loops_by_kind,
    loops_inside,
    moves_with,
    operands,
    own_loops,
    phases,
    reduce_axes,
    space_axes,
    stores_plainly,
    work,
)
from searchlab.tactics.call_tiling import CallTiles, results_are_in_order, structure_around, tile_for_calls
from searchlab.tactics.channel_blocks import (
    BlockTile,
    balance_threads,
    block_tile,
    rows_of_bands,
    slides_over_blocks,
    tile_blocks,
    tile_windows,
)
from searchlab.tactics.collapse import (
    Trailing,
    collapse,
    collapse_loops,
    collapse_stages,
    epilogues,
    joined_copy,
    trailing,
)
from searchlab.tactics.fetching import fetch_next_rows, goes_row_by_row, next_rows
from searchlab.tactics.intrinsic_views import (
    CallShape,
    IntrinsicView,
    call_shape,
    call_views,
    exact_view,
    intrinsic_view,
)
from searchlab.tactics.panel_tiling import (
    fuse_reader,
    lies_side_by_side,
    tile_along_panels,
    tile_collapsed,
    tile_in_place,
)
from searchlab.tactics.panels import (
    Panel,
    intermediate_results,
    join_trailing,
    lay_in_panels,
    pack,
    panel,
    read_rows_as_they_lie,
    rows_first,
    spread_rows,
    widen_halves,
)
from searchlab.tactics.placing import (
    fresh_stages,
    gather_inputs,
    gather_rows,
    inline_cheap,
    inline_padding,
    join_epilogues,
    meets_only_at_elements,
    vectorize_last,
)
from searchlab.tactics.products import ProductView, product_views, products
from searchlab.tactics.register_tiles import fits_registers, register_tile
from searchlab.tactics.row_blocks import row_bytes, rows_in_blocks
from searchlab.tactics.sharing import fuse_parallel, outermost, share, share_around
from searchlab.tactics.tensorizing import (
    CallLoops,
    LaidOperands,
    call_tile,
    insert_calls,
    lay_for_calls,
    run_copies,
    split_for_calls,
)
from searchlab.tactics.thread_tiles import (
    ThreadTiles,
    bind_elements,
    schedule_for_threads,
    sum_with_threads,
    tile_for_threads,
)
from searchlab.tactics.tiling import (
    Factors,
    RoundedUp,
    Tiles,
    parallel_outer,
    rfactor,
    split_by,
    tile,
    transpose_results,
    unroll_up_to,
    vector_width,
    vectorize_tile,
)
from searchlab.tactics.untiled import finish_fused, finish_untiled, fused_width, lane_factors, lane_loop
from searchlab.tactics.value_ranges import values_of
from searchlab.tactics.vectors import (
    contiguous_reduction,
    reduces_along_rows,
    reduces_as_one,
    row_times_matrix,
    side_by_side,
    vectorize_outputs,
)
from searchlab.tactics.warp_tiles import WarpTiles, tile_calls_by, tile_for_warps, tile_view_for_warps

__all__ = [
    "BlockTile", "CallLoops", "CallShape", "CallTiles", "Factors", "IntrinsicView", "LaidOperands", "Panel",
    "ProductView", "RoundedUp", "ThreadTiles", "Tiles", "Trailing", "WarpTiles", "attempt", "axis_loops",
    "balance_threads", "bind_elements", "block_tile", "call_around", "call_shape", "call_tile", "call_views",
    "collapse", "collapse_loops", "collapse_stages", "constant", "contiguous_reduction", "epilogues", "exact_view",
    "extent", "fetch_next_rows",
    "finish_fused", "finish_untiled", "fits_registers", "fresh_stages", "fuse_outer", "fuse_parallel", "fuse_reader",
    "fused_width", "gather_inputs", "gather_rows", "goes_row_by_row", "inline_cheap", "inline_padding", "insert_calls",
    "intermediate_results", "intrinsic_view", "join_epilogues", "join_trailing", "joined_copy", "lane_factors",
    "lane_loop", "lay_for_calls", "lay_in_panels", "lies_side_by_side", "loops_by_kind", "loops_inside",
    "meets_only_at_elements", "moves_with", "next_rows", "operands", "outermost", "own_loops", "pack", "panel",
    "parallel_outer", "phases", "product_views", "products", "read_rows_as_they_lie", "reduce_axes",
    "reduces_along_rows", "reduces_as_one", "register_tile", "results_are_in_order", "rfactor", "row_times_matrix",
    "row_bytes", "rows_first", "rows_in_blocks", "rows_of_bands", "run_copies", "schedule_for_threads", "share",
    "share_around", "side_by_side",
    "slides_over_blocks", "space_axes", "split_by", "split_for_calls", "spread_rows", "stores_plainly",
    "structure_around", "sum_with_threads", "tile", "tile_along_panels", "tile_blocks",
    "tile_calls_by", "tile_collapsed", "tile_for_calls", "tile_for_threads", "tile_for_warps", "tile_in_place",
    "tile_view_for_warps", "tile_windows", "trailing", "transpose_results", "unroll_up_to", "values_of",
    "vector_width", "vectorize_last", "vectorize_outputs", "vectorize_tile", "widen_halves", "work",
]  # fmt: skip
