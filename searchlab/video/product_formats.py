"""In which types the changes of a layer are multiplied by its weights, and by which instructions.

A change of bytes needs nine bits.  Where four bytes are multiplied at once (VNNI), it is passed on in parts that fit:
a first one of at most 127, and a second one of what is left, which only few pixels have.  The instruction takes
unsigned bytes, so 128 is added to every part, and 128 times the sum of the weights is taken off again.  Elsewhere
changes and weights are widened to 16 bits.  Either way sums are of int32, and exact.

Floats may be multiplied as whole numbers as well: the changes of a pixel are multiples of a step, and so are the
weights of an output.  Both have 11 bits, where bfloat16 has 8, and take the same instructions as bytes that are
widened, which all x86 machines have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.dtype import DTYPES
from searchlab.intrinsics import bfloat_dots, byte_dots, intrinsics, word_dots
from searchlab.ir.bfloat16 import stored
from searchlab.ir.expr import Expr, cast, maximum, minimum
from searchlab.targets import CpuTarget
from searchlab.video.residual_options import BFLOAT16, FLOAT32, INT16

Array = npt.NDArray[Any]
FLOAT, SUM = "float32", "int32"
BYTE_MOST = 127  # the largest part of a change that a byte holds
# The largest change of a pixel, and the largest weight of an output, in steps: sums of 512 products have 32 bits.
STEPS = 2047


@dataclass(frozen=True)
class ProductFormat:
    """The types of changes, weights and sums, and how many neighbouring inputs an instruction multiplies at once.

    `lift` is added to changes, which are then not negative; `families` are the instructions, the best first.  With
    `steps` changes of a pixel and weights of an output are multiples of steps of their own, and products are of int32.
    """

    change: str
    weight: str
    sum: str
    depth: int = 1
    lift: int = 0
    families: tuple[str, ...] = ()
    steps: bool = False

    @property
    def product(self) -> str:
        """The type in which products are added up before they are added to the sums."""
        return SUM if self.steps else self.sum

    @property
    def rounds(self) -> bool:
        """Whether what is passed on of a change may be less than all of it."""
        return self.lift > 0 or self.change != self.sum == FLOAT

    def room(self, channels: int) -> int:
        """The channels of changes and weights, with those that fill up a last instruction."""
        return -(-channels // self.depth) * self.depth

    def speed(self, width: int, target: CpuTarget) -> float:
        """How many products with changes take as long as one of the plain graph, all else of both included.

        Measured with ResNet-18, at any share of changes, with AVX-512 and with AVX2; bytes with AVX-512 only.
        """
        if self.sum == SUM:
            return 0.5
        if self.depth == 1:
            return 1.0
        return 0.65 if self.dot(width, target) is None else 1.6

    def bytes(self, weights: int) -> int:
        """The memory of so many weights."""
        return int(np.dtype(DTYPES[self.weight].storage).itemsize) * weights

    def stored(self, change: Expr) -> Expr:
        """A difference, of the type of sums, as it is passed on."""
        if self.lift:
            change = minimum(maximum(change, -BYTE_MOST), BYTE_MOST) + self.lift
        return cast(change, self.change)

    def loaded(self, change: Expr) -> Expr:
        """What is passed on, in the type of sums."""
        found = cast(change, self.sum)
        return found - self.lift if self.lift else found

    def weights(self, array: Array) -> Array:
        """Weights as they are multiplied."""
        return np.asarray(stored(array, self.weight))

    def dot(self, width: int, target: CpuTarget) -> tuple[str, int] | None:
        """The instruction of the first family that has one, with the most lanes that divide a width; and these."""
        for family in self.families:
            lanes = {}
            for name, intrinsic in intrinsics().items():
                columns, _, depth = name.removeprefix(f"{family}_").partition("x")
                if name.startswith(f"{family}_") and depth == str(self.depth) and not intrinsic.needs.missing(target):
                    lanes[int(columns)] = name
            most = max((n for n in lanes if width % n == 0), default=0)
            if most:
                return lanes[most], most
        return None


FLOATS = ProductFormat(FLOAT, FLOAT, FLOAT)
HALVES = ProductFormat("bfloat16", "bfloat16", FLOAT, bfloat_dots.DEPTH, 0, ("avx512bf16",))
BYTES = ProductFormat("uint8", "int8", SUM, byte_dots.DEPTH, 128, ("vnni_u8s8",))
WORDS = ProductFormat("int16", "int16", SUM, word_dots.DEPTH, 0, ("avx512bw_s16s16", "avx2_s16s16"))
STEPPED = replace(WORDS, sum=FLOAT, steps=True)
_OF_FLOATS = {FLOAT32: FLOATS, BFLOAT16: HALVES, INT16: STEPPED}


def in_steps(weight: Array) -> tuple[Array, Array]:
    """Weights (outputs, inputs, taps) as whole numbers, and the step of each output."""
    most = min(STEPS, np.iinfo(SUM).max // (STEPS * weight.shape[1]))
    step = np.abs(weight).max(axis=(1, 2)) / most
    whole = np.rint(weight / np.where(step > 0, step, 1)[:, None, None])
    return whole.astype(np.int16), step.astype(np.float32)


def product_format(
    dtype: str, channels: int, by_channel: bool, widths: Iterable[int], products: str, target: CpuTarget
) -> ProductFormat:
    """The format for changes of a value of some type, which layers of `widths` of output channels read.

    `by_channel`: some layer multiplies every channel by itself; `products` is how floats are multiplied.
    """
    if DTYPES[dtype].sort == "float":
        found = _OF_FLOATS[products]
        return FLOATS if by_channel or channels % found.depth else found
    if not by_channel and all(BYTES.dot(width, target) for width in widths):
        return BYTES
    return WORDS
