"""Passes of graphs: pure functions from a module to a module, one after the other on the way to compiled code."""

from searchlab.graph.passes.attention_finding import find_attention
from searchlab.graph.passes.batch_norm_folding import fold_batch_norms
from searchlab.graph.passes.cleaning import forward_items, remove_dead, share_equal_calls
from searchlab.graph.passes.constant_folding import fold_constants
from searchlab.graph.passes.layouts import left_plain, propagate_layouts
from searchlab.graph.passes.operator_fusion import fuse_operators
from searchlab.graph.passes.pass_listing import apply_passes, module_changes, print_changes
from searchlab.graph.passes.pattern_kinds import PatternKind, pattern_kind
from searchlab.graph.passes.post_fusion import fuse_after, schedule_then_fuse
from searchlab.graph.passes.program_fusion import fuse_programs, fused_program

__all__ = [
    "PatternKind", "apply_passes", "find_attention", "fold_batch_norms", "fold_constants", "forward_items",
    "fuse_after", "fuse_operators", "fuse_programs", "fused_program", "left_plain", "module_changes", "pattern_kind",
    "print_changes", "propagate_layouts", "remove_dead", "schedule_then_fuse", "share_equal_calls",
]  # fmt: skip
