"""Analysis: features of programs with symbols, computed for whole populations of their values at once."""

from searchlab.analysis.columns import Ragged, Schema, Tree
from searchlab.analysis.extractor import Extractor, extractor, schema
from searchlab.analysis.tree_view import NODE_KINDS

__all__ = ["NODE_KINDS", "Extractor", "Ragged", "Schema", "Tree", "extractor", "schema"]
