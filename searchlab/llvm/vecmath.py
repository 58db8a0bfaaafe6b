"""Vector mathematics as LLVM IR text: polynomials over fused multiply-adds, so that no loop ever calls libm.

Largest errors in units in the last place, on targets with fused multiply-add (a quarter more elsewhere):

| function | float32 | float64 | limits                                                                    |
|----------|---------|---------|---------------------------------------------------------------------------|
| exp      | 0.95    | 0.95    | inf above the range; 0 where the result would be subnormal                |
| log      | 0.95    | 0.95    | -inf at 0, nan below; subnormal arguments are treated like any other      |
| tanh     | 2.5     | 2.5     | tiny arguments keep their relative accuracy; large ones give exactly 1    |
| erf      | 2       | 2       | as tanh                                                                   |
| sigmoid  | 2.5     | 2.5     | exactly 0 below -88.7 (float32), -709.7 (float64); 1 for large arguments  |
| rsqrt    | 1.5     | 1.5     | 1 / sqrt(x): inf at 0, nan below                                          |
| sqrt     | 0.5     | 0.5     | nan below 0                                                               |
| abs      | exact   | exact   |                                                                           |
| floor    | exact   | exact   |                                                                           |
| round    | exact   | exact   | to the nearest integer, ties to even                                      |

NaN gives NaN everywhere. The coefficients come from tools/fit_vecmath.py. Power is left out: exp(y log x) loses up to
seven bits, and an exact one costs several times as much.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from searchlab.errors import BuildError

_INF, _NAN = float("inf"), float("nan")


class Emitter(Protocol):
    """Where instructions go: the body of one LLVM function, inside one module."""

    def let(self, rhs: str) -> str:
        """Append `%name = rhs` and return the new `%name`."""

    def declare(self, line: str) -> None:
        """Add a `declare` line to the module unless it is there already."""


def expand(name: str, out: Emitter, dtype: str, lanes: int, args: Sequence[str]) -> str:
    """Emit `name(*args)` on vectors of `lanes` values of `dtype` (a scalar for one lane); the name of the result."""
    if name not in _EXPANSIONS:
        raise BuildError(f"unknown function {name!r}; known: {', '.join(FUNCTIONS)}")
    if dtype not in _FORMATS:
        raise BuildError(f"{name}: no expansion for {dtype}; known: {', '.join(_FORMATS)}")
    if len(args) != FUNCTIONS[name]:
        raise BuildError(f"{name} takes {FUNCTIONS[name]} argument, got {len(args)}")
    return _EXPANSIONS[name](_Ops(out, _FORMATS[dtype], lanes), *args)


@dataclass(frozen=True, slots=True)
class _Format:
    """A floating-point format with the constants and fitted polynomials (lowest power first) that belong to it.

    `ln2` is split so that its first part times any exponent is exact. `exp_range` is where exp is a normal number.
    """

    llvm: str
    bits: int
    mantissa: int
    bias: int
    smallest: float
    ln2: tuple[float, float]
    exp_range: tuple[float, float]
    exp_tail: tuple[float, ...]
    log_tail: tuple[float, ...]
    erf_slope: tuple[float, ...]
    tanh_limit: float
    erf_limit: float

    def pattern(self, value: float) -> int:
        """The bits of `value` as an unsigned integer."""
        as_float, as_int = ("<f", "<I") if self.bits == 32 else ("<d", "<Q")
        number: int = struct.unpack(as_int, struct.pack(as_float, value))[0]
        return number


_FORMATS = {
    "float32": _Format(
        llvm="float", bits=32, mantissa=23, bias=127, smallest=2.0**-126,
        ln2=(0.693145751953125, 1.4286068203094173e-06),
        exp_range=(-87.33654, 88.72283),
        exp_tail=(
            0.4999999701976776, 0.1666654646396637, 0.04166743531823158, 0.00836627185344696, 0.0013870688853785396,
        ),
        log_tail=(
            0.3333333134651184, -0.2500081956386566, 0.2000124156475067, -0.1662341058254242, 0.14201588928699493,
            -0.13159604370594025, 0.12762103974819183, -0.07636275142431259,
        ),
        erf_slope=(
            0.12837916612625122, 0.6366195678710938, 0.10277630388736725, -0.019147826358675957,
            -0.00016948430857155472, 0.001675638253800571, -0.000637330231256783, 0.00011884800187544897,
            -9.385968041897286e-06,
        ),
        tanh_limit=10.0,
        erf_limit=3.93,
    ),
    "float64": _Format(
        llvm="double", bits=64, mantissa=52, bias=1023, smallest=2.0**-1022,
        ln2=(0.6931471805598903, 5.497923018708371e-14),
        exp_range=(-708.396418532264, 709.7827128933838),
        exp_tail=(
            0.5000000000000006, 0.1666666666666664, 0.04166666666657571, 0.008333333333364614, 0.00138888889316324,
            0.0001984126976212076, 2.4801505285864055e-05, 2.755737560479512e-06, 2.7626025414167874e-07,
            2.506240575373347e-08,
        ),
        log_tail=(
            0.3333333333333314, -0.24999999999987993, 0.2000000000006674, -0.1666666666982295, 0.1428571428008595,
            -0.1249999969164373, 0.11111111147751716, -0.1000001519907906, 0.09090923922365345, -0.0833291368720548,
            0.07691530044383135, -0.07149437793476653, 0.06684585889496147, -0.0619668917637381,
            0.05668402663382268, -0.05677756762285385, 0.06503404433507884, -0.05981699519765725,
            0.026151574503234083,
        ),
        erf_slope=(
            0.12837916709551256, 0.6366197723675898, 0.10277260330135772, -0.019128446993818122,
            -0.00020919484688083732, 0.0016962076262191956, -0.000590132245238118, 2.5903937862771073e-05,
            6.442173922650326e-05, -2.9577841691386525e-05, 3.1725609987978933e-06, 3.129948814687298e-06,
            -2.0346991580607817e-06, 5.689942956898601e-07, -1.0847254406489835e-08, -6.609461738897142e-08,
            3.4705144996546874e-08, -1.080490666057136e-08, 2.366938221952003e-09, -3.7706280752016696e-10,
            4.312984799396008e-11, -3.3730590819864495e-12, 1.6190321898502972e-13, -3.601385658708715e-15,
        ),
        tanh_limit=20.0,
        erf_limit=5.95,
    ),
}  # fmt: skip


class _Ops:
    """Instructions on values of one format and lane count, by short names."""

    def __init__(self, out: Emitter, fmt: _Format, lanes: int) -> None:
        self.out, self.fmt, self.lanes = out, fmt, lanes
        self.float = self._vector(fmt.llvm)
        self.int = self._vector(f"i{fmt.bits}")
        self.bool = self._vector("i1")
        self.suffix = f"f{fmt.bits}" if lanes == 1 else f"v{lanes}f{fmt.bits}"

    def _vector(self, element: str) -> str:
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def const(self, value: float) -> str:
        """A floating-point constant in every lane, rounded to the format. LLVM writes both formats with 64 bits."""
        rounded = struct.unpack("<f", struct.pack("<f", value))[0] if self.fmt.bits == 32 else value
        digits = f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
        return digits if self.lanes == 1 else f"splat ({self.fmt.llvm} {digits})"

    def const_int(self, value: int) -> str:
        """An integer constant in every lane."""
        return str(value) if self.lanes == 1 else f"splat (i{self.fmt.bits} {value})"

    def arith(self, op: str, a: str, b: str) -> str:
        """A floating-point instruction of two operands."""
        return self.out.let(f"{op} {self.float} {a}, {b}")

    def integer(self, op: str, a: str, b: int) -> str:
        """An integer instruction with a constant second operand."""
        return self.out.let(f"{op} {self.int} {a}, {self.const_int(b)}")

    def intrinsic(self, name: str, *args: str) -> str:
        """A call LLVM replaces by one or few instructions."""
        self.out.declare(f"declare {self.float} @llvm.{name}.{self.suffix}({', '.join([self.float] * len(args))})")
        operands = ", ".join(f"{self.float} {arg}" for arg in args)
        return self.out.let(f"call {self.float} @llvm.{name}.{self.suffix}({operands})")

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c. Unlike llvm.fma it becomes two instructions, not a libm call, where the CPU has no such one."""
        return self.intrinsic("fmuladd", a, b, c)

    def choose(self, predicate: str, a: str, b: str, then: str, other: str) -> str:
        """Lane by lane `then` where the comparison of `a` and `b` holds, else `other`."""
        mask = self.out.let(f"fcmp {predicate} {self.float} {a}, {b}")
        return self.out.let(f"select {self.bool} {mask}, {self.float} {then}, {self.float} {other}")

    def to_bits(self, a: str) -> str:
        """The same bits as integers."""
        return self.out.let(f"bitcast {self.float} {a} to {self.int}")

    def from_bits(self, a: str) -> str:
        """The same bits as floating-point numbers."""
        return self.out.let(f"bitcast {self.int} {a} to {self.float}")

    def poly(self, coefficients: Sequence[float], x: str) -> str:
        """Horner's rule, lowest power first."""
        value = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            value = self.fma(value, x, self.const(coefficient))
        return value


