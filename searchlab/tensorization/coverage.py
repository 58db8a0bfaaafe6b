"""Coverage: which intrinsics can compute the stages of a program, in how many ways, and why others cannot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from searchlab.errors import ScheduleError
from searchlab.intrinsics import Intrinsic
from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import Expr
from searchlab.ir.program import Program
from searchlab.tensorization.iterator_mappings import (
    IteratorMapping,
    Mappings,
    NoMapping,
    axis_name,
    fused_extents,
    mappings,
)
from searchlab.tensorization.plain_descriptions import form, plain_description
from searchlab.tensorization.scalar_bodies import description_block, description_operands, reduction_block

FEW = 3  # mappings that are made; all are counted


@dataclass(frozen=True)
class IntrinsicFit:
    """An intrinsic and a stage: its description in plain layout, what that computes, and the mappings to it."""

    block: str
    intrinsic: Intrinsic
    description: Program
    form: str
    found: Mappings | NoMapping

    @property
    def count(self) -> int:
        """In how many ways the iterators of the stage can be mapped."""
        return self.found.count if isinstance(self.found, Mappings) else 0

    @property
    def first(self) -> tuple[IteratorMapping, ...]:
        """The first mappings, most natural first; none if the intrinsic does not match."""
        return self.found.first if isinstance(self.found, Mappings) else ()

    @property
    def reason(self) -> str:
        """Why the intrinsic cannot compute the stage; empty if it can."""
        return self.found.reason if isinstance(self.found, NoMapping) else ""

    @property
    def near(self) -> bool:
        """Whether the intrinsic adds up the same terms as the stage, for other iterators if it does not match."""
        return isinstance(self.found, Mappings) or self.found.same_body

    @property
    def family(self) -> str:
        """The name without the extents at its end: those of a family differ in these only."""
        return self.intrinsic.name.rpartition("_")[0] or self.intrinsic.name

    @property
    def axes(self) -> tuple[str, ...]:
        """The loops of the description."""
        return tuple(axis_name(it.var.name) for it in description_block(self.description).iters)

    @property
    def operands(self) -> tuple[str, ...]:
        """The operands of the description, the output first."""
        return tuple(ld.buffer for ld in description_operands(reduction_block(self.description)))

    @property
    def types(self) -> str:
        """The element types of the operands: uint8 x int8 -> int32."""
        output, *inputs = (self.description.buffers[name].dtype for name in self.operands)
        return f"{' x '.join(inputs)} -> {output}"


@dataclass(frozen=True)
class RoundedAxis:
    """A loop of a description, the iterations that a mapping gives it, and these rounded up to whole calls."""

    axis: str
    iterations: Expr
    rounded: Expr


def intrinsic_fits(
    program: Program, block: str, candidates: Iterable[Intrinsic], limit: int = FEW
) -> tuple[IntrinsicFit, ...]:
    """How each intrinsic could compute a stage, in the order given."""
    fits = []
    for x in candidates:
        try:
            description = plain_description(x.description)
            found: Mappings | NoMapping = mappings(program, block, description, limit)
            text = form(description)
        except ScheduleError as e:
            description, found, text = x.description, NoMapping(block, x.name, str(e)), form(x.description)
        fits.append(IntrinsicFit(block, x, description, text, found))
    return tuple(fits)


def rounded_axes(program: Program, fit: IntrinsicFit, mapping: IteratorMapping) -> tuple[RoundedAxis, ...]:
    """What a mapping gives to the loops of a description, and how far operands are padded for it."""
    made = []
    for it, whole in zip(description_block(fit.description).iters, fused_extents(program, mapping), strict=True):
        made.append(RoundedAxis(axis_name(it.var.name), whole, ceildiv(whole, it.extent) * it.extent))
    return tuple(made)
