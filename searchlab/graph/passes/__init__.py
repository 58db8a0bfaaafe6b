"""Passes of graphs: pure functions from a module to a module, one after the other on the way to compiled code."""

from searchlab.graph.passes.operator_fusion import fuse_operators
from searchlab.graph.passes.pattern_kinds import PatternKind, pattern_kind
from searchlab.graph.passes.program_fusion import fuse_programs, fused_program

__all__ = ["PatternKind", "fuse_operators", "fuse_programs", "fused_program", "pattern_kind"]
