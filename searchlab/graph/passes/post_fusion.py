"""Fusion after scheduling, as in Hidet: a product is scheduled alone, and what surrounds it is put into its loops.

An operator before it, the *prologue*, is computed wherever the scheduled program reads its result; one after it, the
*epilogue*, wherever the program stores.  The schedule knows nothing of either, so one schedule serves every group with
the same product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from searchlab.errors import GraphError
from searchlab.graph.annotations import TensorType
from searchlab.graph.functions import GraphFunction, GraphModule
from searchlab.graph.legalising import OperatorPrograms
from searchlab.graph.passes.pattern_kinds import PatternKind, pattern_kind
from searchlab.graph.passes.program_fusion import GroupParts, fused_program
from searchlab.intrinsics import check_tensorized
from searchlab.ir.affine import IterationMap, Need, Rejection, validated
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import Expr, Load, Var
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import kept, map_expressions, read
from searchlab.ir.stmt import Ahead, Block, Buffer, Iter, Stmt, Store
from searchlab.ir.verify import verify
from searchlab.ir.visitor import Rewriter
from searchlab.ir.walk import Substitution, loads, transform
from searchlab.schedule import cache_write, compute_inline

Scheduling = Callable[[Program], Program]


def schedule_then_fuse(module: GraphModule, function: GraphFunction, schedule: Scheduling) -> Program:
    """A scheduled program for a group, by way of its product alone, which `schedule` is given.

    Its inputs are the tensors among the function's parameters, under their names.  A group without a product or a
    reduction is scheduled as a whole.
    """
    parts = GroupParts.of(module, function, OperatorPrograms())
    found = [n for n, p in enumerate(parts.programs) if pattern_kind(p) >= PatternKind.REDUCTION]
    if len(found) != 1 or len(parts.outputs) != 1:
        return schedule(fused_program(module, function))
    (anchor,) = found
    product = parts.programs[anchor]
    results = [(anchor, n) for n in product.outputs]
    alone = parts.part(product.name, [anchor], results)
    after = parts.before(parts.outputs, stop=anchor)
    scheduled = schedule(stored_by_a_stage(alone) if after else alone)
    fed = [parts.origin((anchor, n)) for n in product.inputs]
    prologues = [
        parts.part("prologue", parts.before([port]), [port]) for port in dict.fromkeys(fed) if parts.before([port])
    ]
    epilogues = [parts.part("epilogue", after, parts.outputs)] if after else []
    whole = fuse_after(scheduled, [in_one_stage(p) for p in prologues], [in_one_stage(p) for p in epilogues])
    given = tuple(p.name for p in function.parameters if isinstance(p.annotation, TensorType))
    return replace(whole, name=function.name, inputs=given)


def fuse_after(scheduled: Program, prologues: Sequence[Program], epilogues: Sequence[Program]) -> Program:
    """A scheduled program with others of one stage each put in; what they share with it has the same names.

    A prologue makes an input of the program.  An epilogue reads the output; its other operands may be anything, but the
    result must have one element for each element of the output.
    """
    program = replace(scheduled, trace=())
    for epilogue in epilogues:
        program = _with_epilogue(program, epilogue)
    for prologue in prologues:
        program = _with_prologue(program, prologue)
    verify(program)
    check_tensorized(program)
    return program


def stored_by_a_stage(program: Program) -> Program:
    """The program with a stage that copies the output, if a sum makes it: what follows can be put into that stage."""
    (output,) = program.outputs
    (maker,) = [b for b in program.blocks.values() if b.store.buffer == output]
    return replace(cache_write(program, maker.name, scope="global"), trace=()) if maker.reduces else program


def in_one_stage(program: Program) -> Program:
    """The program with all stages put into the one that makes its output."""
    for name in list(program.blocks)[:-1]:
        program = compute_inline(program, name)
    return replace(program, trace=())


def _stage(program: Program, what: str) -> Block:
    """The only stage of a program that is to be put into another."""
    found = list(program.blocks.values())
    if len(found) != 1 or found[0].reduces or len(program.outputs) != 1:
        raise GraphError(f"the {what} {program.name} has {len(found)} stages; one without a reduction is accepted")
    return found[0]


def _joined(program: Program, other: Program, gone: str) -> dict[str, Buffer]:
    """The buffers of a program with those that another one brings, without one that is not stored any more."""
    for name in program.buffers.keys() & other.buffers.keys() - {gone}:
        if name not in program.inputs or program.buffers[name] != other.buffers[name]:
            raise GraphError(f"'{name}' of {other.name} is another buffer of {program.name}; rename one of them")
    return {n: b for n, b in {**program.buffers, **other.buffers}.items() if n != gone}


def _with_prologue(program: Program, prologue: Program) -> Program:
    (name,), stage = prologue.outputs, _stage(prologue, "prologue")
    if name not in program.inputs or any(la.buffer == name for la in program.layouts):
        raise GraphError(f"{program.name} has no input '{name}' in the layout that {prologue.name} makes")
    store = stage.store

    def computed(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer == name:
            return Substitution(dict(zip(store.indices, e.indices, strict=True)))(store.value)
        return None

    body = map_expressions(_Unfetched().visited(program.body, name), lambda e: transform(e, computed))
    inputs = dict.fromkeys(n for own in program.inputs for n in (prologue.inputs if own == name else (own,)))
    return program.with_body(body, inputs=tuple(inputs), buffers=_joined(program, prologue, name))


def _with_epilogue(program: Program, epilogue: Program) -> Program:
    stage, (result,) = _stage(epilogue, "epilogue"), epilogue.outputs
    names = [n for n in program.outputs if n in epilogue.inputs]
    if len(names) != 1 or any(la.buffer in names for la in program.layouts):
        raise GraphError(f"{epilogue.name} reads {len(names)} outputs of {program.name}; exactly one is accepted")
    (name,) = names
    makers = [b for b in program.blocks.values() if isinstance(b.body, Store) and b.store.buffer == name]
    if name in read(program.body) or any(b.reduces or b.init is not None for b in makers):
        raise GraphError(f"'{name}' is added up in place by {program.name}; let a stage of its own store it")
    places = _inverse(program.buffers[name], stage, name, epilogue.name)
    body = _Stored(name, stage.store, places).visited(program.body)
    inputs = dict.fromkeys((*program.inputs, *(n for n in epilogue.inputs if n != name)))
    outputs = tuple(result if n == name else n for n in program.outputs)
    buffers = _joined(program, epilogue, name)
    return program.with_body(body, inputs=tuple(inputs), outputs=outputs, buffers=buffers)


def _inverse(buffer: Buffer, stage: Block, name: str, epilogue: str) -> tuple[tuple[Var, ...], dict[Var, Expr]]:
    """Variables for the indices of a buffer, and the stage's own in terms of them: where its only read is from."""
    found = {ld.indices for ld in loads(stage.store.value) if ld.buffer == name}
    if len(found) != 1:
        raise GraphError(f"{epilogue} reads '{name}' at {len(found)} places for each result; one is accepted")
    at = tuple(Var(f"{name}_{n}") for n in range(len(buffer.shape)))
    iters = tuple(Iter(v, e) for v, e in zip(at, buffer.shape, strict=True))
    loops = {it.var: it.extent for it in stage.iters}
    proof = validated(IterationMap(iters, found.pop(), loops), Need.BIJECTIVE, Facts(loops))
    if isinstance(proof, Rejection):
        raise GraphError(f"{epilogue} does not read '{name}' once for each result: {proof.words}")
    return at, dict(proof.loops)


