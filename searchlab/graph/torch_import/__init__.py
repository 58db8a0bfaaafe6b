"""Import of torch modules: `from_torch` exports a module and converts its ATen operators to calls of a graph.

`torch_sizes` brings symbols, expressions and ranges of sizes along, `exporting` runs torch.export and says what is not
covered, `conversion` has the table of converters, which the modules `aten_*` fill group by group. torch itself is
imported when a module is.
"""

from searchlab.graph.torch_import import (
    aten_indexing,
    aten_layers,
    aten_pointwise,
    aten_reductions,
    aten_shapes,
    aten_windows,
)
from searchlab.graph.torch_import.conversion import CONVERTERS
from searchlab.graph.torch_import.importing import from_torch

__all__ = [
    "CONVERTERS", "aten_indexing", "aten_layers", "aten_pointwise", "aten_reductions", "aten_shapes", "aten_windows",
    "from_torch",
]  # fmt: skip
