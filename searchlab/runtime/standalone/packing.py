"""The program that packs an input ahead of time, so that packing is exported as code, like the kernel."""

from __future__ import annotations

from searchlab.ir.expr import TRUE, Load, Var, cast, const, select
from searchlab.ir.program import Layout, Program
from searchlab.ir.stmt import Block, Buffer, Iter, Loop, Stmt, Store

SOURCE = "source"


def packing(layout: Layout, packed: Buffer) -> Program:
    """A program that copies an input into the layout and the type chosen by the schedule, padded with zeros."""
    given = Buffer(SOURCE, layout.original.shape, layout.original.dtype)
    value = cast(Load(SOURCE, layout.source, given.dtype), packed.dtype)
    if layout.predicate != TRUE:
        value = select(layout.predicate, value, const(0, packed.dtype))
    iters = tuple(Iter(v, e) for v, e in zip(layout.iters, packed.shape, strict=True))
    loops = tuple(Var(f"at{n}") for n in range(len(iters)))
    nest: Stmt = Block("pack", iters, loops, Store(packed.name, layout.iters, value))
    for var, it in reversed(list(zip(loops, iters, strict=True))):
        nest = Loop(var, it.extent, nest)
    return Program(f"pack_{packed.name}", (SOURCE,), (packed.name,), {SOURCE: given, packed.name: packed}, nest)
