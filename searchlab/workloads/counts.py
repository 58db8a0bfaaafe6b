"""Operation counts, memory traffic and reduction lengths, derived from the program itself."""

from __future__ import annotations

import itertools
import math

from searchlab.dtype import DTYPES, INDEX
from searchlab.errors import WorkloadError
from searchlab.ir.expr import TRUE, Binary, Call, Cast, Expr, Select, index, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.ir.sums import as_sum, identity
from searchlab.ir.walk import substitute, variables


def flops(program: Program) -> int:
    """Arithmetic operations on values: a multiply-add counts 2, a function or a maximum 1, moving data 0.

    A sum counts its terms: taps that a kernel does not have, of which a condition on the indices takes care, are none.
    """
    return sum(_terms(program, block) * len(operations(block.store.value)) for block in program.blocks.values())


def bytes_moved(program: Program) -> int:
    """The size of all inputs and outputs: the compulsory memory traffic."""
    names = (*program.inputs, *program.outputs)
    return sum(elements(program, n) * DTYPES[program.buffers[n].dtype].bytes for n in names)


def elements(program: Program, buffer: str) -> int:
    """The number of elements of a buffer."""
    return math.prod(shape_of(program, buffer))


def shape_of(program: Program, buffer: str) -> tuple[int, ...]:
    """The shape of a buffer of a program without symbols."""
    return tuple(_known(program, e) for e in program.buffers[buffer].shape)


def reduction_length(program: Program) -> int:
    """The number of terms of the program's longest reduction."""
    lengths = [
        math.prod(_known(program, it.extent) for it in block.iters if it.kind == "reduce")
        for block in program.blocks.values()
    ]
    return max(lengths, default=1)


def operations(e: Expr) -> frozenset[Expr]:
    """The distinct arithmetic nodes of a value: common subexpressions count once, index arithmetic not at all."""
    if isinstance(e, Binary) and e.dtype != INDEX:
        return operations(e.a) | operations(e.b) | {e}
    if isinstance(e, Call):
        return frozenset[Expr]({e}).union(*(operations(a) for a in e.args))
    if isinstance(e, Select):
        return max(operations(e.a), operations(e.b), key=len)  # only one side is evaluated
    if isinstance(e, Cast):
        return operations(e.a)
    return frozenset()


def _terms(program: Program, block: Block) -> int:
    """The iterations of a stage; for a sum only those in which it has a term."""
    domain = math.prod(_known(program, it.extent) for it in block.iters)
    found = as_sum(block.store)
    if found is None or not isinstance(found.term, Select) or found.term.b != identity(found.op, found.term.dtype):
        return domain
    asked = [it for it in block.iters if it.var in variables(found.term.condition)]
    ranges = [range(_known(program, it.extent)) for it in asked]
    hits = sum(
        substitute(found.term.condition, {it.var: index(n) for it, n in zip(asked, at, strict=True)}) == TRUE
        for at in itertools.product(*ranges)
    )
    return domain // math.prod(map(len, ranges)) * hits


def _known(program: Program, e: Expr) -> int:
    found = value_of(e)
    if found is None:
        names = ", ".join(f"{s}=..." for s in program.sizes)
        raise WorkloadError(f"{program.name}: the size '{e}' is known only at run time; fix it with at({names})")
    return found
