"""Fusion after scheduling: stages around an anchor become part of it, whatever its loops look like by then.

A prologue feeds the anchor: every load A[idx] becomes the producer's expression at idx.  An epilogue follows it: every
store C[idx] = v becomes D[inverse(idx)] = expr(v).  Both are refused where the result would be wrong or the work done
more than once in a way the definition does not allow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from searchlab.errors import ScheduleError, SpaceError
from searchlab.ir.algebra import from_poly, poly, without
from searchlab.ir.expr import ONE, TRUE, ZERO, Binary, Expr, Load, Var
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import accesses, read
from searchlab.ir.stmt import Block, Seq, Stmt, Store
from searchlab.ir.verify import verify
from searchlab.ir.walk import Substitution, transform
from searchlab.schedule import compute_inline
from searchlab.schedule.primitive import consumers, is_leaf, producers, top_statement
from searchlab.tactics import moves_with


def fuse_prologue(program: Program, stage: str) -> Program:
    """A stage without reduction becomes part of its only reader; the primitive compute_inline does the rest."""
    b = _stage(program, stage)
    readers = consumers(program, b.store.buffer)
    if len(readers) != 1:
        raise SpaceError(f"prologue '{stage}': '{b.store.buffer}' has {len(readers)} readers; accepted: one")
    try:
        return compute_inline(program, stage)
    except ScheduleError as e:
        raise SpaceError(f"prologue '{stage}': {e}") from e


def fuse_epilogue(program: Program, stage: str) -> Program:
    """A stage that reads each element of another once, at a place that can be inverted, runs where that is stored."""
    b = _stage(program, stage)
    source = _source(program, b)
    inverse = _inverse(program, b, source)
    makers = producers(program, source.buffer)
    _check_makers(program, b, source.buffer, makers)

    def fused(maker: Block) -> Block:
        at = Substitution(dict(zip(_places(len(source.indices)), maker.store.indices, strict=True)))
        put = Substitution({v: at(e) for v, e in inverse.items()})
        value = transform(put(b.store.value), lambda e: maker.store.value if _is_load(e, source.buffer) else None)
        return replace(maker, body=Store(b.store.buffer, tuple(put(i) for i in b.store.indices), value))

    def visit(s: Stmt) -> Stmt | None:
        if isinstance(s, Block) and is_leaf(s):
            return None if s is b else fused(s) if s in makers else s
        return s.map_children(visit)

    body = visit(program.body)
    assert body is not None
    buffers = {n: x for n, x in program.buffers.items() if n != source.buffer}
    result = replace(program, body=body, buffers=buffers, trace=())
    verify(result)
    return result


def _stage(program: Program, name: str) -> Block:
    """A stage that is injective: no reduction, one store, over its whole domain."""
    if name not in program.blocks:
        raise SpaceError(f"there is no stage '{name}'; known: {', '.join(program.blocks)}")
    b = program.blocks[name]
    if not is_leaf(b) or b.reduces or b.init is not None or b.store.buffer in read(b):
        raise SpaceError(f"stage '{name}' reduces; accepted: stages that compute each element by itself")
    if b.predicate != TRUE or len(producers(program, b.store.buffer)) != 1:
        raise SpaceError(f"stage '{name}' is scheduled already, or one of several that write '{b.store.buffer}'")
    return b


def _is_load(e: Expr, buffer: str) -> bool:
    return isinstance(e, Load) and e.buffer == buffer


def _source(program: Program, b: Block) -> Load:
    """The one access through which a stage reads the stage before it."""
    made = [n for n in read(b) if n not in program.inputs]
    fit = [n for n in made if n not in program.outputs and len(consumers(program, n)) == 1]
    if not fit:
        shared = [n for n in made if len(consumers(program, n)) > 1]
        reason = f"'{shared[0]}' has several readers" if shared else "it reads no stage of its own"
        raise SpaceError(f"epilogue '{b.name}': {reason}; accepted: the only reader of an intermediate")
    found = [ld for ld in accesses(b) if ld.buffer == fit[-1]]
    if len(found) != 1:
        raise SpaceError(f"epilogue '{b.name}' reads '{fit[-1]}' {len(found)} times; accepted: once")
    return found[0]


def _check_makers(program: Program, b: Block, buffer: str, makers: list[Block]) -> None:
    for maker in makers:
        if maker.init is not None or buffer in read(maker):
            raise SpaceError(
                f"epilogue '{b.name}': '{maker.name}' adds to '{buffer}', whose elements are not final when stored; "
                "keep the sum in an array of its own and store it in the end (cache_write), or use reverse_compute_at"
            )
    first = min(_position(program, m) for m in makers)
    for other in (n for n in read(b) if n != buffer):
        if any(_position(program, p) >= first for p in producers(program, other)):
            raise SpaceError(f"epilogue '{b.name}' also reads '{other}', which is not made before '{buffer}'")


def _position(program: Program, b: Block) -> int:
    """The number of the statement, of the program's outermost ones, that holds a stage."""
    parts = program.body.body if isinstance(program.body, Seq) else (program.body,)
    top = top_statement(program, b)
    return next(n for n, part in enumerate(parts) if part is top)


