"""The operators that come with searchlab, a module for each group; importing the package registers all of them."""

from searchlab.graph.ops import binary_ops, joining_ops, product_ops, reduction_ops, shape_ops, unary_ops

__all__ = ["binary_ops", "joining_ops", "product_ops", "reduction_ops", "shape_ops", "unary_ops"]
