"""Matching of scalar bodies without their indices: which operand of a block takes the part of which of a description.

A description is a small program with constant extents and one reduction block, such as C[i, j] += A[i, k] * B[k, j].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from searchlab.dtype import DTYPES
from searchlab.errors import ScheduleError
from searchlab.ir.expr import Binary, Call, Cast, Const, Expr, Load, Select, Var, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.ir.sums import Sum, as_sum
from searchlab.ir.walk import loads, transform, variables

COMMUTATIVE = ("add", "mul", "min", "max")


class _OtherBody(Exception):
    """Raised with the reason where two bodies differ."""


@dataclass(frozen=True, slots=True)
class BodyOperand:
    """An operand of a block: how it is read, and the variables that its value depends on, those of conditions included.

    `guarded` says whether there are such conditions, outside which it counts as zero.
    """

    load: Load
    used: frozenset[Var]
    guarded: bool = False

    @property
    def buffer(self) -> str:
        """The name of its buffer."""
        return self.load.buffer


@dataclass(frozen=True, slots=True)
class BodyMatch:
    """The operands of a block in the order of a description's: first the output, then those of the sum."""

    operands: tuple[BodyOperand, ...]


def reduction_block(description: Program) -> Block:
    """The one block of a description; refuses programs that are not one sum."""
    blocks = list(description.blocks.values())
    if len(blocks) != 1 or as_sum(blocks[0].store) is None:
        raise ScheduleError(f"the description '{description.name}' is not one reduction block")
    return blocks[0]


def description_block(description: Program) -> Block:
    """The one block of a description; refuses sums without constant extents or with operands in other layouts."""
    b = reduction_block(description)
    direct = all(isinstance(i, Var) for ld in (*loads(b.store.value), *loads(_place(b))) for i in ld.indices)
    if not direct or any(value_of(it.extent) is None for it in b.iters):
        wanted = "constant extents and operands indexed by iteration variables"
        raise ScheduleError(f"the description '{description.name}' needs {wanted}")
    return b


def description_operands(b: Block) -> tuple[Load, ...]:
    """The output of a description and the operands of its sum, in the order in which they are written."""
    found = as_sum(b.store)
    assert found is not None
    return (_place(b), *dict.fromkeys(loads(found.term)))


def _place(b: Block) -> Load:
    return Load(b.store.buffer, b.store.indices, b.store.value.dtype)


def body_matches(block: Block, described: Block) -> tuple[BodyMatch, ...] | str:
    """All ways in which a block computes what a description does, indices apart, or why there is none."""
    try:
        ours, theirs = as_sum(block.store), as_sum(described.store)
        assert theirs is not None
        if ours is None:
            raise _OtherBody(f"'{_without_indices(block.store.value)}' does not add up into its own element")
        _check_same(ours, theirs, block, described)
        ways = list(operand_ways(theirs.term, ours.term))
        if not ways:
            raise _OtherBody(_difference(theirs.term, ours.term))
    except _OtherBody as e:
        return str(e)
    order = description_operands(described)
    output = BodyOperand(_place(block), variables(_place(block)))
    found = [BodyMatch((output, *(way[ld] for ld in order[1:]))) for way in ways]
    apart = [m for m in found if len({o.buffer for o in m.operands}) == len(m.operands)]
    return tuple(dict.fromkeys(apart)) or "two operands are one buffer, which cannot have two layouts"


def _check_same(ours: Sum, theirs: Sum, block: Block, described: Block) -> None:
    if ours.op != theirs.op:
        raise _OtherBody(f"it combines with '{ours.op}', the description with '{theirs.op}'")
    if block.store.value.dtype != described.store.value.dtype:
        said = f"it adds up in {block.store.value.dtype}, the description in {described.store.value.dtype}"
        raise _OtherBody(said)
    if described.init is not None and (block.init is None or block.init.value != described.init.value):
        raise _OtherBody("it does not begin with the value that the description begins with")


def _unguarded(e: Expr) -> tuple[Expr, Guard]:
    """A term without the condition outside which it is zero, and the variables of the condition."""
    if isinstance(e, Select) and isinstance(e.b, Const) and e.b.value == 0 and not loads(e.condition):
        return e.a, variables(e.condition)
    return e, None


Guard = frozenset[Var] | None
Way = dict[Load, BodyOperand]


def operand_ways(described: Expr, term: Expr, widened: bool = False) -> Iterator[Way]:
    """The assignments of operands under which a term is the described one, indices apart; products commute.

    With `widened`, an operand of the description may be of a wider type, which holds all values of the term's.
    """
    return _ways(described, *_unguarded(term), {}, _widens if widened else _reads)


def _reads(e: Expr, dtype: str) -> Load | None:
    """The load that an expression is, if it is one of that type."""
    return e if isinstance(e, Load) and e.type == dtype else None


def _widens(e: Expr, dtype: str) -> Load | None:
    """The load that an expression is, or that it casts to a type, if the type holds its values."""
    plain = e.a if isinstance(e, Cast) and e.type == dtype else e
    return plain if isinstance(plain, Load) and DTYPES[dtype].holds(DTYPES[plain.type]) else None


def _ways(d: Expr, e: Expr, guard: Guard, known: Way, read: Callable[[Expr, str], Load | None]) -> Iterator[Way]:
    """The same for a part of a term; `guard` are variables that every operand depends on, if there is a condition."""
    if isinstance(d, Load):
        unguarded, own = _unguarded(e)
        inner = read(unguarded, d.type)
        if inner is not None:
            used = variables(inner) | (own or frozenset()) | (guard or frozenset())
            operand = BodyOperand(inner, used, guarded=own is not None or guard is not None)
            if known.get(d, operand) == operand:
                yield {**known, d: operand}
        return
    if type(d) is not type(e):
        return
    if isinstance(d, Binary) and isinstance(e, Binary) and d.op == e.op:
        for a, b in [(e.a, e.b), (e.b, e.a)] if d.op in COMMUTATIVE else [(e.a, e.b)]:
            for way in _ways(d.a, a, guard, known, read):
                yield from _ways(d.b, b, guard, way, read)
    elif isinstance(d, Cast) and isinstance(e, Cast) and d.type == e.type:
        yield from _ways(d.a, e.a, guard, known, read)
    elif isinstance(d, Call) and isinstance(e, Call) and d.function == e.function:
        yield from _ways(d.args[0], e.args[0], guard, known, read)
    elif isinstance(d, Const) and d == e:
        yield known


def _difference(d: Expr, e: Expr) -> str:
    ours, theirs = ([ld.dtype for ld in loads(x)] for x in (e, d))
    if len(ours) == len(theirs) and sorted(ours) != sorted(theirs):
        return f"it reads {' and '.join(ours)}, the description {' and '.join(theirs)}"
    return f"it adds up '{_without_indices(e)}', the description '{_without_indices(d)}'"


def _without_indices(e: Expr) -> str:
    return str(transform(e, lambda x: Load(x.buffer, (), x.type) if isinstance(x, Load) else None)).replace("[]", "")
