"""The operators that come with searchlab, a module for each group; importing the package registers all of them."""

from searchlab.graph.ops import (
    attention_op,
    binary_ops,
    creation_ops,
    index_ops,
    joining_ops,
    norm_ops,
    packed_ops,
    product_ops,
    reduction_ops,
    shape_ops,
    unary_ops,
    window_ops,
    winograd_ops,
)

__all__ = [
    "attention_op", "binary_ops", "creation_ops", "index_ops", "joining_ops", "norm_ops", "packed_ops",
    "product_ops", "reduction_ops", "shape_ops", "unary_ops", "window_ops", "winograd_ops",
]  # fmt: skip
