"""Index arithmetic keeps values and has one form per polynomial; values and conditions fold, and refuse nonsense."""

import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.errors import IRError
from searchlab.ir import call, cast, ceildiv, const, index, knob, maximum, minimum, select, size
from searchlab.ir.algebra import divide
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    And,
    Binary,
    Const,
    Expr,
    Load,
    Select,
    Var,
    all_of,
    compare,
    conditions,
)
from searchlab.ir.walk import loads, substitute, transform, variables, walk

I, J = Var("i"), Var("j")
T, N = knob("t"), size("n")
VARS = (I, J, T, N)
X = Load("X", (I,), "float32")
Y = Load("Y", (I,), "float32")
K = Load("K", (I,), "int32")


@dataclass(frozen=True)
class Both:
    """An index expression, and the same computation on Python integers."""

    expr: Expr
    run: Callable[[dict[str, int]], int]

    def __repr__(self) -> str:
        return repr(self.expr)


def leaf(v: Var) -> Both:
    return Both(v, lambda env: env[v.name])


def number(c: int) -> Both:
    return Both(index(c), lambda env: c)


OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "ceildiv": lambda a, b: ceildiv(a, b) if isinstance(a, Expr) else -(-a // b),
    "min": lambda a, b: minimum(a, b) if isinstance(a, Expr) else min(a, b),
    "max": lambda a, b: maximum(a, b) if isinstance(a, Expr) else max(a, b),
}


def apply(op: str, a: Both, b: Both) -> Both:
    f = OPERATIONS[op]
    return Both(f(a.expr, b.expr), lambda env: f(a.run(env), b.run(env)))


symbols = st.sampled_from([leaf(T), leaf(N), apply("*", leaf(T), number(4))])
positive = st.one_of(st.integers(1, 12).map(number), symbols)
leaves = st.one_of(st.sampled_from([leaf(v) for v in VARS]), st.integers(-20, 20).map(number))
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(apply, st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner),
        st.builds(apply, st.sampled_from(["//", "%", "ceildiv"]), inner, positive),
    ),
    max_leaves=8,
)
environments = st.fixed_dictionaries(
    {"i": st.integers(0, 30), "j": st.integers(0, 30), "t": st.integers(1, 9), "n": st.integers(1, 40)}
)


# --- index arithmetic -------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(expressions, environments)
def test_an_expression_has_the_value_of_the_same_python(both: Both, env: dict[str, int]) -> None:
    assert evaluate(both.expr, env) == both.run(env)


@settings(max_examples=150)
@given(expressions, environments)
def test_substituting_numbers_folds_to_the_value(both: Both, env: dict[str, int]) -> None:
    whole = substitute(both.expr, {v: index(env[v.name]) for v in VARS})
    assert whole == Const(both.run(env))


@settings(max_examples=150)
@given(expressions, expressions, environments)
def test_substitution_commutes_with_evaluation(both: Both, inner: Both, env: dict[str, int]) -> None:
    replaced = substitute(both.expr, {I: inner.expr, T: index(env["t"])})
    assert evaluate(replaced, env) == evaluate(both.expr, {**env, "i": evaluate(inner.expr, env)})


@settings(max_examples=100)
@given(expressions, expressions, expressions)
def test_equal_polynomials_are_equal_objects(a: Both, b: Both, c: Both) -> None:
    x, y, z = a.expr, b.expr, c.expr
    for left, right in [
        (x + y, y + x),
        (x * y, y * x),
        ((x + y) + z, x + (y + z)),
        ((x * y) * z, x * (y * z)),
        (x * (y + z), x * y + x * z),
        (x - y, -(y - x)),
        ((x + y) * (x - y), x * x - y * y),
        (x + y - y, x),
    ]:
        assert left == right and hash(left) == hash(right) and repr(left) == repr(right)


@settings(max_examples=200)
@given(expressions, positive)
def test_quotient_and_rest_make_the_whole(a: Both, b: Both) -> None:
    quotient, rest = divide(a.expr, b.expr)
    assert quotient * b.expr + rest == a.expr


@settings(max_examples=100)
@given(expressions)
def test_an_expression_survives_pickle(both: Both) -> None:
    again = pickle.loads(pickle.dumps(both.expr))
    assert again == both.expr and hash(again) == hash(both.expr)


