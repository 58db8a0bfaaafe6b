"""Tensor intrinsics: hardware instructions with descriptions that loop nests are matched with."""

from searchlab.intrinsics.intrinsic import EXACT, Fragments, Intrinsic, Needs, Pace, Promise
from searchlab.intrinsics.known import add_intrinsic, find_intrinsic, installed_modules, intrinsics
from searchlab.intrinsics.matching import Match, check_tensorized, match, match_in
from searchlab.intrinsics.site import CallSite

__all__ = [
    "EXACT", "CallSite", "Fragments", "Intrinsic", "Match", "Needs", "Pace", "Promise", "add_intrinsic",
    "check_tensorized", "find_intrinsic", "installed_modules", "intrinsics", "match", "match_in",
]  # fmt: skip
