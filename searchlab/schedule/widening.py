"""widen: a buffer whose elements are held in a wider type than their own."""

from __future__ import annotations

from dataclasses import replace

from searchlab.dtype import DTYPES
from searchlab.ir.expr import Cast, Expr, Load, Select, Var, cast, select
from searchlab.ir.program import Layout, Program
from searchlab.ir.statement_tree import kept, map_expressions, read
from searchlab.ir.stmt import Stmt, Store
from searchlab.ir.walk import transform
from searchlab.schedule.primitive import MadeNames, check, names_of, nearest, primitive, producers


@primitive
def widen(program: Program, buffer: str, dtype: str) -> MadeNames:
    """Hold the elements of a buffer in a wider type: they are converted once, where they are stored.

        A_local[i] = A[i];  C[i] += int32(A_local[i]) * ...        A and A_local: int8
        =>  A_local[i] = int16(A[i]);  C[i] += int32(A_local[i]) * ...        A_local: int16

    The wider type has every value of the narrower one, so results stay as they are.  Callers still pass an input in its
    own type: it is converted when it is packed, before the kernel runs.
    """
    check(buffer in program.buffers, lambda: nearest("buffer", buffer, program.buffers))
    check(buffer not in program.outputs, f"'{buffer}' is an output, which keeps its type; cache_write it first")
    old = program.buffers[buffer]
    check(dtype in DTYPES, lambda: nearest("type", dtype, DTYPES))
    wider = [d.name for d in DTYPES.values() if d.name != old.dtype and d.holds(DTYPES[old.dtype])]
    accepted = ", ".join(wider) or "none"
    check(dtype in wider, f"{dtype} is no wider type than {old.dtype}, that of '{buffer}'; accepted: {accepted}")
    adding = [b for b in producers(program, buffer) if b.init is not None or buffer in read(b)]
    check(not adding, f"{names_of(adding)} adds to '{buffer}', whose sums keep their type; cache_read it first")
    layouts = program.layouts
    if buffer in program.inputs and all(la.buffer != buffer for la in layouts):
        at = tuple(Var(f"u{n}") for n in range(len(old.shape)))
        layouts = (*layouts, Layout(buffer, old, at, at))
    body = _stored(map_expressions(program.body, lambda e: _loaded(e, buffer, old.dtype, dtype)), buffer, dtype)
    buffers = {**program.buffers, buffer: replace(old, dtype=dtype)}
    return MadeNames(program.with_body(body, buffers=buffers, layouts=layouts))


def _loaded(e: Expr, buffer: str, narrow: str, wide: str) -> Expr:
    """The expression with loads of the wider type; what becomes of a value depends on nothing but the value."""

    def rewrite(x: Expr) -> Expr | None:
        if isinstance(x, Load) and x.buffer == buffer:
            return Cast(narrow, Load(buffer, x.indices, wide))
        if isinstance(x, Cast) and isinstance(x.a, Cast) and x.a.type == narrow and isinstance(x.a.a, Load):
            return cast(x.a.a, x.type) if x.a.a.buffer == buffer else None
        return None

    return transform(e, rewrite)


def _stored(body: Stmt, buffer: str, dtype: str) -> Stmt:
    """The body with conversions where the buffer is stored to."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Store) and s.buffer == buffer:
            return Store(buffer, s.indices, _converted(s.value, dtype))
        return kept(s.map_children(visit))

    return visit(body)


def _converted(value: Expr, dtype: str) -> Expr:
    """A conversion, inside the cases of a choice: so that zeros around an array are still seen to be zeros."""
    if isinstance(value, Select):
        return select(value.condition, _converted(value.a, dtype), _converted(value.b, dtype))
    return cast(value, dtype)