def _reduce(v: _Ops, x: str) -> tuple[str, str]:
    """x = n ln 2 + r with |r| <= ln(2) / 2: the exponent bits of 2^n (n shifted into place), and r."""
    # Adding 1.5 * 2^mantissa rounds to an integer and leaves that integer in the low bits: no conversion is needed.
    magic = v.const(1.5 * 2.0**v.fmt.mantissa)
    shifted = v.fma(x, v.const(1.4426950408889634), magic)
    n = v.arith("fsub", shifted, magic)
    high, low = v.fmt.ln2
    r = v.fma(n, v.const(-low), v.fma(n, v.const(-high), x))
    return v.integer("shl", v.to_bits(shifted), v.fmt.mantissa), r


def _exp(v: _Ops, x: str) -> str:
    exponent, r = _reduce(v, x)
    one = v.const(1.0)
    value = v.fma(v.fma(v.poly(v.fmt.exp_tail, r), r, one), r, one)
    scaled = v.from_bits(v.out.let(f"add {v.int} {v.to_bits(value)}, {exponent}"))
    lowest, highest = v.fmt.exp_range
    # The sum is inf for what is too large and NaN for NaN, whose bits the integer addition may have spoiled.
    above = v.choose("ugt", x, v.const(highest), v.arith("fadd", x, v.const(_INF)), scaled)
    return v.choose("olt", x, v.const(lowest), v.const(0.0), above)


