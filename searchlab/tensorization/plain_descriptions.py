"""Descriptions without the layouts of their operands, so that iterators alone decide what can be mapped to them.

An instruction for bytes reads B[g, j, k], four bytes of a column side by side.  Which loops of a program it can run is
a matter of iterators: C[i, j] += A[i, k] * B[j, k].  The layout is made afterwards, when operands are packed.
"""

from __future__ import annotations

from dataclasses import replace

from searchlab.errors import ScheduleError
from searchlab.ir.apart import told_apart
from searchlab.ir.expr import TRUE, Expr, Load, Var
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import map_accesses
from searchlab.ir.stmt import Block, Buffer, Iter, Loop, Stmt
from searchlab.ir.sums import as_sum
from searchlab.ir.walk import Substitution, variables
from searchlab.tensorization.scalar_bodies import description_operands, reduction_block


def plain_description(description: Program) -> Program:
    """The description with operands indexed by iterators alone; those that occur in the same operands become one.

    C[i, j] += A[i, g*4 + k] * B[g, j, k]   =>   C[i, j] += A[i, k] * B[j, k]        k: all groups
    """
    b = reduction_block(description)
    operands = {ld.buffer: ld for ld in description_operands(b)}
    fused = _fused(b, tuple(operands.values()))
    buffers, places = dict(description.buffers), {}
    for name, ld in operands.items():
        _check_apart(description, b, ld)
        own = _in_order([fused[it.var] for i in ld.indices for it in b.iters if it.var in variables(i)])
        buffers[name] = Buffer(name, tuple(x.extent for x in own), ld.dtype, description.buffers[name].scope)
        places[name] = tuple(x.var for x in own)
    body: Stmt = map_accesses(_with_iters(b, fused), lambda place: (place[0], places[place[0]]))
    for it in reversed(dict.fromkeys(fused.values())):
        body = Loop(Var(it.var.name.removeprefix("v")), it.extent, body)
    return replace(description, buffers=buffers, body=body)


def form(description: Program) -> str:
    """What a description computes, in the names of its loops: C[i, j] += A[i, k] * B[k, j]."""
    b = reduction_block(description)
    put = Substitution(dict(zip((it.var for it in b.iters), b.bindings, strict=True)))
    found = as_sum(b.store)
    assert found is not None
    where = ", ".join(str(put(i)) for i in b.store.indices)
    signs = {"add": "+=", "mul": "*="}
    return f"{b.store.buffer}[{where}] {signs.get(found.op, f'{found.op}=')} {put(found.term)}"


def _fused(b: Block, operands: tuple[Load, ...]) -> dict[Var, Iter]:
    """For each iterator the one that it becomes part of, named after the innermost of them."""
    together: dict[object, list[Iter]] = {}
    for it in b.iters:
        together.setdefault((it.kind, tuple(it.var in variables(ld) for ld in operands)), []).append(it)
    found: dict[Var, Iter] = {}
    for group in together.values():
        whole: Expr = group[0].extent
        for it in group[1:]:
            whole = whole * it.extent
        found |= dict.fromkeys((it.var for it in group), replace(group[-1], extent=whole))
    return {it.var: found[it.var] for it in b.iters}


def _in_order(indices: list[Iter]) -> list[Iter]:
    """The indices of an operand, each where its innermost digit is."""
    return list(dict.fromkeys(reversed(indices)))[::-1]


def _check_apart(description: Program, b: Block, ld: Load) -> None:
    """Refuses an operand that is read twice at one place, as by windows that overlap: it has no plain layout."""
    moving = {it.var: it.extent for it in b.iters if it.var in variables(ld)}
    if not told_apart(ld.indices, moving, TRUE, description.facts):
        raise ScheduleError(f"the description '{description.name}' may access an element of '{ld}' several times")


def _with_iters(b: Block, fused: dict[Var, Iter]) -> Block:
    iters = tuple(dict.fromkeys(fused.values()))
    return replace(b, iters=iters, bindings=tuple(Var(it.var.name.removeprefix("v")) for it in iters))
