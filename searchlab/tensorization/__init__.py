"""Which parts of a program a tensor instruction can compute: matching, mappings of iterators, and their application."""

from searchlab.tensorization.applying import apply_mapping
from searchlab.tensorization.iterator_mappings import IteratorMapping, Mappings, NoMapping, mappings

__all__ = ["IteratorMapping", "Mappings", "NoMapping", "apply_mapping", "mappings"]