class _Stored(Rewriter[[]]):
    """Stores the result of an epilogue where a buffer was stored."""

    def __init__(self, name: str, store: Store, places: tuple[tuple[Var, ...], dict[Var, Expr]]) -> None:
        self.name, self.store = name, store
        self.at, self.places = places

    def visited(self, body: Stmt) -> Stmt:
        """The body with all its stores rewritten."""
        return kept(self.visit(body))

    def visit_store(self, s: Store) -> Stmt | None:
        if s.buffer != self.name:
            return s
        there = Substitution(dict(zip(self.at, s.indices, strict=True)))
        put = Substitution({v: there(e) for v, e in self.places.items()})

        def filled(e: Expr) -> Expr | None:
            return s.value if isinstance(e, Load) and e.buffer == self.name else None

        value = transform(put(self.store.value), filled)
        return Store(self.store.buffer, tuple(map(put, self.store.indices)), value)


class _Unfetched(Rewriter[[str]]):
    """Drops prefetches of a buffer that is not read any more."""

    def visited(self, body: Stmt, name: str) -> Stmt:
        """The body without them."""
        return kept(self.visit(body, name))

    def visit_block(self, b: Block, name: str) -> Stmt | None:
        new = self.other(b, name)
        assert isinstance(new, Block)
        notes = tuple((k, v) for k, v in new.annotations if not (isinstance(v, Ahead) and v.buffer == name))
        return replace(new, annotations=notes)
