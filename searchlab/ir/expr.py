"""Expressions: one hierarchy for loop indices, tile-size symbols, run-time sizes and tensor values.

This module defines the nodes and the constructors of values and conditions.  Index arithmetic is kept in a canonical
form (`algebra`); tensor values keep their order of evaluation, because floating-point arithmetic is not associative.
`walk` traverses and rewrites expressions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Union

from searchlab.dtype import BOOL, DTYPES, FLOATS, INDEX
from searchlab.errors import IRError

Role = Literal["iter", "knob", "size"]
Monomial = tuple["Expr", ...]
Like = Union["Expr", int, float]

LOOKED_UP = ("int32", "int64")  # types of buffers that hold indices

_GETTERS: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def _getter(cls: type) -> Callable[[Any], tuple[Any, ...]]:
    """A fast getter of all fields of a node at once."""
    found = _GETTERS.get(cls)
    if found is None:
        names = tuple(cls.__dataclass_fields__)  # type: ignore[attr-defined]
        get = operator.attrgetter(*names)
        found = _GETTERS[cls] = get if len(names) > 1 else lambda node: (get(node),)
    return found


class _Layers:
    """Hooks for the operators and `str` of expressions, set by the modules that implement them when imported.

    `algebra` sets index arithmetic, `printer` sets the text; `searchlab.ir` imports both before anything is built.
    """

    arithmetic: Callable[[str, Expr, Expr], Expr]
    floordiv: Callable[[Expr, Expr], Expr]
    mod: Callable[[Expr, Expr], Expr]
    text: Callable[[Expr], str]


layers = _Layers()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expr:
    """Base of all expressions: immutable, hashable, compared by structure."""

    def __hash__(self) -> int:
        try:
            return self._hash  # type: ignore[attr-defined, no-any-return, unused-ignore]
        except AttributeError:
            object.__setattr__(self, "_hash", hash((type(self).__name__, *self._fields())))
            return self._hash  # type: ignore[attr-defined, no-any-return]

    def _fields(self) -> tuple[Any, ...]:
        return _getter(type(self))(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        get = _getter(type(self))
        return get(self) == get(other)

    @property
    def dtype(self) -> str:
        """The type of its value."""
        raise NotImplementedError

    def children(self) -> tuple[Expr, ...]:
        """The expressions directly inside."""
        return ()

    def __repr__(self) -> str:
        return layers.text(self)

    def __add__(self, other: Like) -> Expr:
        return _arithmetic("add", self, other)

    def __radd__(self, other: Like) -> Expr:
        return _arithmetic("add", other, self)

    def __sub__(self, other: Like) -> Expr:
        return _arithmetic("sub", self, other)

    def __rsub__(self, other: Like) -> Expr:
        return _arithmetic("sub", other, self)

    def __mul__(self, other: Like) -> Expr:
        return _arithmetic("mul", self, other)

    def __rmul__(self, other: Like) -> Expr:
        return _arithmetic("mul", other, self)

    def __truediv__(self, other: Like) -> Expr:
        return _arithmetic("div", self, other)

    def __rtruediv__(self, other: Like) -> Expr:
        return _arithmetic("div", other, self)

    def __neg__(self) -> Expr:
        return _arithmetic("mul", -1, self) if self.dtype == INDEX else _arithmetic("sub", 0, self)

    def __floordiv__(self, other: Like) -> Expr:
        return layers.floordiv(self, index(other))

    def __rfloordiv__(self, other: Like) -> Expr:
        return layers.floordiv(index(other), self)

    def __mod__(self, other: Like) -> Expr:
        return layers.mod(self, index(other))

    def __rmod__(self, other: Like) -> Expr:
        return layers.mod(index(other), self)

    def __lt__(self, other: Like) -> Expr:
        return compare("lt", self, other)

    def __le__(self, other: Like) -> Expr:
        return compare("le", self, other)

    def __gt__(self, other: Like) -> Expr:
        return compare("gt", self, other)

    def __ge__(self, other: Like) -> Expr:
        return compare("ge", self, other)

    def equals(self, other: Like) -> Expr:
        """The condition `self == other` (`==` itself compares the expressions' structure)."""
        return compare("eq", self, other)

    def __and__(self, other: Expr) -> Expr:
        return all_of((self, other))

    def __bool__(self) -> bool:
        raise IRError(f"the truth of '{self}' is not known while the program is built; use select(condition, a, b)")


class _Node(Expr):
    """Adds slots to every node for its cached hash, variables, buffer accesses and sort key."""

    __slots__ = ("_hash", "_iterators", "_loads", "_sort_key", "_variables")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(_Node):
    """A number: an index, or a tensor value of some dtype."""

    value: int | float
    type: str = INDEX

    @property
    def dtype(self) -> str:
        """The type of its value."""
        return self.type


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(_Node):
    """A named integer: an iteration variable (>= 0), a knob chosen by a search (>= 1) or a run-time size (>= 1)."""

    name: str
    role: Role = "iter"

    __hash__ = Expr.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Var and self.name == other.name and self.role == other.role)

    @property
    def dtype(self) -> str:
        """The type of its value."""
        return INDEX


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Poly(_Node):
    """A sum of integer multiples of products of atoms: the canonical form of index arithmetic."""

    terms: tuple[tuple[Monomial, int], ...]

    @property
    def dtype(self) -> str:
        """The type of its value."""
        return INDEX

    def children(self) -> tuple[Expr, ...]:
        """The expressions directly inside."""
        return tuple(atom for monomial, _ in self.terms for atom in monomial)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(_Node):
    """`floordiv` and `mod` of indices; `min`/`max` of either; `add sub mul div` of tensor values."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        """The type of its value."""
        return self.a.dtype

    def children(self) -> tuple[Expr, ...]:
        """The expressions directly inside."""
        return (self.a, self.b)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Compare(_Node):
    """A condition: `lt`, `le`, `eq` or `ne` of two expressions of one dtype."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        """The type of its value."""
        return BOOL

    def children(self) -> tuple[Expr, ...]:
        """The expressions directly inside."""
        return (self.a, self.b)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class And(_Node):
    """All of several conditions."""

    args: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        """The type of its value."""
        return BOOL

    def children(self) -> tuple[Expr, ...]:
        """The expressions directly inside."""
        return self.args


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(_Node):
    """`a` where the condition holds, else `b`; only the chosen side is evaluated, so it may guard an access."""

    condition: Expr
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        """The type of its value."""
        return self.a.dtype

    def children(self) -> tuple[Expr, ...]:
        """The expressions directly inside."""
        return (self.condition, self.a, self.b)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(_Node):
    """A value converted to another dtype (indices may become values, never the reverse)."""

    type: str
    a: Expr

    @property
    def dtype(self) -> str:
        """The type of its value."""
        return self.type

    def children(self) -> tuple[Expr, ...]:
        """The expressions directly inside."""
        return (self.a,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(_Node):
    """A mathematical function of values, one of CALLS or `ir.bits`; `round` is to the nearest integer, ties to even."""

    function: str
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        """The type of its value."""
        return self.args[0].dtype

    def children(self) -> tuple[Expr, ...]:
        """The expressions directly inside."""
        return self.args


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Load(_Node):
    """One element of a buffer; buffers are referenced by name, and the Program holds their shapes."""

    buffer: str
    indices: tuple[Expr, ...]
    type: str

    @property
    def dtype(self) -> str:
        """The type of its value."""
        return self.type

    def children(self) -> tuple[Expr, ...]:
        """The expressions directly inside."""
        return self.indices


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Lookup(_Node):
    """An element of an integer buffer as an index, or as the extent of a loop: at least 0 and less than `below`.

    Whoever fills the buffer keeps to that range, and programs rely on it.  `expected` is its mean, as far as it is
    known: what features take it for.
    """

    load: Load
    below: Expr
    expected: Expr

    @property
    def dtype(self) -> str:
        """The type of its value."""
        return INDEX

    def children(self) -> tuple[Expr, ...]:
        """The expressions directly inside."""
        return (self.load, self.below, self.expected)


ZERO, ONE = Const(0), Const(1)
TRUE, FALSE = Const(1, BOOL), Const(0, BOOL)


def index(value: Like) -> Expr:
    """An index expression from an integer or an index expression."""
    if isinstance(value, Expr):
        if value.dtype != INDEX:
            raise IRError(f"expected an index, got '{value}' of dtype {value.dtype}")
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise IRError(f"expected an integer or an index expression, got {value!r}")
    return Const(operator.index(value))  # type: ignore[arg-type]


def const(value: int | float, dtype: str) -> Const:
    """A constant tensor value; integer dtypes require integers."""
    if dtype in FLOATS:
        return Const(float(value), dtype)
    if dtype == BOOL:
        return Const(int(bool(value)), dtype)
    if int(value) != value:
        raise IRError(f"{value!r} is not a whole number, but the expression has dtype {dtype}")
    return Const(int(value), dtype)


def lookup(e: Expr, below: Like, expected: Like | None = None) -> Lookup:
    """An element of an integer buffer as an index less than `below`; in the middle of that, unless something else is
    `expected`."""
    if not isinstance(e, Load) or e.type not in LOOKED_UP:
        raise IRError(
            f"'{e}' is not an element of a buffer of {' or '.join(LOOKED_UP)}, which indices are looked up in"
        )
    limit = index(below)
    return Lookup(e, limit, limit // 2 if expected is None else index(expected))


def knob(name: str) -> Var:
    """A symbol that a search replaces by an integer (a tile size, an unroll step)."""
    return Var(name, "knob")


def size(name: str) -> Var:
    """A symbol for an extent that is known only when the kernel is called."""
    return Var(name, "size")


def value_of(e: Expr) -> int | None:
    """The value of a constant index expression, or None if it is not constant."""
    return int(e.value) if isinstance(e, Const) else None


# --- values and conditions --------------------------------------------------------------------------------------------


def _pair(a: Like, b: Like, what: str) -> tuple[Expr, Expr]:
    """Both operands as expressions of one dtype; bare numbers take the dtype of the other side."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return index(a), index(b)
    dtype = a.dtype if isinstance(a, Expr) else b.dtype  # type: ignore[union-attr]
    ea = a if isinstance(a, Expr) else (index(a) if dtype == INDEX else const(a, dtype))
    eb = b if isinstance(b, Expr) else (index(b) if dtype == INDEX else const(b, dtype))
    if ea.dtype != eb.dtype:
        raise IRError(f"{what} of '{ea}' ({ea.dtype}) and '{eb}' ({eb.dtype}): convert one with cast(value, dtype)")
    return ea, eb


