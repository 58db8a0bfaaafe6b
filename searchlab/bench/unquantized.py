"""Quantised operators as libraries compute them: exact numbers instead of bytes with zero points, and the true bias."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from searchlab.bench.operands import Array, LibraryOperands
from searchlab.dtype import DTYPES
from searchlab.workloads import lazy, workload
from searchlab.workloads.quantized import offset_of

# The operator on plain numbers that does the same, and the axes of the weights that it sums over.
_PLAIN = {
    "qmatmul": ("matmul", (0,)),
    "qdense": ("matmul", (0,)),
    "qconv2d": ("conv2d", (1, 2, 3)),
    "qdepthwise_conv2d": ("depthwise_conv2d", (1, 2, 3)),
}
QUANTIZED = tuple(_PLAIN)


@dataclass(frozen=True)
class Unquantized:
    """The parts of a quantised operator on some arrays."""

    job: LibraryOperands

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the operator."""
        return self.job.params

    @property
    def names(self) -> tuple[str, str]:
        """The names of data and weights."""
        data, weights, *_ = self.job.workload.program.inputs
        return data, weights

    @property
    def is_image(self) -> bool:
        """Whether it is a convolution."""
        return "conv" in self.job.name

    @cached_property
    def bias(self) -> Array | None:
        """The bias of the exact sums; None if the operator adds nothing to its sums of products."""
        if "offset" not in self.job.arrays:
            return None
        share = offset_of(self.job.arrays[self.names[1]], _PLAIN[self.job.name][1], self.zero, self.weight_zero)
        found: Array = self.job.arrays["offset"] - share
        return found

    @property
    def zero(self) -> int:
        """The zero point of the data."""
        return int(self.params["zero"])

    @property
    def weight_zero(self) -> int:
        """The zero point of the weights."""
        return int(self.params["weight_zero"])

    @property
    def column(self) -> tuple[int, ...]:
        """The shape of an array with a number for every channel, beside the result."""
        return (-1, 1, 1) if self.is_image else (-1,)

    def in_floats(self) -> LibraryOperands:
        """The operator on plain numbers, in floats that hold its sums exactly; the data are left to the caller."""
        name, axes = _PLAIN[self.job.name]
        data, weights = (self.job.arrays[n] for n in self.names)
        low, high = DTYPES[str(self.params["dtype"])].limits
        most = max(high - self.zero, self.zero - low) * max(127 - self.weight_zero, self.weight_zero + 128)
        length = math.prod(weights.shape[a] for a in axes)
        kind = "float32" if most * length < 1 << 24 else "float64"
        known = {p.name for p in lazy(name).operator.parameters}
        plain = workload(name, **{k: v for k, v in self.params.items() if k in known} | {"dtype": kind})
        arrays = (np.empty(data.shape, kind), (weights.astype(np.int16) - self.weight_zero).astype(kind))
        return LibraryOperands(plain, dict(zip(plain.program.inputs, arrays, strict=True)))

    def result(self, sums: Array) -> Array:
        """Exact sums, in floats, as the operator returns them; `sums` is overwritten."""
        if self.bias is not None:
            sums += self.bias.reshape(self.column)
        if self.params["out"] == "int32":
            return sums.astype(np.int32)
        scaled = sums.astype(np.float32, copy=False)
        scaled *= self.job.arrays["scale"].reshape(self.column)
        np.rint(scaled, out=scaled)
        scaled += np.float32(self.params["out_zero"])
        np.clip(scaled, *DTYPES[str(self.params["out"])].limits, out=scaled)
        return scaled.astype(self.params["out"])
