"""The reference interpreter: executes a program statement by statement, slow but obviously correct.

The program is translated to Python loops over numpy arrays in exactly its own order (parallel, vectorised and unrolled
loops run serially), including predicates and inits.  Code generation is tested against it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.dtype import HALVES
from searchlab.errors import IRError
from searchlab.ir.bfloat16 import numbers, rounded, stored
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import TRUE, And, Binary, Call, Cast, Compare, Const, Expr, Load, Lookup, Poly, Select, Var
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import map_expressions
from searchlab.ir.stmt import Alloc, Barrier, Block, If, Loop, Prefetch, Seq, Store, Tensorized
from searchlab.ir.visitor import Visitor
from searchlab.ir.walk import Substitution

Array = npt.NDArray[Any]
_COMPARE = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%"}


def interpret(
    program: Program, inputs: Mapping[str, Array], sizes: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """The outputs of a program without free knobs; `sizes` gives the run-time sizes."""
    program = program.substitute(dict(sizes)) if sizes else program
    if program.symbols:
        raise IRError(f"{program.name} still has symbols: {', '.join(v.name for v in program.symbols)}")
    arrays = {}
    for name, b in program.buffers.items():
        shape = tuple(int(evaluate(e, {})) for e in b.shape)
        if name in program.inputs or name in program.updates:
            arrays[name] = _held(inputs[name], b.dtype)
            if arrays[name].shape != shape:
                raise IRError(f"{program.name}: input '{name}' has shape {arrays[name].shape}, expected {shape}")
        else:
            arrays[name] = _full(shape, b.dtype)  # makes reads of unwritten elements visible
        if name in program.updates:
            arrays[name] = arrays[name].copy()
    check_lookups(program, arrays)
    names = "".join(f"  {n} = _b[{n!r}]\n" for n in arrays)
    source = f"def run(_b, _math, _cast, _full):\n{names}{_Source().visit(program.body, '  ')}"
    scope: dict[str, Any] = {}
    exec(compile(source, f"<{program.name}>", "exec"), scope)
    with np.errstate(over="ignore"):
        scope["run"](arrays, _FUNCTIONS, _cast, _full)
    return {name: stored(arrays[name], program.buffers[name].dtype) for name in program.outputs}


def check_lookups(program: Program, arrays: Mapping[str, Array], sizes: Mapping[str, int] | None = None) -> None:
    """Raises IRError if an array that indices are looked up in holds one outside of its range."""
    for name, below in program.lookups.items():
        limit, array = int(evaluate(below, sizes or {})), arrays[name]
        if not array.size:
            continue
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= limit:
            raise IRError(
                f"{program.name}: '{name}' holds {low if low < 0 else high}; indices from 0 to {limit - 1} are accepted"
            )


def _held(array: npt.ArrayLike, dtype: str) -> Array:
    """An input as numbers that numpy computes with: floats of 16 bits as float32, rounded after every operation."""
    return numbers(array, dtype).astype(np.float32) if dtype in HALVES else np.asarray(array, dtype=dtype)


def _cast(value: Any, dtype: str) -> Any:
    """The value rounded to a type; floats of 16 bits stay float32."""
    found = rounded(value, dtype)
    return found.astype(np.float32)[()] if dtype in HALVES else found[()]


def _full(shape: tuple[int, ...], dtype: str) -> Array:
    """An array of recognisable values, for memory that has not been written yet."""
    return np.full(shape, _cast(99, dtype))


def _call(f: Any) -> Any:
    return lambda x: type(x)(f(float(x))) if isinstance(x, np.generic) else f(x)


_FUNCTIONS = {
    "exp": lambda x: np.exp(x),
    "log": lambda x: np.log(x),
    "tanh": lambda x: np.tanh(x),
    "erf": _call(math.erf),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sqrt": lambda x: np.sqrt(x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "abs": lambda x: np.abs(x),
    "floor": lambda x: np.floor(x),
    "round": lambda x: np.rint(x),
    "differing": lambda x, y: np.int32(((int(x) ^ int(y)) & 0xFFFFFFFF).bit_count()),
}


class _Source(Visitor[[str], str]):
    """The Python text of each kind of statement."""

    def visit_store(self, s: Store, indent: str) -> str:
        return f"{indent}{s.buffer}[{_indices(s.indices)}] = {_expr(s.value)}\n"

    def visit_barrier(self, s: Barrier, indent: str) -> str:
        return f"{indent}pass\n"

    def visit_prefetch(self, s: Prefetch, indent: str) -> str:
        return f"{indent}pass\n"

    def visit_seq(self, s: Seq, indent: str) -> str:
        return "".join(self.visit(p, indent) for p in s.body)

    def visit_loop(self, s: Loop, indent: str) -> str:
        return f"{indent}for {s.name} in range({_expr(s.extent)}):\n{self.visit(s.body, indent + '  ')}"

    def visit_if(self, s: If, indent: str) -> str:
        return f"{indent}if {_expr(s.condition)}:\n{self.visit(s.body, indent + '  ')}"

    def visit_alloc(self, s: Alloc, indent: str) -> str:
        shape = f"({''.join(_expr(e) + ',' for e in s.buffer.shape)})"
        return f"{indent}{s.buffer.name} = _full({shape}, '{s.buffer.dtype}')\n{self.visit(s.body, indent)}"

    def visit_tensorized(self, s: Tensorized, indent: str) -> str:
        return self.visit(s.body, indent)

    def visit_block(self, b: Block, indent: str) -> str:
        # an iteration variable may shadow a loop variable of the same name, which must not change
        own: dict[Var, Expr] = {it.var: Var(f"_{b.name}_{it.var.name}") for it in b.iters}
        put = Substitution(own)
        text = "".join(f"{indent}{own[it.var]} = {_expr(e)}\n" for it, e in zip(b.iters, b.bindings, strict=True))
        if b.predicate != TRUE:
            text += f"{indent}if {_expr(b.predicate)}:\n"
            indent += "  "
        checks = " and ".join(f"0 <= {own[it.var]} < {_expr(it.extent)}" for it in b.iters)
        if checks:
            text += f"{indent}assert {checks}, {b.name!r} + ' leaves its domain'\n"
        if b.init is not None:
            first = " and ".join(f"{own[it.var]} == 0" for it in b.iters if it.kind == "reduce") or "True"
            text += f"{indent}if {first}:\n{self.visit(map_expressions(b.init, put), indent + '  ')}"
        return text + self.visit(map_expressions(b.body, put), indent)


def _indices(indices: tuple[Expr, ...]) -> str:
    return ", ".join(_expr(i) for i in indices) if indices else "()"


def _expr(e: Expr) -> str:
    if isinstance(e, Const):
        return _const(e)
    if isinstance(e, Var):
        return e.name
    if isinstance(e, Poly):
        return "(" + " + ".join("*".join([str(c), *map(_expr, m)]) for m, c in e.terms) + ")"
    if isinstance(e, Binary):
        if e.op in ("min", "max"):
            return f"{e.op}({_expr(e.a)}, {_expr(e.b)})"
        return _rounded(f"({_expr(e.a)} {_ARITHMETIC[e.op]} {_expr(e.b)})", e.dtype)
    if isinstance(e, Compare):
        return f"({_expr(e.a)} {_COMPARE[e.op]} {_expr(e.b)})"
    if isinstance(e, And):
        return "(" + " and ".join(map(_expr, e.args)) + ")"
    if isinstance(e, Select):
        return f"({_expr(e.a)} if {_expr(e.condition)} else {_expr(e.b)})"
    if isinstance(e, Cast):
        return f"_cast({_expr(e.a)}, '{e.type}')"
    if isinstance(e, Call):
        return _rounded(f"_math['{e.function}']({', '.join(map(_expr, e.args))})", e.dtype)
    if isinstance(e, Load):
        return f"{e.buffer}[{_indices(e.indices)}]"
    if isinstance(e, Lookup):
        return f"int({_expr(e.load)})"
    raise IRError(f"cannot interpret {e!r}")


def _rounded(text: str, dtype: str) -> str:
    return f"_cast({text}, '{dtype}')" if dtype in HALVES else text


def _const(e: Const) -> str:
    if e.type == "bool":
        return str(bool(e.value))
    if isinstance(e.value, float) and not math.isfinite(e.value):
        return _rounded(f"float('{e.value}')", e.type)
    if e.type not in ("index", "float64"):
        return f"_cast({e.value!r}, '{e.type}')" if e.type != "float32" else repr(e.value)
    return repr(e.value)