# --- inverting index maps ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _IndexDigit:
    """One index of an access: (flat // low) % extent, where `flat` numbers the iterations of some variables."""

    flat: Expr
    low: Expr


_PlacedDigit = tuple[_IndexDigit, Var, Expr]  # with the variable of the index's place, and the extent there


def _places(rank: int) -> list[Var]:
    return [Var(f"at{d}") for d in range(rank)]


def _inverse(program: Program, b: Block, source: Load) -> dict[Var, Expr]:
    """The iteration variables of a stage from the index at which it reads; refuses what is not one to one."""
    sizes = {it.var: it.extent for it in b.iters}
    text = f"{source.buffer}[{', '.join(map(str, source.indices))}]"
    lost = [v for v in sizes if not moves_with(source, v)]
    if any(sizes[v] != ONE for v in lost):
        raise SpaceError(f"epilogue '{b.name}' reads {text} for every '{lost[0]}' again: a broadcast is not invertible")
    found: dict[Var, Expr] = {v: ZERO for v in lost}
    for flat, digits in _by_flat_number(program, source).items():
        radix = _radix(flat, sizes)
        total = _whole(digits)
        if radix is None or total is None or total[1] != radix[1] or found.keys() & radix[0].keys():
            raise SpaceError(f"epilogue '{b.name}' does not read all of '{source.buffer}' exactly once: {text}")
        for v, stride in radix[0].items():
            found[v] = (total[0] // stride) % sizes[v] if stride * sizes[v] != radix[1] else total[0] // stride
    return found


def _by_flat_number(program: Program, source: Load) -> dict[Expr, list[_PlacedDigit]]:
    """The indices of an access, each as a digit of a flat number, by these numbers."""
    shape = program.buffers[source.buffer].shape
    groups: dict[Expr, list[_PlacedDigit]] = {}
    for place, i, extent in zip(_places(len(shape)), source.indices, shape, strict=True):
        if i != ZERO or extent != ONE:
            digit = _digit(i)
            groups.setdefault(digit.flat, []).append((digit, place, extent))
    return groups


def _digit(e: Expr) -> _IndexDigit:
    inner = e.a if isinstance(e, Binary) and e.op == "mod" else e
    if isinstance(inner, Binary) and inner.op == "floordiv":
        return _IndexDigit(inner.a, inner.b)
    return _IndexDigit(inner, ONE)


def _radix(flat: Expr, sizes: dict[Var, Expr]) -> tuple[dict[Var, Expr], Expr] | None:
    """The stride of every variable in a flat number, and how many numbers there are; None if some are left out."""
    strides: dict[Var, Expr] = {}
    for monomial, c in poly(flat).items():
        mine = [a for a in monomial if isinstance(a, Var) and a in sizes]
        if len(mine) != 1 or mine[0] in strides:
            return None
        strides[mine[0]] = from_poly({without(monomial, (mine[0],)) or (): c})
    covered: Expr = ONE
    left = dict(strides)
    while left:
        v = next((v for v, stride in left.items() if stride == covered), None)
        if v is None:
            return None
        covered = covered * sizes[v]
        del left[v]
    return strides, covered


def _whole(digits: list[_PlacedDigit]) -> tuple[Expr, Expr] | None:
    """The flat number that digits make, and how many; None if they leave gaps."""
    total: Expr = ZERO
    covered: Expr = ONE
    left = list(digits)
    while left:
        part = next((p for p in left if p[0].low == covered), None)
        if part is None:
            return None
        left.remove(part)
        total = total + part[1] * covered
        covered = covered * part[2]
    return total, covered
