"""What spaces share: predicates on programs, and transformations that take their tile factors from the space."""

from spaces.common.collapse import Trailing, collapse, trailing
from spaces.common.factors import Factors, KnobFactors
from spaces.common.packing import lay_in_panels, pack, read_rows_as_they_lie, rows_first, transpose_results
from spaces.common.predicates import (
    Panel,
    constant,
    fusible_consumer,
    is_expensive,
    needs_tiling,
    only_moves_data,
    operands,
    panel,
    points,
    reduce_axes,
    reduces_along_rows,
    space_axes,
    strictly_inlinable,
    wants_rfactor,
)
from spaces.common.stages import (
    Location,
    attached,
    finish_fused,
    finish_untiled,
    fused_width,
    lane_factors,
    lane_loop,
    locations,
    own_loops,
    place,
    rfactor,
)
from spaces.common.tiling import (
    Tiles,
    attempt,
    check_structure,
    loops_by_kind,
    parallel_outer,
    tile,
    unroll_up_to,
    vectorize_tile,
)

__all__ = [
    "Factors", "KnobFactors", "Location", "Panel", "Tiles", "Trailing", "attached", "attempt", "check_structure",
    "collapse", "constant", "finish_fused", "finish_untiled", "fused_width", "fusible_consumer", "is_expensive",
    "lane_factors", "lane_loop", "lay_in_panels", "locations", "loops_by_kind", "needs_tiling", "only_moves_data",
    "operands", "own_loops", "pack", "panel", "parallel_outer", "place", "points", "read_rows_as_they_lie",
    "reduce_axes", "reduces_along_rows", "rfactor", "rows_first", "space_axes", "strictly_inlinable", "tile",
    "trailing", "transpose_results", "unroll_up_to", "vectorize_tile", "wants_rfactor",
]  # fmt: skip
