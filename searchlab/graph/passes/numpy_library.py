"""numpy as a library of graphs: products of matrices by its BLAS, which is hard to beat when there are many rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError
from searchlab.graph.library import GRAPH_LIBRARIES, GraphLibrary, library
from searchlab.graph.passes.library_dispatch import LibraryPattern, PatternMatch

Array = npt.NDArray[Any]
BLAS_TYPES = ("float32", "float64")
LAYERS = ("linear", "dense")
FOLLOWING = ("relu", "add")  # what is computed in the result of a layer, while it may be in the cache


def layer_patterns(function: str, layer: str, rows: int, following: Sequence[str] = ()) -> list[LibraryPattern]:
    """A fully connected layer with at least so many rows, alone and followed by other operators."""
    accepts = partial(_accepts_layer, rows)
    chains = [(layer,), *((layer, then) for then in following)]
    return [LibraryPattern(chain, function, accepts, _layer_attributes) for chain in chains]


def _accepts_layer(rows: int, match: PatternMatch) -> bool:
    if match.result.dtype not in BLAS_TYPES or not match.at_least(match.rows, rows):
        return False
    if match.calls[-1].callee != "add":
        return True
    other = match.shape(len(match.operands) - 1)
    return isinstance(match.operands[-1], str) and other == match.result.shape


def _layer_attributes(match: PatternMatch) -> dict[str, Any]:
    then = match.calls[-1].callee if len(match.calls) > 1 else ""
    return {"bias": len(match.calls[0].args) == 3, "then": then, "transposed": match.calls[0].callee == "linear"}


def product_pattern(function: str, rows: int) -> LibraryPattern:
    """Products of matrices with at least so many rows each."""

    def accepts(match: PatternMatch) -> bool:
        shape = match.result.shape or ()
        return match.result.dtype in BLAS_TYPES and match.at_least(shape[-2], rows)

    return LibraryPattern(("matmul",), function, accepts)


def attention_pattern(function: str, rows: int) -> LibraryPattern:
    """Attention with at least so many queries."""

    def accepts(match: PatternMatch) -> bool:
        shape = match.result.shape or ()
        return match.result.dtype in BLAS_TYPES and match.at_least(shape[-2], rows)

    def attributes(match: PatternMatch) -> dict[str, Any]:
        return dict(match.calls[0].operator.attributes())

    return LibraryPattern(("attention",), function, accepts, attributes)


@GRAPH_LIBRARIES.add
class NumpyLibrary(GraphLibrary):
    """Layers and products of float32 and float64 by numpy's BLAS; `rows` is the fewest rows for which it is called."""

    name: ClassVar[str] = "numpy"

    def __init__(self, rows: int = 16, attention: bool = False) -> None:
        if rows < 1:
            raise GraphError(f"numpy: rows = {rows}; at least 1 is accepted")
        self.rows, self.attention = rows, attention

    def patterns(self) -> list[LibraryPattern]:
        """Layers, products and, if asked for, attention, which numpy computes in several passes."""
        layers = [p for layer in LAYERS for p in layer_patterns("numpy.layer", layer, self.rows, FOLLOWING)]
        attention = [attention_pattern("numpy.attention", self.rows)] if self.attention else []
        return [*layers, product_pattern("numpy.matmul", self.rows), *attention]


@library("numpy.layer")
def layer(x: Array, w: Array, *rest: Array, bias: bool = False, then: str = "", transposed: bool = True) -> None:
    """out = x w, with w transposed for `linear`; then a bias, and what follows the layer, in place."""
    *more, out = rest
    flat = out.reshape(-1, out.shape[-1])
    np.matmul(x.reshape(-1, x.shape[-1]), w.T if transposed else w, out=flat)
    if bias:
        np.add(flat, more.pop(0), out=flat)
    if then == "relu":
        np.maximum(out, 0, out=out)
    elif then == "add":
        np.add(out, more.pop(0), out=out)


@library("numpy.matmul")
def matmul(x: Array, y: Array, out: Array) -> None:
    """Products over the last two axes."""
    np.matmul(x, y, out=out)


@library("numpy.attention")
def attention(
    q: Array, k: Array, v: Array, *rest: Array, scale: float | None = None, causal: bool = False, grouped: bool = False
) -> None:
    """softmax(q k^T * scale + mask) v; the scores are held in memory."""
    *mask, out = rest
    if grouped:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    scores = np.matmul(q, np.swapaxes(k, -1, -2))
    scores *= np.asarray(1 / math.sqrt(q.shape[-1]) if scale is None else scale, scores.dtype)
    if mask and mask[0].dtype == bool:
        scores[~np.broadcast_to(mask[0], scores.shape)] = -np.inf
    elif mask:
        scores += mask[0]
    if causal:
        scores[..., np.tri(*scores.shape[-2:]) == 0] = -np.inf
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    np.matmul(scores, v, out=out)
