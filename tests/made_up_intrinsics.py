"""Intrinsics made to fit any small nest of a program, in scalar instructions that every CPU has."""

from __future__ import annotations

import itertools
import math

from searchlab.dtype import DTYPES, UNSIGNED
from searchlab.errors import IRError
from searchlab.intrinsics import CallSite, Intrinsic, Needs, add_intrinsic
from searchlab.intrinsics.plain import PlainNest, blocks_around, plain_nest
from searchlab.ir.expr import Binary, Cast, Expr, Load, Var, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Buffer, Iter, Loop, Stmt, Store
from searchlab.ir.sums import as_sum
from searchlab.ir.walk import transform, variables
from searchlab.targets import detect

MOST = 64  # iterations, each of which is written out


def fitting(program: Program, loop: str) -> Intrinsic | None:
    """An intrinsic that computes what a loop does, for any strides; None if it is no small sum of products."""
    lp = program.loops[loop]
    try:
        nest = plain_nest(lp, program.facts, blocks_around(program, lp))
    except IRError:
        return None
    found = as_sum(nest.store)
    extents = [value_of(x.extent) or MOST + 1 for x in nest.loops]
    if found is None or found.op != "add" or not nest.loops or math.prod(extents) > MOST or not _simple(found.term):
        return None
    return add_intrinsic(_made(nest, extents, found.term))


def _simple(e: Expr) -> bool:
    if isinstance(e, Load):
        return True
    if isinstance(e, Cast):
        return isinstance(e.a, Load) and e.type == "int32"
    return isinstance(e, Binary) and e.op == "mul" and _simple(e.a) and _simple(e.b)


def _made(nest: PlainNest, extents: list[int], term: Expr) -> Intrinsic:
    """The same nest over dense buffers of its own."""
    size = {lp.var: lp.extent for lp in nest.loops}
    buffers: dict[str, Buffer] = {}

    def operand(name: str, dtype: str, moving: frozenset[Var]) -> tuple[Expr, ...]:
        at = tuple(v for v in size if v in moving)
        buffers[name] = Buffer(name, tuple(size[v] for v in at), dtype)
        return at

    def described(e: Expr) -> Expr | None:
        if not isinstance(e, Load):
            return None
        name = f"I{len(buffers)}"
        return Load(name, operand(name, e.type, frozenset().union(*map(variables, e.indices))), e.type)

    value = transform(term, described)
    inputs = tuple(buffers)
    at = operand("O", value.dtype, frozenset().union(*map(variables, nest.store.indices)))
    store = Store("O", at, Binary("add", Load("O", at, value.dtype), value))
    iters = tuple(Iter(v, size[v], "space" if v in at else "reduce") for v in size)
    init = Store("O", at, value * 0)
    body: Stmt = Block("sum", iters, tuple(size), store, init)
    for v in reversed(size):
        body = Loop(v, size[v], body)
    name = "made_" + "".join(c if c.isalnum() else "_" for c in f"{value}_{at}_{extents}")
    program = Program("made_up", inputs, ("O",), buffers, body)
    free = tuple(f"{b}.{v.name}" for b, x in buffers.items() for v in size if b != "O" or v in at)

    def emit(site: CallSite) -> None:
        for point in itertools.product(*map(range, extents)):
            _term(site, value, dict(zip((v.name for v in size), point, strict=True)))

    return Intrinsic(name, program, emit, Needs(detect().arch), free=free)


def _term(site: CallSite, value: Expr, at: dict[str, int]) -> None:
    """Adds one term."""
    type_ = DTYPES[value.dtype].llvm
    add = "fadd contract" if DTYPES[value.dtype].sort == "float" else "add"
    site.store("O", type_, site.let(f"{add} {type_} {site.load('O', type_, **at)}, {_value(site, value, at)}"), **at)


def _value(site: CallSite, e: Expr, at: dict[str, int]) -> str:
    if isinstance(e, Load):
        return site.load(e.buffer, DTYPES[e.type].llvm, **at)
    type_ = DTYPES[e.dtype].llvm
    if isinstance(e, Cast):
        source = DTYPES[e.a.dtype]
        extend = "zext" if source.name in UNSIGNED else "sext"
        inner = _value(site, e.a, at)
        return inner if source.bits == DTYPES[e.type].bits else site.cast(extend, source.llvm, inner, type_)
    assert isinstance(e, Binary)
    mul = "fmul contract" if DTYPES[e.dtype].sort == "float" else "mul"
    return site.let(f"{mul} {type_} {_value(site, e.a, at)}, {_value(site, e.b, at)}")
