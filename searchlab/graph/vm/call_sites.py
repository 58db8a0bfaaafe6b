"""What calls of a function need at run time beside their operands: kernels, and functions outside the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from searchlab.ir.expr import ZERO, Expr, index
from searchlab.ir.program import Program
from searchlab.workloads.counts import operations


@dataclass(frozen=True)
class KernelSite:
    """A call of a kernel: its symbol, its sizes in order, its scratch memory in terms of these.

    `constants` has an entry for every input: the name of a constant of the model, or None for an operand of the call.
    """

    symbol: str
    sizes: tuple[str, ...]
    shared: Expr
    private: Expr
    constants: tuple[str | None, ...]


@dataclass(frozen=True)
class CallFacts:
    """A call of a function for people: its result, what is called, and its arithmetic in the symbols of the function.

    Terms that padding makes zero count as well, as is usual.  Of several `kernels` the first ran whose register among
    `chosen_by` is not zero, else the last.
    """

    name: str
    callee: str
    flops: Expr | None = None
    kernels: tuple[str, ...] = ()
    chosen_by: tuple[int, ...] = ()


@dataclass(frozen=True)
class Word64:
    """A number that is known when a call is made: one of its words."""


@dataclass(frozen=True)
class ArraySpec:
    """An array of a call: an address and the extents, as words."""

    dtype: str
    rank: int


@dataclass(frozen=True)
class ShapeSpec:
    """A shape of a call: its extents as words."""

    rank: int


@dataclass(frozen=True)
class NumberSpec:
    """A number of a call, as an array of rank 0."""

    dtype: str
    value: Any  # a number, or a Word64


Spec = ArraySpec | ShapeSpec | NumberSpec


@dataclass(frozen=True)
class LibrarySite:
    """A call of a library function: its name, and what its words stand for, inputs first.

    Attributes are plain values with a `Word64` in place of each index expression; their words come last.
    """

    where: str
    function: str
    inputs: tuple[Spec, ...]
    outputs: tuple[ArraySpec, ...]
    attributes: tuple[tuple[str, Any], ...]


def words_in(value: Any) -> Iterator[Expr]:
    """The index expressions of an attribute that are passed as words."""
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from words_in(item)


def without_expressions(value: Any) -> Any:
    """An attribute with `Word64` in place of index expressions."""
    if isinstance(value, Expr):
        return Word64()
    return tuple(map(without_expressions, value)) if isinstance(value, tuple) else value


def arithmetic_of(program: Program) -> Expr:
    """The operations on values of a program, in its sizes."""
    total: Expr = ZERO
    for block in program.blocks.values():
        count: Expr = index(len(operations(block.store.value)))
        for it in block.iters:
            count = count * it.extent
        total = total + count
    return total
