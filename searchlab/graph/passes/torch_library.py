"""torch as a library of graphs, where it is installed: layers, products and attention on its kernels for CPUs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError
from searchlab.graph.library import GRAPH_LIBRARIES, GraphLibrary, library
from searchlab.graph.passes.library_dispatch import LibraryPattern
from searchlab.graph.passes.numpy_library import LAYERS, attention_pattern, layer_patterns, product_pattern

Array = npt.NDArray[Any]


@GRAPH_LIBRARIES.add
class TorchLibrary(GraphLibrary):
    """Layers, products and attention of float32 and float64 by torch; `rows` is the fewest rows or queries."""

    name: ClassVar[str] = "torch"

    def __init__(self, rows: int = 16) -> None:
        import torch  # not installed with searchlab

        if rows < 1:
            raise GraphError(f"torch: rows = {rows}; at least 1 is accepted")
        self.rows, self.version = rows, torch.__version__

    def patterns(self) -> list[LibraryPattern]:
        """Layers, products and attention."""
        layers = [p for layer in LAYERS for p in layer_patterns("torch.layer", layer, self.rows)]
        return [*layers, product_pattern("torch.matmul", self.rows), attention_pattern("torch.attention", self.rows)]


def _tensor(array: Array) -> Any:
    """An array as a tensor on the same memory; torch has no tensors that cannot be written and would warn of them."""
    import torch

    if array.flags.writeable:
        return torch.from_numpy(array)
    interface = {**array.__array_interface__, "data": (array.ctypes.data, False)}
    return torch.from_numpy(np.asarray(SimpleNamespace(__array_interface__=interface, base=array)))


@library("torch.layer")
def layer(x: Array, w: Array, *rest: Array, bias: bool = False, then: str = "", transposed: bool = True) -> None:
    """out = x w, with w transposed for `linear`, and a bias."""
    import torch

    *more, out = rest
    left, right = _tensor(x.reshape(-1, x.shape[-1])), _tensor(w).t() if transposed else _tensor(w)
    flat = _tensor(out.reshape(-1, out.shape[-1]))
    if bias:
        torch.addmm(_tensor(more[0]), left, right, out=flat)
    else:
        torch.mm(left, right, out=flat)


@library("torch.matmul")
def matmul(x: Array, y: Array, out: Array) -> None:
    """Products over the last two axes."""
    import torch

    torch.matmul(_tensor(x), _tensor(y), out=_tensor(out))


@library("torch.attention")
def attention(
    q: Array, k: Array, v: Array, *rest: Array, scale: float | None = None, causal: bool = False, grouped: bool = False
) -> None:
    """Attention; the result is copied, since torch's function has no argument for it."""
    import torch

    *mask, out = rest
    given: dict[str, Any] = dict(attn_mask=_tensor(mask[0]) if mask else None, is_causal=causal, scale=scale)
    if grouped:
        given["enable_gqa"] = True  # an argument of newer versions
    _tensor(out).copy_(torch.nn.functional.scaled_dot_product_attention(*map(_tensor, (q, k, v)), **given))
