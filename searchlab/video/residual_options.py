"""What can be chosen about residual inference when a graph is rewritten."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.errors import GraphError
from searchlab.registry import nearest

RULES = ("propagated", "previous", "truncated")
GRANULARITIES = ("element", "pixel")
KERNELS = ("whole", "skip")
ROW = "row"
FLOAT32, BFLOAT16, INT16, INT8 = "float32", "bfloat16", "int16", "int8"
PRODUCTS = (FLOAT32, BFLOAT16, INT16)


@dataclass(frozen=True)
class ResidualOptions:
    """How changes are found, and how layers are computed on them.

    `rule` says what a change is measured against: what was last passed on ("propagated"), the input of the frame
    before ("previous"), or sums before activations that were last passed on ("truncated").  `granularity` is the unit
    that is passed on or dropped.  `kernel` computes a layer on its whole map, in which dropped changes are zero, or
    skips output pixels that no change reaches; above `limit`, a share of output pixels, the latter computes all.
    Layers of at most `smallest` output pixels of an image (fully connected ones: inputs) are computed as a whole.
    Where changes are followed, all pixels of a `block`, of so many rows and columns or "row", are passed on together,
    and `products` of changes with weights may be those of bfloat16 or of steps of int16, added in float32.
    """

    rule: str = "propagated"
    granularity: str = "element"
    kernel: str = "whole"
    limit: float = 0.5
    smallest: int = 128
    block: int | str = 1
    products: str = FLOAT32

    @property
    def follows(self) -> bool:
        """Whether changes are followed by lists of pixels, as far as a graph allows."""
        return self.kernel == "skip" and self.rule == "propagated"

    def __post_init__(self) -> None:
        choices = (("rule", RULES), ("granularity", GRANULARITIES), ("kernel", KERNELS), ("products", PRODUCTS))
        for name, known in choices:
            if getattr(self, name) not in known:
                raise GraphError(f"{name} = '{getattr(self, name)}'{nearest(getattr(self, name), known)}")
        if not 0 <= self.limit <= 1:
            raise GraphError(f"limit = {self.limit}; a share from 0 to 1 is accepted")
        if self.smallest < 0:
            raise GraphError(f"smallest = {self.smallest}; at least 0 is accepted")
        if self.block != ROW and (not isinstance(self.block, int) or self.block < 1):
            raise GraphError(f"block = {self.block!r}; a number of pixels of at least 1, or '{ROW}', is accepted")
        for name, plain in (("block", 1), ("products", FLOAT32)):
            if getattr(self, name) != plain and not self.follows:
                raise GraphError(f"{name} = {getattr(self, name)!r} takes kernel = 'skip' and rule = 'propagated'")
