"""Stages in place: a stage that becomes the output element by element is kept in the output's memory.

    for j in n: E[i, j] = exp(X[i, j] - M)              for j in n: Y[i, j] = exp(X[i, j] - M)
    for j in n: S += E[i, j]                      =>    for j in n: S += Y[i, j]
    for j in n: Y[i, j] = E[i, j] / S                   for j in n: Y[i, j] = Y[i, j] / S

A row is then in the cache once, and the output's lines are fetched while there is something to compute.  A stage of a
few vectors stays where it is: close to the registers.
"""

from __future__ import annotations

from math import prod

from searchlab.dtype import DTYPES
from searchlab.ir.apart import told_apart
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import TRUE, value_of
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import own_accesses, path_to, read, rename_buffer, statements, stores
from searchlab.ir.stmt import Buffer, Loop, Seq, Stmt, Store, Tensorized, Update
from searchlab.ir.walk import loads
from searchlab.lower.fusion import divided

_WORTH_BYTES = 2048


def keep_in_outputs(program: Program, body: Stmt) -> Stmt:
    """The body with every stage that can be kept in an output's memory kept there."""
    taken = set(program.updates)  # what is not written of these stays as it was
    for stage in program.buffers.values():
        if stage.name in program.inputs or stage.name in program.outputs:
            continue
        for output in program.outputs:
            if output not in taken and _becomes(body, stage, program.buffers[output]):
                body = rename_buffer(body, stage.name, output)
                taken.add(output)
                break
    return body


def _becomes(body: Stmt, stage: Buffer, output: Buffer) -> bool:
    """Whether the elements of a stage are last read where the same elements of the output are written."""
    if (stage.shape, stage.dtype, stage.scope) != (output.shape, output.dtype, output.scope):
        return False
    made, result = _only_store(body, stage.name), _only_store(body, output.name)
    if made is None or result is None or output.name in read(body):
        return False
    first, last = path_to(body, made), path_to(body, result)
    depth = sum(a is b for a, b in zip(first, last, strict=False))
    around, after = first[depth - 1], last[depth:]
    return (
        isinstance(around, Seq)
        and _is_worth_it(first[depth:], stage)
        and _element_by_element(result, after, stage.name)
        and _ends_with(body, around, after[0], stage.name)
        and all(_keeps_apart(s, stage.name, output.name) for s in first[:depth] if isinstance(s, Loop))
    )


def _only_store(body: Stmt, buffer: str) -> Store | None:
    """The statement that writes a buffer, if there is only one, and if it neither adds up nor is part of a call."""
    found = [s for s in stores(body) if s.buffer == buffer]
    if len(found) != 1 or isinstance(found[0], Update) or any(ld.buffer == buffer for ld in loads(found[0].value)):
        return None
    return None if any(isinstance(s, Tensorized) for s in path_to(body, found[0])) else found[0]


def _is_worth_it(path: list[Stmt], stage: Buffer) -> bool:
    extents = [value_of(s.extent) for s in path if isinstance(s, Loop)]
    return None in extents or prod(n for n in extents if n) * DTYPES[stage.dtype].bytes >= _WORTH_BYTES


def _element_by_element(result: Store, path: list[Stmt], stage: str) -> bool:
    """Whether a store reads only the element of the stage that it writes in the output, and that once."""
    own = [ld.indices for e in result.own_expressions() for ld in loads(e) if ld.buffer == stage]
    inside = {s.var: s.extent for s in path if isinstance(s, Loop)}
    return bool(own) and set(own) == {result.indices} and told_apart(result.indices, inside, TRUE, Facts())


def _ends_with(body: Stmt, around: Seq, ending: Stmt, stage: str) -> bool:
    """Whether all accesses to a stage are within a sequence, the last of them the only one in a statement of it."""
    users = [s for s in statements(body) if any(True for _ in own_accesses(s, stage))]
    order = {id(s): n for n, part in enumerate(around.body) for s in statements(part)}
    end = order[id(ending)]
    return all(order.get(id(s), end + 1) <= end for s in users) and sum(order[id(s)] == end for s in users) == 1


def _keeps_apart(loop: Loop, stage: str, output: str) -> bool:
    """Whether iterations of a loop would access different elements if the stage were the output."""
    renamed = rename_buffer(loop, stage, output)
    assert isinstance(renamed, Loop)
    return divided(renamed, renamed, output)
