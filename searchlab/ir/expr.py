"""Expressions: one kind for loop indices, tile-size symbols, run-time sizes and tensor values.

Index arithmetic is kept in a canonical form (a polynomial over variables and indivisible atoms such as `x // b`), so
that equal indices are equal objects and integers fold away the moment they replace symbols.  Tensor values keep the
order in which they were written, because floating-point arithmetic does not commute with rearrangement.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Union

from searchlab.dtype import BOOL, DTYPES, FLOATS, INDEX
from searchlab.errors import IRError

Role = Literal["iter", "knob", "size"]
Monomial = tuple["Expr", ...]
Like = Union["Expr", int, float]

_set = object.__setattr__


_GETTERS: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def _getter(cls: type) -> Callable[[Any], tuple[Any, ...]]:
    """A fast way to all fields of a node at once."""
    found = _GETTERS.get(cls)
    if found is None:
        names = tuple(cls.__dataclass_fields__)  # type: ignore[attr-defined]
        get = operator.attrgetter(*names)
        found = _GETTERS[cls] = get if len(names) > 1 else lambda node: (get(node),)
    return found


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expr:
    """Base of all expressions: immutable, hashable, compared by structure."""

    def __hash__(self) -> int:
        try:
            return self._hash  # type: ignore[attr-defined, no-any-return, unused-ignore]
        except AttributeError:
            _set(self, "_hash", hash((type(self).__name__, *self._fields())))
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
        raise NotImplementedError

    def children(self) -> tuple[Expr, ...]:
        return ()

    def __repr__(self) -> str:
        from searchlab.ir.printer import expr_text

        return expr_text(self)

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
        return floordiv(self, index(other))

    def __rfloordiv__(self, other: Like) -> Expr:
        return floordiv(index(other), self)

    def __mod__(self, other: Like) -> Expr:
        return mod(self, index(other))

    def __rmod__(self, other: Like) -> Expr:
        return mod(index(other), self)

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
    """Gives every node slots for its cached hash, variables, buffer accesses and place in sums."""

    __slots__ = ("_hash", "_iterators", "_loads", "_sort_key", "_variables")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(_Node):
    """A number: an index, or a tensor value of some dtype."""

    value: int | float
    type: str = INDEX

    @property
    def dtype(self) -> str:
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
        return INDEX


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Poly(_Node):
    """A sum of integer multiples of products of atoms: the canonical form of index arithmetic."""

    terms: tuple[tuple[Monomial, int], ...]

    @property
    def dtype(self) -> str:
        return INDEX

    def children(self) -> tuple[Expr, ...]:
        return tuple(atom for monomial, _ in self.terms for atom in monomial)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(_Node):
    """`floordiv` and `mod` of indices; `min`/`max` of either; `add sub mul div` of tensor values."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        return self.a.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.a, self.b)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Compare(_Node):
    """A condition: `lt`, `le`, `eq` or `ne` of two expressions of one dtype."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        return BOOL

    def children(self) -> tuple[Expr, ...]:
        return (self.a, self.b)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class And(_Node):
    """All of several conditions."""

    args: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        return BOOL

    def children(self) -> tuple[Expr, ...]:
        return self.args


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(_Node):
    """`a` where the condition holds, else `b`; only the chosen side is evaluated, so it may guard an access."""

    condition: Expr
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        return self.a.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.condition, self.a, self.b)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(_Node):
    """A value converted to another dtype (indices may become values, never the reverse)."""

    type: str
    a: Expr

    @property
    def dtype(self) -> str:
        return self.type

    def children(self) -> tuple[Expr, ...]:
        return (self.a,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(_Node):
    """A mathematical function of values: exp, log, tanh, erf, sigmoid, sqrt, rsqrt, abs, floor."""

    function: str
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        return self.args[0].dtype

    def children(self) -> tuple[Expr, ...]:
        return self.args


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Load(_Node):
    """One element of a buffer; buffers are known by name, their shapes live in the Program."""

    buffer: str
    indices: tuple[Expr, ...]
    type: str

    @property
    def dtype(self) -> str:
        return self.type

    def children(self) -> tuple[Expr, ...]:
        return self.indices


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
    """A tensor value; integers must be written for integer dtypes."""
    if dtype in FLOATS:
        return Const(float(value), dtype)
    if dtype == BOOL:
        return Const(int(bool(value)), dtype)
    if int(value) != value:
        raise IRError(f"{value!r} is not a whole number, but the expression has dtype {dtype}")
    return Const(int(value), dtype)


def knob(name: str) -> Var:
    """A symbol that a search replaces by an integer (a tile size, an unroll step)."""
    return Var(name, "knob")


def size(name: str) -> Var:
    """A symbol that stands for an extent known only when the kernel is called."""
    return Var(name, "size")


def value_of(e: Expr) -> int | None:
    """The integer that an index expression is, or None if it still holds symbols."""
    return int(e.value) if isinstance(e, Const) else None


# --- index arithmetic -------------------------------------------------------------------------------------------------


def _sort_key(e: Expr) -> tuple[int, str]:
    """Variables by name, then atoms by their text, which they remember: sums are put in order at every step."""
    try:
        return e._sort_key  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        key = (0, e.name) if isinstance(e, Var) else (1, repr(e))
        _set(e, "_sort_key", key)
        return key


def _mono_key(item: tuple[Monomial, int]) -> tuple[int, tuple[tuple[int, str], ...]]:
    monomial = item[0]
    return (-len(monomial), tuple(_sort_key(atom) for atom in monomial))


def poly(e: Expr) -> dict[Monomial, int]:
    """An index expression as {product of atoms: coefficient}; the empty product is the constant."""
    if isinstance(e, Const):
        return {(): int(e.value)} if e.value else {}
    if isinstance(e, Poly):
        return dict(e.terms)
    return {(e,): 1}


def from_poly(terms: Mapping[Monomial, int]) -> Expr:
    """The canonical expression of a polynomial."""
    left = [(m, c) for m, c in terms.items() if c]
    if not left:
        return ZERO
    if len(left) == 1:
        monomial, coefficient = left[0]
        if not monomial:
            return Const(coefficient)
        if coefficient == 1 and len(monomial) == 1:
            return monomial[0]
    else:
        left.sort(key=_mono_key)
    return Poly(tuple(left))


def _add_into(terms: dict[Monomial, int], e: Expr, scale: int) -> None:
    for monomial, coefficient in poly(e).items():
        terms[monomial] = terms.get(monomial, 0) + scale * coefficient


def mul_monomials(a: Monomial, b: Monomial) -> Monomial:
    return tuple(sorted(a + b, key=_sort_key)) if a and b else a or b


@lru_cache(maxsize=1 << 16)
def _index_arithmetic(op: str, a: Expr, b: Expr) -> Expr:
    """Sums, differences and products; the structures of a space ask for the same ones over and over."""
    if isinstance(a, Const) and isinstance(b, Const) and op != "div":
        x, y = int(a.value), int(b.value)
        return Const(x + y if op == "add" else x - y if op == "sub" else x * y)
    if op in ("add", "sub"):
        terms = poly(a)
        _add_into(terms, b, 1 if op == "add" else -1)
        return from_poly(terms)
    if op == "mul":
        terms = {}
        right = poly(b)
        for ma, ca in poly(a).items():
            for mb, cb in right.items():
                monomial = mul_monomials(ma, mb)
                terms[monomial] = terms.get(monomial, 0) + ca * cb
        return from_poly(terms)
    raise IRError(f"indices have no '/': write '{a} // {b}'")


def without(monomial: Monomial, atoms: Monomial) -> Monomial | None:
    """`monomial` divided by `atoms`, or None if it does not contain them."""
    rest = list(monomial)
    for atom in atoms:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def divide(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Quotient and rest with a = quotient * b + rest, taking out of `a` every term that `b` visibly divides."""
    divisor = poly(b)
    if len(divisor) != 1:
        return (ONE, ZERO) if a == b else (ZERO, a)
    ((atoms, coefficient),) = divisor.items()
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, c in poly(a).items():
        left = without(monomial, atoms)
        # only what is divided exactly: half of `56*h + w` taken out of its sum would no longer be recognised
        if left is None or (monomial and c % coefficient):
            rest[monomial] = c
            continue
        quotient[left] = c // coefficient
        rest[monomial] = c - c // coefficient * coefficient
    return from_poly(quotient), from_poly(rest)


