"""Index arithmetic in a canonical form: polynomials over variables and indivisible atoms such as `x // b`.

Equal indices therefore compare equal, and integers are folded as soon as they replace symbols.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from searchlab.errors import IRError
from searchlab.ir.expr import ONE, ZERO, Binary, Const, Expr, Like, Monomial, Poly, Var, index, layers


def _sort_key(e: Expr) -> tuple[int, str]:
    """Variables sort by name, then atoms by their text; the key is cached because every operation sorts its terms."""
    try:
        return e._sort_key  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        key = (0, e.name) if isinstance(e, Var) else (1, repr(e))
        object.__setattr__(e, "_sort_key", key)
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


def solvable(e: Expr) -> tuple[Var, int, int] | None:
    """The size that an extent determines when it is known: (size, scale, offset) for scale * size + offset."""
    terms = dict(poly(e))
    offset = terms.pop((), 0)
    if len(terms) != 1:
        return None
    (((atom, *others), scale),) = terms.items()
    if others or scale < 1 or not isinstance(atom, Var) or atom.role != "size":
        return None
    return atom, scale, offset


def from_poly(terms: Mapping[Monomial, int]) -> Expr:
    """The canonical expression for a polynomial."""
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


def add_into(terms: dict[Monomial, int], e: Expr, scale: int) -> None:
    """Adds a multiple of an expression to a polynomial."""
    for monomial, coefficient in poly(e).items():
        terms[monomial] = terms.get(monomial, 0) + scale * coefficient


def mul_monomials(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials."""
    return tuple(sorted(a + b, key=_sort_key)) if a and b else a or b


@lru_cache(maxsize=1 << 16)
def arithmetic(op: str, a: Expr, b: Expr) -> Expr:
    """Sums, differences and products, memoised: the sketches of a space request the same ones repeatedly."""
    if isinstance(a, Const) and isinstance(b, Const) and op != "div":
        x, y = int(a.value), int(b.value)
        return Const(x + y if op == "add" else x - y if op == "sub" else x * y)
    if op in ("add", "sub"):
        terms = poly(a)
        add_into(terms, b, 1 if op == "add" else -1)
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
    """Quotient and remainder with a = quotient * b + remainder; terms of `a` that `b` visibly divides are extracted."""
    divisor = poly(b)
    if len(divisor) != 1:
        return (ONE, ZERO) if a == b else (ZERO, a)
    ((atoms, coefficient),) = divisor.items()
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, c in poly(a).items():
        left = without(monomial, atoms)
        # only exactly divisible terms: splitting the first term of `56*h + w` would make the sum unrecognisable
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
    """a // b, with every term that b divides extracted: (4*x + y) // 4 = x + y // 4."""
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


layers.arithmetic, layers.floordiv, layers.mod = arithmetic, floordiv, mod


def flat_index(indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr:
    """The row-major position of an element; a single index into a multi-dimensional buffer is flat already."""
    if len(indices) == 1:
        return indices[0]
    total: Expr = ZERO
    for i, extent in zip(indices, shape, strict=True):
        total = total * extent + i
    return total


def divides(number: int, shape: tuple[Expr, ...]) -> bool:
    """Whether a number certainly divides the count of elements, whatever run-time sizes are."""
    count: Expr = ONE
    for extent in shape:
        count = count * extent
    return not any(c % number for c in poly(count).values())
