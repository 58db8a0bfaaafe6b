"""Facts are sound: bounds hold, proofs are true and simplification keeps values, checked by trying every value."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.ir import Facts, ceildiv, index, knob, maximum, minimum, select, size
from searchlab.ir.bounds import facts
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import FALSE, TRUE, ZERO, Expr, Load, Var, compare

I, J, K = Var("i"), Var("j"), Var("k")
T, S, N = knob("t"), knob("s"), size("n")
Env = dict[str, int]

# Extents as schedules make them: numbers, tiles, and quotients by tiles, some with what a perfect split assumes.
WORLDS = [
    facts({I: index(5), J: index(4), K: index(3)}),
    facts({I: 12 // T, J: T, K: index(2)}, [(index(12) % T).equals(0)]),
    facts({I: ceildiv(N, T), J: T, K: index(3)}),
    facts({I: T, J: S, K: index(2)}, [(T * S).equals(12)]),
    facts({I: N, J: minimum(T, 3), K: index(1)}),
    facts({I: 24 // (T * S), J: S, K: T}, [(index(24) % (T * S)).equals(0)]),
]


def environments(known: Facts) -> Iterator[Env]:
    """All values of variables, for several values of symbols, that agree with the facts."""
    for t, s, n in product((1, 2, 3, 4, 6), (1, 2, 3, 6), (1, 5, 7)):
        symbols = {"t": t, "s": s, "n": n}
        if all(evaluate(a, symbols) for a in known.assumptions):
            yield from _iterations(known, symbols)


def _iterations(known: Facts, symbols: Env) -> Iterator[Env]:
    extents = [int(evaluate(e, symbols)) for e in known.extents.values()]
    for values in product(*(sorted({0, 1, n // 2, n - 1} & set(range(n))) for n in extents)):
        yield {**symbols, **{v.name: x for v, x in zip(known.extents, values, strict=True)}}


def columns(rows: list[Env]) -> dict[str, np.ndarray]:
    """All environments at once: expressions are evaluated on arrays."""
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


CASES = [columns(list(environments(w))) for w in WORLDS]

positive = st.one_of(st.integers(1, 12).map(index), st.sampled_from([T, S, T * S, T * 4, N]))
leaves = st.one_of(st.sampled_from([I, J, K, T, S, N, I * T + J, I * 4 + J, J * 2 + K]), st.integers(-9, 9).map(index))
expressions = st.recursive(
    leaves,
    lambda e: st.one_of(
        st.builds(lambda op, a, b: op(a, b), st.sampled_from([minimum, maximum]), e, e),
        st.builds(lambda a, b: a + b, e, e),
        st.builds(lambda a, b: a - b, e, e),
        st.builds(lambda a, b: a * b, e, e),
        st.builds(lambda a, b: a // b, e, positive),
        st.builds(lambda a, b: a % b, e, positive),
    ),
    max_leaves=5,
)
numbered = st.integers(0, len(WORLDS) - 1)


@settings(max_examples=250)
@given(numbered, expressions)
def test_bounds_are_bounds(world: int, e: Expr) -> None:
    known = WORLDS[world]
    low, high = known.lower(e), known.upper(e)
    value = evaluate(e, CASES[world])
    assert np.all(evaluate(low, CASES[world]) <= value) and np.all(value <= evaluate(high, CASES[world])), (low, high)


@settings(max_examples=250)
@given(numbered, expressions)
def test_bounds_over_some_variables_hold_for_all_of_the_others(world: int, e: Expr) -> None:
    known = WORLDS[world]
    over = {J: known.extents[J]}
    low, high = known.lower(e, over), known.upper(e, over)
    value = evaluate(e, CASES[world])
    assert np.all(evaluate(low, CASES[world]) <= value) and np.all(value <= evaluate(high, CASES[world])), (low, high)


@settings(max_examples=400)
@given(numbered, expressions, expressions, st.sampled_from(["lt", "le", "eq", "ne"]))
def test_what_is_proved_is_true(world: int, a: Expr, b: Expr, op: str) -> None:
    condition = compare(op, a, b)
    decided = WORLDS[world].decide(condition)
    if WORLDS[world].proves(condition):
        assert decided == TRUE
    if decided in (TRUE, FALSE):
        assert np.all(evaluate(condition, CASES[world]) == (decided == TRUE))


@settings(max_examples=400)
@given(numbered, expressions)
def test_simplify_keeps_values(world: int, e: Expr) -> None:
    simple = WORLDS[world].simplify(e)
    assert np.all(evaluate(simple, CASES[world]) == evaluate(e, CASES[world])), simple


@settings(max_examples=150)
@given(numbered, expressions, expressions, st.sampled_from(["lt", "le", "eq", "ne"]))
def test_simplify_keeps_the_truth_of_conditions(world: int, a: Expr, b: Expr, op: str) -> None:
    condition = compare(op, a, b) & (I < 3)
    simple = WORLDS[world].simplify(condition)
    assert np.all(evaluate(simple, CASES[world]) == evaluate(condition, CASES[world])), simple


@settings(max_examples=150)
@given(numbered, expressions)
def test_reduce_keeps_values(world: int, e: Expr) -> None:
    reduced = WORLDS[world].reduce(e)
    assert np.all(evaluate(reduced, CASES[world]) == evaluate(e, CASES[world])), reduced


# --- what tiled loop nests ask, and must be shown ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "condition"),
    [
        (0, I * 4 + J < 20),
        (0, I * 4 + J - 3 <= 16),
        (1, I * T + J < 12),  # the main promise of a perfect split
        (2, J < T),
        (2, (I * T + J) % T < T),
        (3, I * S + J < 12),
        (3, T <= 12 * T),
        (4, I < N),
        (4, compare("le", ZERO, I)),
        (5, K + 1 <= T),
        (5, T * S >= 1),
        (0, compare("ne", I, 5)),
        (3, (T * S).equals(12)),
    ],
)
def test_shown(world: int, condition: Expr) -> None:
    assert WORLDS[world].proves(condition)


@pytest.mark.parametrize(
    ("world", "condition"),
    [(0, I < 4), (1, I * T + J < 11), (2, I * T + J < N), (3, T < S), (4, I < 3), (0, compare("eq", I, J))],
)
def test_not_shown_because_not_true(world: int, condition: Expr) -> None:
    assert not WORLDS[world].proves(condition)


@pytest.mark.parametrize(
    ("world", "e", "simple"),
    [
        (0, (I * 4 + J) // 4, I),
        (0, (I * 4 + J) % 4, J),
        (0, (I * 4 + J) // 8, I // 2),
        (0, (I * 4 + J) % 8, (I % 2) * 4 + J),
        (0, (I * 7 + J) // 3 * 3 + (I * 7 + J) % 3, I * 7 + J),
        (0, minimum(I, 9), I),
        (0, maximum(J - 4, I), I),
        (0, I < 5, TRUE),
        (0, I >= 5, FALSE),
        (1, (I * T + J) // T, I),
        (1, (I * T + J) % T, J),
        (1, index(12) % T, ZERO),
        (3, (I * S + J) // 12, ZERO),
        (0, (I < 5) & (J < 2), J < 2),
    ],
)
def test_simplified(world: int, e: Expr, simple: Expr) -> None:
    assert WORLDS[world].simplify(e) == simple


def test_simplify_reaches_into_values() -> None:
    load = Load("A", ((I * 4 + J) // 4, J), "float32")
    guarded = select(I < 5, load, 0.0)
    assert WORLDS[0].simplify(guarded) == Load("A", (I, J), "float32")


def test_bounds_of_simple_indices_are_exact() -> None:
    known = WORLDS[0]
    assert (known.lower(I * 4 - J), known.upper(I * 4 - J)) == (index(-3), index(16))
    assert (known.lower((I * 4 + J) // 3), known.upper((I * 4 + J) // 3)) == (index(0), index(6))
    assert (known.lower(I % 7), known.upper(I % 7)) == (index(0), index(4))
    assert known.upper(I * T + J, {J: index(4)}) == I * T + 3


def test_assumed_products_are_replaced() -> None:
    assert WORLDS[3].reduce(T * S * I) == I * 12
    assert WORLDS[1].reduce(12 // T * T) == index(12)
    assert WORLDS[0].reduce(T * S) == T * S


def test_having_adds_extents() -> None:
    m = Var("m")
    assert not WORLDS[0].proves(m < 3) and WORLDS[0].having({m: index(3)}).proves(m < 3)
    assert WORLDS[0].having({m: index(3)}).proves(I < 5)
