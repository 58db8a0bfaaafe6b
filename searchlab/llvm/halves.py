"""float16 and bfloat16 as LLVM IR: their bits are widened to float32, and float32 is rounded to nearest even.

Where the CPU converts float16 itself (F16C), LLVM's conversions become its instructions.  Everything else is integer
arithmetic, for scalars and vectors alike, because LLVM would call a library.  The conversions of AVX512-BF16 are not
used: they turn subnormal numbers into zeros.  A NaN stays a NaN, whatever its bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.dtype import BFLOAT16, HALVES
from searchlab.errors import BuildError
from searchlab.llvm.vecmath import Emitter
from searchlab.targets import CpuTarget, Target

_ONE_BELOW_HALF = 0x7FFF  # with the lowest kept bit added: below half a unit rounds down, a tie to even
_INFINITY, _SIGN = 0x7F800000, 0x80000000  # of float32


@dataclass(frozen=True, slots=True)
class Halves:
    """Writes conversions into a function, of one value or of all lanes of a vector."""

    out: Emitter
    instructions: bool  # whether the CPU converts float16

    @staticmethod
    def of(out: Emitter, target: Target) -> Halves:
        """The conversions for a machine: all but some x86 CPUs have instructions for them."""
        old = isinstance(target, CpuTarget) and target.arch == "x86_64" and "f16c" not in target.enabled_features()
        return Halves(out, not old)

    def widen(self, dtype: str, text: str, lanes: int) -> str:
        """The float32 value of these bits."""
        ops = _Words(self.out, lanes)
        if dtype == BFLOAT16:
            return ops.as_float(ops.integer("shl", ops.extended(text), 16))
        _check(dtype)
        if self.instructions:
            half = self.out.let(f"bitcast {ops.vector('i16')} {text} to {ops.vector('half')}")
            return self.out.let(f"fpext {ops.vector('half')} {half} to {ops.vector('float')}")
        return _from_float16(ops, text)

    def narrow(self, dtype: str, text: str, lanes: int) -> str:
        """The bits of a float32 value rounded to the type."""
        ops = _Words(self.out, lanes)
        if dtype == BFLOAT16:
            return _to_bfloat16(ops, text)
        _check(dtype)
        if self.instructions:
            half = self.out.let(f"fptrunc {ops.vector('float')} {text} to {ops.vector('half')}")
            return self.out.let(f"bitcast {ops.vector('half')} {half} to {ops.vector('i16')}")
        return _to_float16(ops, text)


def _check(dtype: str) -> None:
    if dtype not in HALVES:
        raise BuildError(f"{dtype} is not a float of 16 bits; these are {', '.join(HALVES)}")


@dataclass(frozen=True, slots=True)
class _Words:
    """Instructions on 32-bit lanes, by short names."""

    out: Emitter
    lanes: int

    def vector(self, element: str) -> str:
        """The type of all lanes."""
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def const(self, value: int) -> str:
        """An integer, given without a sign, in every lane."""
        signed = value - (1 << 32) if value >= _SIGN else value
        return str(signed) if self.lanes == 1 else f"splat (i32 {signed})"

    def integer(self, op: str, a: str, b: int | str) -> str:
        """An integer instruction; the second operand may be a number."""
        return self.out.let(f"{op} {self.vector('i32')} {a}, {self.const(b) if isinstance(b, int) else b}")

    def extended(self, bits: str) -> str:
        """16 bits as 32."""
        return self.out.let(f"zext {self.vector('i16')} {bits} to {self.vector('i32')}")

    def shortened(self, bits: str) -> str:
        """The lower 16 of 32 bits."""
        return self.out.let(f"trunc {self.vector('i32')} {bits} to {self.vector('i16')}")

    def as_float(self, bits: str) -> str:
        """The same bits as a number."""
        return self.out.let(f"bitcast {self.vector('i32')} {bits} to {self.vector('float')}")

    def as_bits(self, number: str) -> str:
        """The same number as bits."""
        return self.out.let(f"bitcast {self.vector('float')} {number} to {self.vector('i32')}")

    def where(self, test: str, a: str, b: int, then: str, other: str) -> str:
        """Lane by lane `then` where the unsigned comparison of `a` and `b` holds, else `other`."""
        type_ = self.vector("i32")
        mask = self.out.let(f"icmp {test} {type_} {a}, {self.const(b)}")
        return self.out.let(f"select {self.vector('i1')} {mask}, {type_} {then}, {type_} {other}")


def _to_bfloat16(v: _Words, number: str) -> str:
    bits = v.as_bits(number)
    high = v.integer("lshr", bits, 16)
    carry = v.integer("add", v.integer("and", high, 1), _ONE_BELOW_HALF)
    even = v.integer("lshr", v.integer("add", bits, carry), 16)
    quiet = v.integer("or", high, 0x40)  # rounding up could turn a NaN into an infinity or a zero
    return v.shortened(v.where("ugt", v.integer("and", bits, _SIGN - 1), _INFINITY, quiet, even))


def _from_float16(v: _Words, bits: str) -> str:
    """The exponents differ by 112, which one exact multiplication makes up for, of subnormal numbers too."""
    wide = v.extended(bits)
    magnitude = v.integer("shl", v.integer("and", wide, 0x7FFF), 13)
    lift = v.as_float(v.const((127 + 112) << 23))
    scaled = v.as_bits(v.out.let(f"fmul {v.vector('float')} {v.as_float(magnitude)}, {lift}"))
    whole = v.where("uge", magnitude, 0x7C00 << 13, v.integer("or", scaled, _INFINITY), scaled)
    sign = v.integer("shl", v.integer("and", wide, 0x8000), 16)
    return v.as_float(v.integer("or", whole, sign))


def _to_float16(v: _Words, number: str) -> str:
    """Normal numbers round by a carry; subnormal ones by an addition whose lowest bit is that of float16."""
    bits = v.as_bits(number)
    sign = v.integer("and", bits, _SIGN)
    magnitude = v.integer("xor", bits, sign)
    odd = v.integer("and", v.integer("lshr", magnitude, 13), 1)
    rebased = v.integer("add", magnitude, 0xFFF - (112 << 23))
    normal = v.integer("lshr", v.integer("add", rebased, odd), 13)
    unit = (127 - 1) << 23  # 0.5, whose last place is 2^-24
    shifted = v.out.let(f"fadd {v.vector('float')} {v.as_float(magnitude)}, {v.as_float(v.const(unit))}")
    subnormal = v.integer("sub", v.as_bits(shifted), unit)
    finite = v.where("ult", magnitude, 113 << 23, subnormal, normal)
    over = v.where("ugt", magnitude, _INFINITY, v.const(0x7E00), v.const(0x7C00))
    found = v.where("uge", magnitude, (127 + 16) << 23, over, finite)
    return v.shortened(v.integer("or", found, v.integer("lshr", sign, 16)))