def _check_divisor(a: Expr, b: Expr) -> None:
    if isinstance(b, Const) and b.value <= 0:
        raise IRError(f"cannot divide '{a}' by {b.value}: divisors are positive")


def floordiv(a: Expr, b: Expr) -> Expr:
    """a // b, with every term that b divides taken out: (4*x + y) // 4 = x + y // 4."""
    _check_divisor(a, b)
    if b == ONE:
        return a
    quotient, rest = divide(a, b)
    if rest == ZERO:
        return quotient
    if isinstance(rest, Const) and isinstance(b, Const):
        return quotient + Const(int(rest.value) // int(b.value))
    if isinstance(rest, Binary) and rest.op == "floordiv":
        return quotient + floordiv(rest.a, rest.b * b)
    return quotient + Binary("floordiv", rest, b)


def mod(a: Expr, b: Expr) -> Expr:
    """a % b, without the terms that b divides."""
    _check_divisor(a, b)
    if b == ONE:
        return ZERO
    _, rest = divide(a, b)
    if rest == ZERO or (isinstance(rest, Const) and isinstance(b, Const)):
        return Const(int(rest.value) % int(b.value)) if isinstance(b, Const) and isinstance(rest, Const) else ZERO
    return Binary("mod", rest, b)


def ceildiv(a: Like, b: Like) -> Expr:
    """a divided by b, rounded up."""
    a, b = index(a), index(b)
    quotient, rest = divide(a, b)
    return quotient if rest == ZERO else floordiv(a + b - 1, b)


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
    return _index_arithmetic(op, ea, eb) if ea.dtype == INDEX else Binary(op, ea, eb)


def minimum(a: Like, b: Like) -> Expr:
    """The smaller of two indices or values."""
    return extreme("min", a, b)


def maximum(a: Like, b: Like) -> Expr:
    """The larger of two indices or values."""
    return extreme("max", a, b)


def extreme(op: str, a: Like, b: Like) -> Expr:
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
    if ea.dtype == INDEX:
        gap = value_of(ea - eb)
        if gap is not None:
            return TRUE if {"lt": gap < 0, "le": gap <= 0, "eq": gap == 0, "ne": gap != 0}[op] else FALSE
    return Compare(op, ea, eb)


def all_of(conditions: Iterable[Expr]) -> Expr:
    """The conjunction of conditions; duplicates and truths drop out."""
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
    """The parts of a conjunction."""
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


CALLS = ("exp", "log", "tanh", "erf", "sigmoid", "sqrt", "rsqrt", "abs", "floor")


def call(function: str, *args: Expr) -> Expr:
    """A mathematical function of a floating-point value."""
    if function not in CALLS:
        raise IRError(f"unknown function '{function}'; known: {', '.join(CALLS)}")
    if len(args) != 1 or args[0].dtype not in FLOATS:
        got = ", ".join(f"'{a}' ({a.dtype})" for a in args)
        raise IRError(f"{function} takes one value of dtype {' or '.join(FLOATS)}, got {got}")
    return Call(function, args)


# --- walking and rewriting --------------------------------------------------------------------------------------------


def walk(e: Expr) -> Iterator[Expr]:
    """The expression and all its parts, outermost first."""
    stack = [e]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(top.children()))


