"""Intrinsics: hardware instructions, each with a description in plain loops and an implementation in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from searchlab.errors import IRError
from searchlab.intrinsics.plain import PlainNest, plain_nest, strides
from searchlab.intrinsics.site import CallSite
from searchlab.ir.expr import Expr, Load, Var, value_of
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.program import Program
from searchlab.ir.sums import Sum, as_sum
from searchlab.ir.walk import loads
from searchlab.targets import CpuTarget, CudaTarget, Target


@dataclass(frozen=True)
class Needs:
    """What a target must have: an architecture, or a later GPU, and features by LLVM's names ("or": alternatives).

    `registers` is how many vector registers one call fills, accumulators included; `alignment` is in bytes, by operand.
    """

    arch: str
    features: str = ""
    registers: int = 0
    alignment: Mapping[str, int] = field(default_factory=dict)

    def missing(self, target: Target) -> tuple[str, ...]:
        """What a target lacks; empty if it can run the intrinsic."""
        if self.arch.startswith("sm_") and isinstance(target, CudaTarget) and target.kind == CudaTarget.kind:
            return () if int(target.arch[3:]) >= int(self.arch[3:]) else (f"the instructions of {self.arch}",)
        if not isinstance(target, CpuTarget) or target.arch != self.arch:
            return (f"the instructions of {self.arch}",)
        has = target.enabled_features()
        lacks = [tuple(f for f in words.split() if f not in has) for words in self.features.split(" or ")]
        return min(lacks, key=len)


@dataclass(frozen=True)
class Promise:
    """How results compare with the description: the same bits, or within `tolerance` of the sum of absolute terms.

    `ranges` are values of operands outside which the promise does not hold; `words` say it to people.
    """

    words: str = "exact"
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    tolerance: float = 0.0


EXACT = Promise()


@dataclass(frozen=True)
class Fragments:
    """Which elements the lanes of a warp hold, by operand and loop: (divisor, modulus, factor) of the lane's number.

    A lane's elements begin where the loop is at lane // divisor % modulus * factor.
    """

    lanes: Mapping[str, Mapping[str, tuple[int, int, int]]]


@dataclass(frozen=True)
class Pace:
    """How fast calls run, for the estimate of a program's time, on a core that starts two vector instructions a cycle.

    `cycles` from one call to the next where none waits, `latency` until another may add to the same results, and
    `held`, how many calls' results there is room for; 0 if they are in vector registers.
    """

    cycles: float
    latency: float = 4.0
    held: int = 0


@dataclass(frozen=True, eq=False)
class Intrinsic:
    """A hardware instruction, or a short sequence of them, that computes what `description` says.

    The description is a program with one reduction in loops of constant extents.  Its buffers are dense; the strides
    named in `free` ("A.i": from one iteration of loop i to the next in buffer A) may be any others in a program.  The
    implementation adds to the output; its init is placed by lowering, as that of every reduction.  Without a `pace`, a
    call is taken for as many instructions as its products fill vectors.  `fragments` are those of an instruction that
    the threads of a warp run together: addresses are then those of each lane's own elements.
    """

    name: str
    description: Program
    emit: Callable[[CallSite], None]
    needs: Needs
    promise: Promise = EXACT
    free: tuple[str, ...] = ()
    pace: Pace | None = None
    fragments: Fragments | None = None

    def __post_init__(self) -> None:
        if self.description.symbols or any(value_of(lp.extent) is None for lp in self.nest.loops):
            raise IRError(f"intrinsic '{self.name}': the extents of its description must be numbers")
        known = {f"{operand}.{v.name}" for operand in self.accesses for v in self.nest.variables}
        for name in (n for n in self.free if n not in known):
            raise IRError(f"intrinsic '{self.name}': there is no stride '{name}'; known: {', '.join(sorted(known))}")
        for name in (n for n in (*self.promise.ranges, *self.needs.alignment) if n not in self.accesses):
            raise IRError(f"intrinsic '{self.name}': there is no operand '{name}'; known: {', '.join(self.accesses)}")

    @cached_property
    def nest(self) -> PlainNest:
        """The loops and the store of the description."""
        try:
            return plain_nest(self.description.body, self.description.facts)
        except IRError as e:
            raise IRError(f"intrinsic '{self.name}': its description is not one nest of loops: {e}") from None

    @cached_property
    def sum(self) -> Sum:
        """The operation and the term that the description adds."""
        found = as_sum(self.nest.store)
        if found is None:
            raise IRError(f"intrinsic '{self.name}': its description does not add to its output")
        return found

    @cached_property
    def terms(self) -> int:
        """How many terms a call adds, over all elements of its output."""
        return prod(value_of(lp.extent) or 1 for lp in self.nest.loops)

    @property
    def output(self) -> str:
        """The operand that is added to."""
        return self.nest.store.buffer

    @cached_property
    def accesses(self) -> dict[str, dict[Var, Expr]]:
        """The strides of each operand along each loop, the output first."""
        store, found = self.nest.store, {}
        own = Load(store.buffer, store.indices, store.value.dtype)
        for access in (own, *loads(self.sum.term)):
            if access.buffer in found:
                raise IRError(f"intrinsic '{self.name}': its description accesses '{access.buffer}' twice")
            steps = strides(access, self.description.buffers, self.nest.variables, self.description.facts)
            if steps is None:
                raise IRError(f"intrinsic '{self.name}': '{access}' does not move evenly with its loops")
            found[access.buffer] = steps
        return found

    @cached_property
    def kinds(self) -> tuple[LoopKind, ...]:
        """How the loops run where the body runs as loops: neighbours in the output in lanes, the others unrolled."""
        steps = self.accesses[self.output]
        lanes = [v for v in self.nest.variables if value_of(steps[v]) == 1]
        return tuple(LoopKind.VECTORIZED if v in lanes[-1:] else LoopKind.UNROLLED for v in self.nest.variables)

    def is_free(self, operand: str, loop: Var) -> bool:
        """Whether the stride of an operand along a loop may be any."""
        return f"{operand}.{loop.name}" in self.free
