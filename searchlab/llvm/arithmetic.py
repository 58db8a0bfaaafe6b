"""Operations on values of one type as LLVM IR, for scalars and vectors: arithmetic, comparisons, conversions, memory.

float16 and bfloat16 values are held as their bits; every operation widens them to float32 and rounds its result.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from searchlab.dtype import BOOL, DTYPES, FLOATS, HALVES, INDEX, UNSIGNED
from searchlab.errors import BuildError
from searchlab.ir.bfloat16 import stored
from searchlab.llvm import vecmath
from searchlab.llvm.halves import Halves
from searchlab.llvm.ssa import TYPES, Function
from searchlab.targets import Target

FLAGS = "contract nsz"
_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_FLOAT_TESTS = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une"}
_BITS = {**{name: d.bits for name, d in DTYPES.items()}, INDEX: 64, BOOL: 1}


class Arithmetic:
    """Writes operations into a function; operands are texts, and `lanes` says how many values they hold."""

    def __init__(self, function: Function, target: Target) -> None:
        self.f = function
        self.halves = Halves.of(function, target)

    def type(self, dtype: str, lanes: int) -> str:
        """The LLVM type of a vector with this number of lanes."""
        return TYPES[dtype] if lanes == 1 else f"<{lanes} x {TYPES[dtype]}>"

    def constant(self, value: int | float, dtype: str, lanes: int) -> str:
        """A number as an operand, the same in all lanes."""
        if dtype in HALVES:
            text = str(int(stored(value, dtype).view(np.int16)))
        elif dtype in FLOATS:
            rounded = struct.unpack("<f", struct.pack("<f", value))[0] if dtype == "float32" else value
            text = f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
        else:
            text = str(int(value))
        return text if lanes == 1 else f"splat ({TYPES[dtype]} {text})"

    # --- arithmetic ---------------------------------------------------------------------------------------------------

    def operate(self, op: str, x: str, y: str, dtype: str, type_: str) -> str:
        """One arithmetic operation on operands of one type."""
        lanes = int(type_[1:].split(" ")[0]) if type_.startswith("<") else 1
        if op in ("min", "max"):
            return self._extreme(op, x, y, dtype, lanes)
        if dtype in HALVES:
            # without flags: the result is the same whether or not LLVM sees a chain of such operations
            a, b = self._wide(x, dtype, lanes), self._wide(y, dtype, lanes)
            result = self.f.let(f"{_FLOAT_OPS[op]} {self.type('float32', lanes)} {a}, {b}")
            return self.halves.narrow(dtype, result, lanes)
        if dtype in FLOATS:
            return self.f.let(f"{_FLOAT_OPS[op]} {FLAGS} {type_} {x}, {y}")
        if op == "div" or dtype == BOOL:
            what = "division" if op == "div" else op
            raise BuildError(f"{what} of {dtype} values is not supported; cast to another dtype first")
        return self.f.let(f"{op} {type_} {x}, {y}")

    def _extreme(self, op: str, x: str, y: str, dtype: str, lanes: int) -> str:
        type_ = self.type(dtype, lanes)
        if dtype in FLOATS:
            # this form is one instruction on x86 (a NaN on the right wins)
            flags = "" if dtype in HALVES else FLAGS
            wide = self.type(DTYPES[dtype].arithmetic, lanes)
            a, b = self._wide(x, dtype, lanes), self._wide(y, dtype, lanes)
            test = self.f.let(f"fcmp {flags} {'olt' if op == 'min' else 'ogt'} {wide} {a}, {b}")
            return self.f.let(f"select {flags} {self.type(BOOL, lanes)} {test}, {type_} {x}, {type_} {y}")
        name = f"llvm.{'u' if dtype in UNSIGNED else 's'}{op}.{suffix(dtype, lanes)}"
        self.f.declare(f"declare {type_} @{name}({type_}, {type_})")
        return self.f.let(f"call {type_} @{name}({type_} {x}, {type_} {y})")

    def apply(self, function: str, args: Sequence[str], dtype: str, lanes: int) -> str:
        """A mathematical function, or the number of bits in which integers differ."""
        if function == "differing":
            type_, name = self.type(dtype, lanes), f"llvm.ctpop.{suffix(dtype, lanes)}"
            self.f.declare(f"declare {type_} @{name}({type_})")
            return self.f.let(f"call {type_} @{name}({type_} {self.f.let(f'xor {type_} {args[0]}, {args[1]}')})")
        wide = [self._wide(a, dtype, lanes) for a in args]
        result = vecmath.expand(function, self.f, DTYPES[dtype].arithmetic, lanes, wide)
        return self.halves.narrow(dtype, result, lanes) if dtype in HALVES else result

    def compare(self, op: str, x: str, y: str, dtype: str, lanes: int) -> str:
        """The truth of a comparison, in every lane."""
        if dtype in FLOATS:
            a, b = self._wide(x, dtype, lanes), self._wide(y, dtype, lanes)
            return self.f.let(f"fcmp {_FLOAT_TESTS[op]} {self.type(DTYPES[dtype].arithmetic, lanes)} {a}, {b}")
        test = op if op in ("eq", "ne") else ("u" if dtype in UNSIGNED else "s") + op
        return self.f.let(f"icmp {test} {self.type(dtype, lanes)} {x}, {y}")

    def _wide(self, text: str, dtype: str, lanes: int) -> str:
        """The operand in the type in which it is computed."""
        return self.halves.widen(dtype, text, lanes) if dtype in HALVES else text

    def convert(self, text: str, source: str, target: str, lanes: int) -> str:
        """A value as another type; floats of 16 bits by way of float32."""
        if source == target:
            return text
        if source in HALVES:
            return self.convert(self._wide(text, source, lanes), "float32", target, lanes)
        if target in HALVES:
            return self.halves.narrow(target, self.convert(text, source, "float32", lanes), lanes)
        if target == BOOL:
            return self.compare("ne", text, self.constant(0, source, lanes), source, lanes)
        op = _conversion(source, target)
        if op is None:
            return text
        return self.f.let(f"{op} {self.type(source, lanes)} {text} to {self.type(target, lanes)}")

    # --- memory -------------------------------------------------------------------------------------------------------

    def fetch(self, dtype: str, lanes: int, address: str, align: int) -> str:
        """The values at an address; truth is a byte in memory and a bit elsewhere."""
        if dtype != BOOL:
            return self.f.let(f"load {self.type(dtype, lanes)}, ptr {address}, align {align}")
        return self.convert(self.fetch("uint8", lanes, address, align), "uint8", BOOL, lanes)

    def put_away(self, dtype: str, lanes: int, text: str, address: str, align: int) -> None:
        """Stores values at an address."""
        if dtype == BOOL:
            dtype, text = "uint8", self.convert(text, BOOL, "uint8", lanes)
        self.f.line(f"store {self.type(dtype, lanes)} {text}, ptr {address}, align {align}")


def suffix(dtype: str, lanes: int) -> str:
    """The type as it stands in the names of intrinsics."""
    element = {"float": "f32", "double": "f64"}.get(TYPES[dtype], TYPES[dtype])
    return element if lanes == 1 else f"v{lanes}{element}"


def _conversion(source: str, target: str) -> str | None:
    unsigned = source in UNSIGNED
    if source in FLOATS and target in FLOATS:
        return "fpext" if target == "float64" else "fptrunc"
    if source in FLOATS:
        return "fptoui" if target in UNSIGNED else "fptosi"
    if target in FLOATS:
        return "uitofp" if unsigned else "sitofp"
    if _BITS[source] == _BITS[target]:
        return None
    return "trunc" if _BITS[source] > _BITS[target] else "zext" if unsigned else "sext"