def _arithmetic(op: str, a: Like, b: Like) -> Expr:
    ea, eb = (a, b) if isinstance(a, Expr) and isinstance(b, Expr) and a.dtype == b.dtype else _pair(a, b, op)
    return layers.arithmetic(op, ea, eb) if ea.dtype == INDEX else Binary(op, ea, eb)


def minimum(a: Like, b: Like) -> Expr:
    """The smaller of two indices or values."""
    return extreme("min", a, b)


def maximum(a: Like, b: Like) -> Expr:
    """The larger of two indices or values."""
    return extreme("max", a, b)


def extreme(op: str, a: Like, b: Like) -> Expr:
    """The `min` or `max` of two indices or values."""
    ea, eb = (a, b) if isinstance(a, Const) and isinstance(b, Const) and a.type == b.type else _pair(a, b, op)
    if ea.dtype == INDEX:
        gap = value_of(ea - eb)
        if gap is not None:
            return ea if (gap <= 0) == (op == "min") else eb
    return Binary(op, ea, eb)


def compare(op: str, a: Like, b: Like) -> Expr:
    """The condition a `op` b; folds when the difference of two indices is a known integer."""
    ea, eb = _pair(a, b, op)
    if op == "gt":
        op, ea, eb = "lt", eb, ea
    elif op == "ge":
        op, ea, eb = "le", eb, ea
    if ea.dtype == INDEX and isinstance(ea, Const) == isinstance(eb, Const):  # else no number is their difference
        gap = value_of(ea - eb)
        if gap is not None:
            return TRUE if {"lt": gap < 0, "le": gap <= 0, "eq": gap == 0, "ne": gap != 0}[op] else FALSE
    return Compare(op, ea, eb)


