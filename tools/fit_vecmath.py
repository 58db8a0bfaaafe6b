"""Fits the polynomials of searchlab/llvm/vecmath.py and prints them as Python tuples, lowest power first.

    pip install mpmath && python tools/fit_vecmath.py      (half a minute)

Every fit is a minimax fit (Remez exchange on a dense grid, 60 digits) of the error the final function sees, not of the
polynomial itself. Coefficients are rounded to the working precision one by one, from the constant term up, and the
ones above are refitted each time, so that rounding costs almost nothing. The printed error is relative and leaves
out the rounding of the evaluation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpmath import mp, mpf  # type: ignore[import-untyped]

mp.dps = 60
GRID = 600
ROUNDS = 40

Function = Callable[[mpf], mpf]


@dataclass(frozen=True, slots=True)
class Fit:
    """Approximate `function` on [low, high] by a polynomial so that |weight * (function - polynomial)| is smallest."""

    name: str
    function: Function
    weight: Function
    low: mpf
    high: mpf
    degrees: dict[str, int]


def exp_tail(r: mpf) -> mpf:
    """T in exp(r) = 1 + r + r^2 T(r)."""
    return sum(r**k / mp.factorial(k + 2) for k in range(40))


def log_tail(f: mpf) -> mpf:
    """Q in log(1 + f) = f - f^2/2 + f^3 Q(f)."""
    return sum((-f) ** k / (k + 3) for k in range(400)) if abs(f) < mpf("0.1") else (mp.log1p(f) - f + f * f / 2) / f**3


def erfc_slope(x: mpf) -> mpf:
    """G in erfc(x) = exp(-(x + x G(x)))."""
    return -mp.log(mp.erfc(x)) / x - 1


HALF_LN2 = mp.log(2) / 2 * mpf("1.001")
FITS = (
    Fit("EXP", exp_tail, lambda r: r * r / abs(mp.expm1(r)), -HALF_LN2, HALF_LN2, {"float32": 4, "float64": 9}),
    Fit("LOG", log_tail, lambda f: f**3 / mp.log1p(f), mp.sqrt(0.5) - 1, mp.sqrt(2) - 1, {"float32": 7, "float64": 18}),
    Fit("ERF", erfc_slope, lambda x: x * mp.erfc(x) / mp.erf(x), mpf(0), mpf("3.93"), {"float32": 8}),
    Fit("ERF", erfc_slope, lambda x: x * mp.erfc(x) / mp.erf(x), mpf(0), mpf("5.95"), {"float64": 23}),
)


def chebyshev_grid(low: mpf, high: mpf, count: int) -> list[mpf]:
    """Points inside [low, high], dense at the ends, where minimax errors move fastest; never exactly zero."""
    middle, half = (low + high) / 2, (high - low) / 2
    points = (middle - half * mp.cos(mp.pi * (k + mpf("0.5")) / count) for k in range(count))
    return [x for x in points if x != 0]


def remez(xs: Sequence[mpf], values: Sequence[mpf], weights: Sequence[mpf], degree: int) -> tuple[list[mpf], mpf]:
    """Coefficients of the minimax polynomial of `degree` on the grid, and the error it reaches."""
    count = degree + 2
    reference = [round((k + 0.5) * len(xs) / count) for k in range(count)]
    best: tuple[list[mpf], mpf] = ([], mp.inf)
    for _ in range(ROUNDS):
        rows = [[xs[i] ** k for k in range(degree + 1)] + [(-1) ** j / weights[i]] for j, i in enumerate(reference)]
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix([values[i] for i in reference]))
        coefficients = [solution[k] for k in range(degree + 1)]
        errors = [w * (v - mp.polyval(coefficients[::-1], x)) for x, v, w in zip(xs, values, weights, strict=True)]
        worst = max(map(abs, errors))
        best = min(best, (coefficients, worst), key=lambda pair: pair[1])
        if worst <= abs(solution[degree + 1]) * mpf("1.001"):
            break
        reference = exchange(errors, count)
    return best


def exchange(errors: Sequence[mpf], count: int) -> list[int]:
    """`count` extrema of alternating sign: the best of each run of equal signs, without the least of them."""
    peaks: list[int] = []
    for i, error in enumerate(errors):
        if not peaks or error * errors[peaks[-1]] < 0:
            peaks.append(i)
        elif abs(error) > abs(errors[peaks[-1]]):
            peaks[-1] = i
    if len(peaks) < count:
        raise ArithmeticError("the error alternates too rarely: lower the degree")
    while len(peaks) > count:
        sizes = [abs(errors[i]) for i in peaks]
        least = sizes.index(min(sizes))
        if least in (0, len(peaks) - 1) or len(peaks) == count + 1:
            del peaks[0 if sizes[0] < sizes[-1] else -1]
        else:
            neighbour = least if sizes[least + 1] < sizes[least - 1] else least - 1
            del peaks[neighbour : neighbour + 2]
    return peaks


def rounded(value: mpf, dtype: str) -> mpf:
    """`value` rounded to the nearest number of `dtype`."""
    code = {"float32": "f", "float64": "d"}[dtype]
    return mpf(struct.unpack(code, struct.pack(code, float(value)))[0])


def fit(task: Fit, dtype: str) -> tuple[list[mpf], mpf]:
    """Rounded coefficients and the relative error they reach."""
    xs = chebyshev_grid(task.low, task.high, GRID)
    values, weights = [task.function(x) for x in xs], [abs(task.weight(x)) for x in xs]
    degree, done = task.degrees[dtype], []
    rest, powers = values, weights
    for k in range(degree + 1):
        coefficients, _ = remez(xs, rest, powers, degree - k)
        done.append(rounded(coefficients[0], dtype))
        rest = [(v - done[-1]) / x for v, x in zip(rest, xs, strict=True)]
        powers = [w * abs(x) for w, x in zip(powers, xs, strict=True)]
    error = max(w * abs(v - mp.polyval(done[::-1], x)) for x, v, w in zip(xs, values, weights, strict=True))
    return done, error


def split_ln2(bits: int) -> tuple[float, float]:
    """ln 2 as a sum: `high` has so few bits that its product with any exponent is exact, `low` is the remainder."""
    high = mp.nint(mp.log(2) * 2**bits) / 2**bits
    return float(high), float(mp.log(2) - high)


def main() -> None:
    """Print the constants, then every polynomial with its error."""
    print(f"LN2 float32: {split_ln2(15)}\nLN2 float64: {split_ln2(42)}\n", flush=True)
    for task in FITS:
        for dtype in task.degrees:
            coefficients, error = fit(task, dtype)
            digits = ", ".join(repr(float(c)) for c in coefficients)
            print(f"{task.name} {dtype}: relative error {mp.nstr(error, 3)}\n    ({digits})\n", flush=True)


if __name__ == "__main__":
    main()
