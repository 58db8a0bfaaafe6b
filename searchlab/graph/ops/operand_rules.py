"""What the rules of operators share: checks of dtypes and axes, broadcasting, indices of broadcast operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from searchlab.dtype import DTYPES, FLOATS, HALVES
from searchlab.errors import GraphError
from searchlab.graph.annotations import Shape, TensorType
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.expr import ONE, ZERO, Expr, cast
from searchlab.workloads.building_blocks import weight_type

_BYTES, _SUM = ("uint8", "int8"), "int32"


def need(condition: bool, message: str) -> None:
    """Refuses operands or attributes."""
    if not condition:
        raise GraphError(message)


def shape_of(x: TensorType) -> Shape:
    """The shape of an operand, which is known wherever an operator deduces."""
    assert x.shape is not None
    return x.shape


def dtype_of(*operands: TensorType) -> str:
    """The dtype that all operands have."""
    dtype, *others = [x.dtype for x in operands]
    assert dtype is not None
    for other in others:
        need(other == dtype, f"operands of {dtype} and {other}; convert one with cast")
    return dtype


def float_of(*operands: TensorType) -> str:
    """The floating-point dtype that all operands have."""
    dtype = dtype_of(*operands)
    need(dtype in FLOATS, f"operands of {dtype}; it takes {', '.join(FLOATS)}")
    return dtype


def layer_types(x: TensorType, weight: TensorType, *bias: TensorType) -> tuple[str, str]:
    """The dtypes of operand and result of a layer: one float for all, or bytes times int8 that are added as int32."""
    if x.dtype not in _BYTES:
        return (float_of(x, weight, *bias),) * 2
    wanted = weight_type(x.dtype)
    need(weight.dtype == wanted, f"weights of {weight.dtype} for an operand of {x.dtype}; it takes {wanted}")
    for b in bias:
        need(b.dtype == _SUM, f"a bias of {b.dtype} for an operand of {x.dtype}; it takes {_SUM}")
    return x.dtype, _SUM


def sum_type(dtype: str | None) -> str | None:
    """The dtype of the result of a layer on an operand of this one."""
    return _SUM if dtype in _BYTES else dtype


def same(facts: SizeFacts, a: Expr, b: Expr, what: str) -> Expr:
    """An extent that two operands must have in common; refused unless they certainly do."""
    if not facts.equal(a, b):
        hint = "" if facts.differ(a, b) else "; they are not known to be equal, which match_cast can assert"
        raise GraphError(f"{what}: {a} and {b}{hint}")
    return a


def within(facts: SizeFacts, start: Expr, stop: Expr, extent: Expr, what: str) -> None:
    """Refuses a part of an axis unless it certainly lies inside, since a program would access memory beyond."""
    if facts.proves(start < 0) or facts.proves(stop > extent):
        raise GraphError(f"{what}: that is outside the extent {extent}")
    known = facts.proves(start >= 0) and facts.proves(stop <= extent)
    need(known, f"{what}: that is not known to be inside the extent {extent}; ranges of symbols may tell")


def rank_of(x: TensorType, *ranks: int) -> int:
    """The rank of an operand, one of those accepted."""
    rank = len(shape_of(x))
    need(rank in ranks, f"an operand {x} of rank {rank}; it takes rank {' or '.join(map(str, ranks))}")
    return rank


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front; negative ones count from the end."""
    need(-rank <= axis < rank, f"axis {axis} is outside the {rank} axes of the operand")
    return axis % rank


def axes_of(axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Distinct axes counted from the front, in order; None means all."""
    if axes is None:
        return tuple(range(rank))
    found = sorted(axis_of(a, rank) for a in axes)
    need(len(set(found)) == len(found), f"axes {tuple(axes)} name one twice")
    return tuple(found)


def broadcast(facts: SizeFacts, shapes: Sequence[Shape]) -> Shape:
    """The common shape of operands, aligned at their last axes; extents that are the number 1 are repeated."""
    rank = max(map(len, shapes))
    found: list[Expr] = [ONE] * rank
    for shape in shapes:
        for axis, e in enumerate(shape, rank - len(shape)):
            if found[axis] == ONE:
                found[axis] = e
            elif e != ONE:
                same(facts, found[axis], e, f"shapes {_text(shapes)} do not broadcast")
    return tuple(found)


def _text(shapes: Sequence[Shape]) -> str:
    return " and ".join(f"({', '.join(map(str, s))})" for s in shapes)


def broadcast_indices(shape: Shape, out: Shape, at: Sequence[Expr]) -> tuple[Expr, ...]:
    """Where an operand is read for the element `at` of the broadcast result."""
    ahead = len(out) - len(shape)
    return tuple(
        ZERO if e == ONE and whole != ONE else i for e, whole, i in zip(shape, out[ahead:], at[ahead:], strict=True)
    )


def loop_names(rank: int) -> list[str]:
    """Names of the loops over a result of any rank."""
    return ["i", "j", "k", "l"][:rank] if rank <= 4 else [f"i{a}" for a in range(rank)]


def computed(value: Expr) -> Expr:
    """A value in the type that it is computed in: floats of 16 bits in float32, all others as they are."""
    return cast(value, DTYPES[value.dtype].arithmetic)


def rounded(value: Expr, dtype: str) -> Expr:
    """A result as it is stored: rounded, once, to a float of 16 bits."""
    return cast(value, dtype) if dtype in HALVES else value


def input_names(count: int) -> Iterator[str]:
    """Names of the inputs of a program."""
    yield from ["X"] if count == 1 else "ABCDEFGH"[:count] if count <= 8 else (f"X{i}" for i in range(count))