def all_of(conditions: Iterable[Expr]) -> Expr:
    """The conjunction of conditions; duplicates and true conditions are dropped."""
    flat: dict[Expr, None] = {}
    for c in conditions:
        if c == FALSE:
            return FALSE
        for part in c.args if isinstance(c, And) else (c,):
            if part != TRUE:
                flat[part] = None
    if not flat:
        return TRUE
    return next(iter(flat)) if len(flat) == 1 else And(tuple(flat))


def conditions(e: Expr) -> tuple[Expr, ...]:
    """The conjuncts of a condition."""
    return e.args if isinstance(e, And) else () if e == TRUE else (e,)


def select(condition: Expr, a: Like, b: Like) -> Expr:
    """`a` where the condition holds, else `b`."""
    if condition.dtype != BOOL:
        raise IRError(f"select: '{condition}' is not a condition")
    ea, eb = _pair(a, b, "select")
    if isinstance(condition, Const):
        return ea if condition.value else eb
    return Select(condition, ea, eb)


def cast(e: Like, dtype: str) -> Expr:
    """The value converted to `dtype`."""
    if dtype not in DTYPES:
        raise IRError(f"cast: unknown dtype '{dtype}'; known: {', '.join(DTYPES)}")
    e = index(e) if not isinstance(e, Expr) else e
    if isinstance(e, Const):
        return const(e.value if dtype in FLOATS or dtype == BOOL else int(e.value), dtype)
    return e if e.dtype == dtype else Cast(dtype, e)


CALLS = ("exp", "log", "tanh", "erf", "sigmoid", "sqrt", "rsqrt", "abs", "floor", "round")


def call(function: str, *args: Expr) -> Expr:
    """A mathematical function of a floating-point value."""
    if function not in CALLS:
        raise IRError(f"unknown function '{function}'; known: {', '.join(CALLS)}")
    if len(args) != 1 or args[0].dtype not in FLOATS:
        got = ", ".join(f"'{a}' ({a.dtype})" for a in args)
        raise IRError(f"{function} takes one value of dtype {' or '.join(FLOATS)}, got {got}")
    return Call(function, args)
