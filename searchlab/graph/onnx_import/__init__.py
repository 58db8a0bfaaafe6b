"""Import of ONNX models: `from_onnx` converts the nodes of a model to calls of a graph.

`onnx_model` reads models and what nodes say, `onnx_sizes` turns symbolic dimensions into sizes, `onnx_known` has what
is known before the graph runs (weights and shapes) and `onnx_size_arithmetic` what is computed from it;
`onnx_conversion` has the table of converters, which the modules `onnx_pointwise`, `onnx_shapes`, `onnx_layers` and
`onnx_windows` fill. The package onnx itself is imported when a model is.
"""

from searchlab.graph.onnx_import import onnx_layers, onnx_pointwise, onnx_shapes, onnx_size_arithmetic, onnx_windows
from searchlab.graph.onnx_import.onnx_conversion import ONNX_CONVERTERS
from searchlab.graph.onnx_import.onnx_importing import from_onnx

__all__ = [
    "ONNX_CONVERTERS", "from_onnx", "onnx_layers", "onnx_pointwise", "onnx_shapes", "onnx_size_arithmetic",
    "onnx_windows",
]  # fmt: skip