def test_a_pickled_expression_is_equal_in_a_process_that_hashes_otherwise() -> None:
    e = (I * 4 + J) // T + minimum(I, N)
    hash(e)  # kept in the object, and must not travel
    code = f"""
import pickle
from searchlab.ir import knob, minimum, size
from searchlab.ir.expr import Var
e = pickle.loads({pickle.dumps(e)!r})
print(e == (Var("i") * 4 + Var("j")) // knob("t") + minimum(Var("i"), size("n")) and len({{e, e + 0}}) == 1)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_terms_that_divide_leave_the_quotient() -> None:
    assert (I * 4 + J) // 4 == I + J // 4
    assert (I * T + J) // T == I + J // T
    assert (I * T + J) % T == J % T
    assert (I * 12) // 4 == I * 3 and (I * 12) % 4 == ZERO
    assert (I // 3) // 5 == I // 15 and (I // T) // 2 == I // (T * 2)
    assert I // 1 == I and I % 1 == ZERO
    assert (T + 1) // (T + 1) == ONE
    assert (I * 4 + 9) // 4 == I + 2 and (I + 9) // 4 == (I + 1) // 4 + 2
    # taken out only where it divides: 56*h + w stays recognisable
    assert repr((I * 56 + J) // 48) == "(i*56 + j) // 48"


def test_ceildiv_of_what_divides_is_the_quotient() -> None:
    assert ceildiv(I * 8, 4) == I * 2 and ceildiv(N * T, T) == N
    assert ceildiv(7, 4) == index(2) and ceildiv(N, 4) == (N + 3) // 4


def test_bare_integers_fold() -> None:
    assert I - I == ZERO and I * 0 == ZERO and 2 + I == I + 2 and 3 - I == -I + 3 and 2 * I == I + I
    assert 7 // index(2) == index(3) and 7 % index(4) == index(3)
    assert evaluate(10 // T, {"t": 3}) == 3 and evaluate(10 % T, {"t": 3}) == 1


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (I * T + J * 2 - 3, "i*t + j*2 - 3"),
        ((I + 1) // 2 * 3, "((i + 1) // 2)*3"),
        (-I, "-i"),
        (I % (T * 2), "i % (t*2)"),
        (minimum(I, J + 1), "min(i, j + 1)"),
        ((I < J) & (J <= 4), "(i < j) and (j <= 4)"),
        (select(I < 3, X, 0.0), "select(i < 3, X[i], 0.0)"),
        ((X + Y) * X - Y / (X - Y), "(X[i] + Y[i]) * X[i] - Y[i] / (X[i] - Y[i])"),
        (X - (Y - X), "X[i] - (Y[i] - X[i])"),
        (cast(K, "float32") * 2, "float32(K[i]) * 2.0"),
        (call("exp", -X), "exp(0.0 - X[i])"),
    ],
)
def test_text_of_an_expression(e: Expr, text: str) -> None:
    assert repr(e) == text


# --- conditions, minimum, select --------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(expressions, expressions, st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]), environments)
def test_a_condition_has_the_truth_of_the_same_python(a: Both, b: Both, op: str, env: dict[str, int]) -> None:
    x, y = a.run(env), b.run(env)
    truth = {"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}[op]
    condition = compare(op, a.expr, b.expr)
    assert bool(evaluate(condition, env)) == truth
    assert substitute(condition, {v: index(env[v.name]) for v in VARS}) == (TRUE if truth else FALSE)


def test_conditions_fold_when_the_difference_is_known() -> None:
    assert (I < I + 1) == TRUE and (I + 1 <= I) == FALSE and (I > I) == FALSE and (I >= I) == TRUE
    assert (I + J).equals(J + I) == TRUE and compare("ne", I, I + 2) == TRUE
    assert isinstance(I < J, Expr) and (I < J) not in (TRUE, FALSE)


def test_conjunctions_drop_truths_and_duplicates() -> None:
    a, b, c = I < 3, J < 4, T <= 5
    assert all_of([]) == TRUE and all_of([a, TRUE]) == a and all_of([a, a]) == a
    assert all_of([a, FALSE, b]) == FALSE
    assert (a & b) & c == And((a, b, c)) and conditions(a & b) == (a, b)
    assert conditions(TRUE) == () and conditions(a) == (a,)


def test_minimum_and_maximum_fold_when_the_difference_is_known() -> None:
    assert minimum(I, I + 2) == I and maximum(I, I + 2) == I + 2
    assert minimum(3, 5) == index(3) and maximum(3, 5) == index(5) and minimum(I, I) == maximum(I, I) == I
    assert minimum(I, 3) == Binary("min", I, index(3))
    assert substitute(minimum(I, T), {I: index(7), T: index(5)}) == index(5)


def test_select_folds_when_the_condition_is_known() -> None:
    assert select(TRUE, X, Y) == X and select(FALSE, X, Y) == Y
    assert select(I < 3, X, Y) == Select(I < 3, X, Y)
    assert substitute(select(I < T, X, 0.0), {I: index(2), T: index(2)}) == const(0, "float32")
    # the side that is not taken is not even rewritten: it may be nonsense, here a division by zero
    guarded = select(T <= 1, cast(I, "float32"), cast(I // (T - 1), "float32"))
    assert substitute(guarded, {T: ONE}) == cast(I, "float32")


def test_bare_numbers_take_the_dtype_of_the_other_side() -> None:
    assert X + const(1.0, "float32") == (X + 1) and K + const(1, "int32") == (K + 1)
    assert const(1.0, "float32") / X == (1 / X) and maximum(K, 0) == maximum(K, const(0, "int32"))


def test_tensor_values_keep_the_order_they_were_written_in() -> None:
    assert X + Y != Y + X and (X + Y) + X != X + (Y + X) and const(0, "float32") != X * 0.0


def test_casts_of_constants_fold_and_casts_to_the_own_dtype_vanish() -> None:
    assert cast(3, "float32") == const(3.0, "float32") and cast(X, "float32") == X
    assert cast(const(2.7, "float64"), "int32") == const(2, "int32")
    assert cast(I, "int64").dtype == "int64" and cast(K, "float64").dtype == "float64"


# --- walking ----------------------------------------------------------------------------------------------------------


def test_walking_meets_every_part() -> None:
    e = select(I < T, X * call("exp", Y), cast(I * 2 + J, "float32"))
    assert variables(e) == {I, T, J}
    assert [ld.buffer for ld in loads(e)] == ["X", "Y"]
    assert next(iter(walk(e))) is e


def test_transform_rewrites_from_the_inside_out() -> None:
    e = select(I < 3, X + Y, 0.0)
    other = transform(e, lambda x: Load("Z", x.indices, x.type) if isinstance(x, Load) and x.buffer == "X" else None)
    assert repr(other) == "select(i < 3, Z[i] + Y[i], 0.0)"
    assert transform(e, lambda x: None) == e


def test_evaluate_takes_whole_arrays() -> None:
    i = np.arange(7)
    assert np.array_equal(evaluate((I * 3 + 1) % 4, {"i": i}), (i * 3 + 1) % 4)
    assert np.array_equal(evaluate((I < 5) & (I > 1), {"i": i}), (i < 5) & (i > 1))
    assert np.array_equal(evaluate(minimum(I, 4), {"i": i}), np.minimum(i, 4))


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: X + K, ["add", "float32", "int32", "cast("]),
        (lambda: X * I, ["mul", "float32", "index"]),
        (lambda: minimum(X, K), ["min", "float32", "int32"]),
        (lambda: X < K, ["lt", "float32", "int32"]),
        (lambda: select(I < 3, X, K), ["select", "float32", "int32"]),
        (lambda: select(I, X, Y), ["select", "'i' is not a condition"]),
        (lambda: bool(I < J), ["truth", "i < j", "select("]),
        (lambda: 1 if I else 2, ["truth", "'i'"]),
        (lambda: I // 0, ["divide 'i' by 0"]),
        (lambda: I % 0, ["divide 'i' by 0"]),
        (lambda: I // -2, ["by -2", "positive"]),
        (lambda: 5 % index(-3), ["by -3", "positive"]),
        (lambda: ceildiv(I, 0), ["divide", "by 0"]),
        (lambda: substitute(I // T, {T: ZERO}), ["divide 'i' by 0"]),
        (lambda: I / 2, ["'/'", "i // 2"]),
        (lambda: X // Y, ["expected an index", "float32"]),
        (lambda: I + 1.5, ["integer", "1.5"]),
        (lambda: I + True, ["integer", "True"]),
        (lambda: index("i"), ["integer", "'i'"]),
        (lambda: K + 1.5, ["1.5", "whole number", "int32"]),
        (lambda: cast(X, "float8"), ["float8", "known", "float32"]),
        (lambda: call("sin", X), ["sin", "known", "exp"]),
        (lambda: call("exp", K), ["exp", "float32 or float64", "int32"]),
        (lambda: call("exp", X, Y), ["exp takes one value"]),
        (lambda: call("exp"), ["exp takes one value"]),
        (lambda: evaluate(I + T, {"i": 3}), ["'t' has no value", "known: i"]),
        (lambda: evaluate(X, {"i": 3}), ["X[i]", "not an index expression"]),
    ],
)
def test_nonsense_is_refused_with_words(wrong: Callable[[], object], words: list[str]) -> None:
    with pytest.raises(IRError) as caught:
        wrong()
    for word in words:
        assert word in str(caught.value)


def test_constants_of_floating_point_may_be_infinite() -> None:
    assert const(-math.inf, "float32").value == -math.inf
