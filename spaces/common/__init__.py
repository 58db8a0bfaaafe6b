"""The common part of spaces: factors as knobs, structures, predicates of rules, and compute locations."""

from searchlab.tactics import parallel_outer, tile  # re-exported for users' rules
from spaces.common.calls import Intrinsics, check_intrinsics, feeds_calls, loops_compete, searched_views
from spaces.common.factors import KnobFactors, check_structure
from spaces.common.locations import Location, attached, locations, place, reader_or_copy
from spaces.common.predicates import (
    fusible_consumer,
    is_expensive,
    needs_tiling,
    only_moves_data,
    points,
    strictly_inlinable,
    wants_rfactor,
    would_repeat,
)
from spaces.common.threads import (
    Menu,
    bind_rest,
    block_sizes,
    can_share_rows,
    can_share_sums,
    share_rows,
    share_sums,
    unbound,
)

__all__ = [
    "Intrinsics", "KnobFactors", "Location", "Menu", "attached", "bind_rest", "block_sizes", "can_share_rows",
    "can_share_sums",
    "check_intrinsics", "check_structure", "feeds_calls", "fusible_consumer", "is_expensive", "locations",
    "loops_compete", "needs_tiling", "only_moves_data", "parallel_outer", "place", "points", "reader_or_copy",
    "searched_views", "share_rows", "share_sums", "strictly_inlinable", "tile", "unbound", "wants_rfactor",
    "would_repeat",
]  # fmt: skip