def variables(e: Expr) -> frozenset[Var]:
    """All variables of an expression, which remembers them."""
    try:
        return e._variables  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        if isinstance(e, Var):
            found = frozenset((e,))
        else:
            parts = e.children()
            found = variables(parts[0]) if len(parts) == 1 else frozenset().union(*map(variables, parts))
        _set(e, "_variables", found)
        return found


def iterators(e: Expr) -> frozenset[Var]:
    """The iteration variables of an expression, which remembers them."""
    try:
        return e._iterators  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        found = frozenset(v for v in variables(e) if v.role == "iter")
        _set(e, "_iterators", found)
        return found


def loads(e: Expr) -> tuple[Load, ...]:
    """All buffer accesses of an expression, outermost first, which remembers them."""
    try:
        return e._loads  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        inside = tuple(ld for part in e.children() for ld in loads(part))
        found = (e, *inside) if isinstance(e, Load) else inside
        _set(e, "_loads", found)
        return found


Rewrite = Callable[[Expr], "Expr | None"]


def rebuild(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """The same expression with `f` applied to its children; index arithmetic normalises again."""
    if isinstance(e, (Const, Var)):
        return e
    if isinstance(e, Poly):
        return _rebuild_poly(e, f)
    if isinstance(e, Binary):
        return _rebuild_binary(e, f(e.a), f(e.b))
    if isinstance(e, Load):
        return Load(e.buffer, tuple(f(i) for i in e.indices), e.type)
    if isinstance(e, Compare):
        return compare(e.op, f(e.a), f(e.b))
    if isinstance(e, And):
        return all_of(f(c) for c in e.args)
    if isinstance(e, Select):
        condition = f(e.condition)
        if isinstance(condition, Const):
            return f(e.a) if condition.value else f(e.b)
        return Select(condition, f(e.a), f(e.b))
    if isinstance(e, Cast):
        return cast(f(e.a), e.type)
    if isinstance(e, Call):
        return Call(e.function, tuple(f(a) for a in e.args))
    raise IRError(f"not an expression: {e!r}")


def _rebuild_binary(e: Binary, a: Expr, b: Expr) -> Expr:
    if a is e.a and b is e.b:
        return e
    if e.op == "floordiv":
        return floordiv(a, b)
    if e.op == "mod":
        return mod(a, b)
    if e.op in ("min", "max"):
        return extreme(e.op, a, b)
    return Binary(e.op, a, b)


def _rebuild_poly(e: Poly, f: Callable[[Expr], Expr]) -> Expr:
    terms: dict[Monomial, int] = {}
    changed = False
    for monomial, coefficient in e.terms:
        new = [f(atom) for atom in monomial]
        if all(n is o for n, o in zip(new, monomial, strict=True)):
            terms[monomial] = terms.get(monomial, 0) + coefficient
            continue
        changed = True
        product: Expr = Const(coefficient)
        for atom in new:
            product = _index_arithmetic("mul", product, atom)
        _add_into(terms, product, 1)
    return from_poly(terms) if changed else e


def substitute(e: Expr, mapping: Mapping[Var, Expr]) -> Expr:
    """The expression with variables replaced."""
    return Substitution(mapping)(e)


class Substitution:
    """Replaces variables, remembering what it has seen: programs share most of their subexpressions."""

    def __init__(self, mapping: Mapping[Any, Expr]) -> None:
        self.mapping = mapping
        self._memo: dict[Expr, Expr] = dict(mapping)
        self._names = mapping.keys()

    def __call__(self, e: Expr) -> Expr:
        if self._names.isdisjoint(variables(e)):
            return e
        known = self._memo.get(e)
        if known is None:
            known = self._memo[e] = rebuild(e, self)
        return known


def transform(e: Expr, rewrite: Rewrite) -> Expr:
    """Rewrites bottom-up; `rewrite` returns the replacement, or None to keep what it is given."""
    new = rebuild(e, lambda child: transform(child, rewrite))
    replaced = rewrite(new)
    return new if replaced is None else replaced