def _expm1(v: _Ops, x: str) -> str:
    """exp(x) - 1 with full relative accuracy near 0, for |x| well inside the range of exp."""
    exponent, r = _reduce(v, x)
    value = v.fma(v.arith("fmul", r, r), v.poly(v.fmt.exp_tail, r), r)
    scale = v.from_bits(v.integer("add", exponent, v.fmt.bias << v.fmt.mantissa))
    return v.fma(scale, value, v.arith("fadd", scale, v.const(-1.0)))


def _clamped_abs(v: _Ops, x: str, limit: float) -> str:
    magnitude = v.intrinsic("fabs", x)
    return v.choose("ogt", magnitude, v.const(limit), v.const(limit), magnitude)


def _tanh(v: _Ops, x: str) -> str:
    """With e = exp(2|x|) - 1, tanh |x| = e / (e + 2)."""
    magnitude = _clamped_abs(v, x, v.fmt.tanh_limit)
    e = _expm1(v, v.arith("fadd", magnitude, magnitude))
    return v.intrinsic("copysign", v.arith("fdiv", e, v.arith("fadd", e, v.const(2.0))), x)


def _erf(v: _Ops, x: str) -> str:
    """-ln erfc(x) is smooth on the whole half-line: one polynomial, then 1 - exp of its negative."""
    magnitude = _clamped_abs(v, x, v.fmt.erf_limit)
    exponent = v.fma(magnitude, v.poly(v.fmt.erf_slope, magnitude), magnitude)
    # copysign drops the sign of exp(...) - 1, which is never positive.
    return v.intrinsic("copysign", _expm1(v, v.out.let(f"fneg {v.float} {exponent}")), x)


def _sigmoid(v: _Ops, x: str) -> str:
    e = _exp(v, v.out.let(f"fneg {v.float} {x}"))
    return v.arith("fdiv", v.const(1.0), v.arith("fadd", e, v.const(1.0)))


def _log(v: _Ops, x: str) -> str:
    """x = 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2); log x = k ln 2 + f - f^2/2 + f^3 Q(f)."""
    k, f = _split(v, x)
    high, low = v.fmt.ln2
    tail = v.fma(f, v.poly(v.fmt.log_tail, f), v.const(-0.5))
    square = v.arith("fmul", f, f)
    small = v.fma(k, v.const(low), v.arith("fmul", square, tail))
    value = v.fma(k, v.const(high), v.arith("fadd", f, small))
    value = v.choose("oeq", x, v.const(_INF), x, value)
    value = v.choose("oeq", x, v.const(0.0), v.const(-_INF), value)
    return v.choose("ult", x, v.const(0.0), v.const(_NAN), value)


def _split(v: _Ops, x: str) -> tuple[str, str]:
    """k and f of `_log`, for any positive finite x."""
    fmt, lift = v.fmt, v.fmt.mantissa + 2
    smallest = v.const(fmt.smallest)
    normal = v.choose("olt", x, smallest, v.arith("fmul", x, v.const(2.0**lift)), x)
    root = fmt.pattern(0.5**0.5)
    moved = v.integer("add", v.to_bits(normal), fmt.pattern(1.0) - root)
    biased = v.integer("lshr", moved, fmt.mantissa)
    # The exponent becomes a float by way of the low bits of 2^mantissa: AVX2 cannot convert 64-bit integers.
    anchor = 2.0**fmt.mantissa
    k_biased = v.from_bits(v.integer("or", biased, fmt.pattern(anchor)))
    offset = v.choose("olt", x, smallest, v.const(anchor + fmt.bias + lift), v.const(anchor + fmt.bias))
    fraction = v.integer("add", v.integer("and", moved, (1 << fmt.mantissa) - 1), root)
    return v.arith("fsub", k_biased, offset), v.arith("fadd", v.from_bits(fraction), v.const(-1.0))


def _rsqrt(v: _Ops, x: str) -> str:
    return v.arith("fdiv", v.const(1.0), v.intrinsic("sqrt", x))


_EXPANSIONS: dict[str, Callable[..., str]] = {
    "exp": _exp,
    "log": _log,
    "tanh": _tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "sqrt": lambda v, x: v.intrinsic("sqrt", x),
    "rsqrt": _rsqrt,
    "abs": lambda v, x: v.intrinsic("fabs", x),
    "floor": lambda v, x: v.intrinsic("floor", x),
    "round": lambda v, x: v.intrinsic("roundeven", x),
}

# Every function `expand` knows, with its number of arguments.
FUNCTIONS: dict[str, int] = dict.fromkeys(_EXPANSIONS, 1)
