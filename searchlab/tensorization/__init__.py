"""Which parts of a program a tensor instruction can compute: matching, mappings of iterators, and their application."""

from searchlab.tensorization.applying import apply_mapping
from searchlab.tensorization.coverage import IntrinsicFit, RoundedAxis, intrinsic_fits, rounded_axes
from searchlab.tensorization.iterator_mappings import IteratorMapping, Mappings, NoMapping, axis_name, mappings
from searchlab.tensorization.plain_descriptions import plain_description

__all__ = [
    "IntrinsicFit", "IteratorMapping", "Mappings", "NoMapping", "RoundedAxis", "apply_mapping", "axis_name",
    "intrinsic_fits", "mappings", "plain_description", "rounded_axes",
]  # fmt: skip
