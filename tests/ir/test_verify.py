"""The verifier: what statements remember never lets a program pass that a visit of the whole one refuses."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from random_schedules import random_schedule

from searchlab.errors import IRError
from searchlab.ir.expr import Var
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Block, Loop, Seq, Stmt
from searchlab.ir.verify import _adds_up, _Verifier
from searchlab.workloads import parse

WORKLOADS = ["softmax:rows=6,cols=8", "dense:m=4,n=6,k=8,activation=gelu", "conv2d:ci=2,co=4,h=6,w=6,k=3,padding=1"]


def accepted(program: Program) -> bool:
    try:
        _Verifier(program).run()
    except IRError:
        return False
    return True


def exchanged(s: Stmt, old: Stmt, new: Stmt) -> Stmt:
    if s is old:
        return new
    changed = s.map_children(lambda child: exchanged(child, old, new))
    assert changed is not None
    return changed


def damaged(program: Program) -> Iterator[Program]:
    """The program with one thing changed, which may be wrong."""
    for s in statements(program.body):
        if isinstance(s, Loop):
            yield program.with_body(exchanged(program.body, s, s.body))
            for kind in ("parallel", "blockIdx.x", "vectorized"):
                yield program.with_body(exchanged(program.body, s, replace(s, kind=kind)))
            yield program.with_body(exchanged(program.body, s, replace(s, var=Var("other"))))
        elif isinstance(s, Block):
            yield program.with_body(exchanged(program.body, s, replace(s, iters=s.iters[1:])))
            yield program.with_body(exchanged(program.body, s, replace(s, init=None)))
            yield program.with_body(exchanged(program.body, s, replace(s, name=next(iter(program.blocks)))))
            yield program.with_body(exchanged(program.body, s, Seq((s, s))))
        elif isinstance(s, Seq):
            yield program.with_body(exchanged(program.body, s, Seq(s.body[::-1])))
            yield program.with_body(exchanged(program.body, s, Seq(s.body[1:])))
    for name, buffer in program.buffers.items():
        others = {n: b for n, b in program.buffers.items() if n != name}
        yield replace(program, buffers=others)
        yield replace(program, buffers={**others, name: replace(buffer, dtype="int32")})
        yield replace(program, buffers={**others, name: replace(buffer, shape=buffer.shape[1:])})
    yield replace(program, outputs=(*program.outputs, program.inputs[0]))
    yield replace(program, inputs=program.inputs[1:])
    yield replace(program, inputs=(*program.inputs, program.outputs[0]))


@pytest.mark.parametrize("spec", WORKLOADS)
def test_both_ways_to_verify_agree(spec: str) -> None:
    refused = 0
    for seed in range(4):
        program = random_schedule(parse(spec).program, np.random.default_rng(seed), 8)
        assert accepted(program) and _adds_up(program)
        for other in damaged(program):
            assert accepted(other) == _adds_up(other), str(other)
            refused += not accepted(other)
    assert refused > 50
