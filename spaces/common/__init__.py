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

__all__ = [
    "Intrinsics", "KnobFactors", "Location", "attached", "check_intrinsics", "check_structure", "feeds_calls",
    "fusible_consumer", "is_expensive", "locations", "loops_compete", "needs_tiling", "only_moves_data",
    "parallel_outer", "place", "points", "reader_or_copy", "searched_views", "strictly_inlinable", "tile",
    "wants_rfactor", "would_repeat",
]  # fmt: skip
