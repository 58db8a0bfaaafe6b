"""Plain loops executed in Python with every access checked: inside its buffer, written before it is read, and no race.

The code generator's passes up to LLVM are tested with this: the result is right, or an error says where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from searchlab.dtype import FLOATS
from searchlab.ir.expr import And, Binary, Call, Cast, Compare, Const, Expr, Load, Poly, Select, Var
from searchlab.ir.interpret import _FUNCTIONS
from searchlab.ir.program import Program
from searchlab.ir.stmt import Alloc, If, Loop, Prefetch, Seq, Stmt, Store, Tensorized
from searchlab.lower.passes import Lowered
from searchlab.runtime.kernel import pack

_COMPARE = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%"}


class AccessError(AssertionError):
    """A lowered program does something that no lowered program may do."""


class Unset:
    """What was computed from an element that was never written: right in padding, never in an output."""

    __array_ufunc__ = None  # numpy's scalars leave arithmetic to this class

    def __init__(self, place: str) -> None:
        self.place = place

    def same(self, *_: object) -> Unset:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = same


def _apply(function: Callable[..., Any], *args: Any) -> Any:
    return next((a for a in args if isinstance(a, Unset)), None) or function(*args)


class Memory:
    """A buffer that knows which elements were written, and by which iterations of the parallel loop that runs."""

    def __init__(self, name: str, data: np.ndarray, world: World, *, written: bool, output: bool = False) -> None:
        self.output = output
        self.name, self.data, self.world = name, data, world
        self.ready = np.full(data.shape, written)
        self.born = world.regions
        self.writers: dict[tuple[int, ...], Any] = {}
        self.readers: dict[tuple[int, ...], Any] = {}

    def _place(self, at: tuple[int, ...]) -> tuple[int, ...]:
        """Full indices, from full ones or from one flat index."""
        flat = len(at) == 1 and self.data.ndim > 1
        if any(not 0 <= i < n for i, n in zip(at, [self.data.size] if flat else self.data.shape, strict=True)):
            raise AccessError(f"{self.name}{list(at)} is outside its shape {self.data.shape}")
        return tuple(int(i) for i in np.unravel_index(at[0], self.data.shape)) if flat else at

    def _race(self, at: tuple[int, ...], *, writes: bool) -> None:
        now = self.world.iteration
        if now is None or self.born == self.world.regions:  # made inside this iteration
            return
        others = [self.writers.get(at), self.readers.get(at) if writes else None]
        if any(o is not None and o[0] == now[0] and o != now for o in others):
            raise AccessError(f"{self.name}{list(at)} is used by two iterations of a parallel loop")
        (self.writers if writes else self.readers)[at] = now

    def __getitem__(self, at: tuple[int, ...]) -> Any:
        at = self._place(at)
        self._race(at, writes=False)
        return self.data[at] if self.ready[at] else Unset(f"{self.name}{list(at)}")

    def __setitem__(self, at: tuple[int, ...], value: Any) -> None:
        at = self._place(at)
        self._race(at, writes=True)
        self.ready[at] = not isinstance(value, Unset)
        if self.ready[at]:
            self.data[at] = value
        elif self.output:
            raise AccessError(f"{self.name}{list(at)} is computed from {value.place}, which was never written")


class World:
    """Which iteration of which execution of a parallel loop is running."""

    def __init__(self) -> None:
        self.regions = 0  # how often anything parallel has begun or an iteration of it
        self.executions = 0
        self.iteration: tuple[int, int] | None = None

    def parallel(self, extent: int) -> Any:
        if self.iteration is not None:
            yield from range(extent)
            return
        self.executions += 1
        for i in reversed(range(extent)):
            self.regions += 1
            self.iteration = (self.executions, i)
            yield i
        self.regions += 1
        self.iteration = None

    def alloc(self, name: str, shape: tuple[int, ...], dtype: str) -> Memory:
        return Memory(name, np.zeros(shape, dtype), self, written=False)


def run_checked(
    lowered: Lowered, program: Program, inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """The outputs; raises AccessError for what would be a wild access or a race in compiled code."""
    world = World()
    memory = {}
    layouts = {la.buffer: la for la in program.layouts}
    for b in lowered.parameters:
        if b.name in program.inputs:
            data = inputs[b.name]
            if b.name in layouts:
                data = pack(layouts[b.name], b, data, sizes)
            memory[b.name] = Memory(b.name, data, world, written=True)
        else:
            shape = tuple(int(eval(_expr(e), {}, {f"_size_{n}": v for n, v in (sizes or {}).items()})) for e in b.shape)
            memory[b.name] = Memory(b.name, np.zeros(shape, b.dtype), world, written=False, output=True)
    source = "def run(_b, _w, _apply, _math, _cast):\n"
    source += "".join(f"  {n} = _b[{n!r}]\n" for n in memory)
    source += "".join(f"  _size_{n} = {v}\n" for n, v in (sizes or {}).items())
    source += _stmt(lowered.body, "  ") + "  return\n"
    scope: dict[str, Any] = {}
    exec(compile(source, f"<{lowered.name}>", "exec"), scope)
    with np.errstate(all="ignore"):
        scope["run"](memory, world, _apply, _FUNCTIONS, lambda x, d: np.array(x).astype(d)[()])
    outputs = {}
    for name in lowered.outputs:
        if not memory[name].ready.all():
            raise AccessError(f"output {name} is not written completely")
        outputs[name] = memory[name].data
    return outputs


def _name(buffer: str) -> str:
    return buffer.replace(".", "__")


def _stmt(s: Stmt, indent: str) -> str:
    deeper = indent + "  "
    if isinstance(s, Store):
        return f"{indent}{_name(s.buffer)}[{_indices(s.indices)}] = {_expr(s.value)}\n"
    if isinstance(s, Prefetch):
        return f"{indent}pass\n"
    if isinstance(s, Seq):
        return "".join(_stmt(p, indent) for p in s.body) or f"{indent}pass\n"
    if isinstance(s, Loop):
        kind = "_w.parallel" if s.kind == "parallel" else "range"
        return f"{indent}for {s.name} in {kind}({_expr(s.extent)}):\n{_stmt(s.body, deeper)}"
    if isinstance(s, If):
        return f"{indent}if {_expr(s.condition)}:\n{_stmt(s.body, deeper)}"
    if isinstance(s, Tensorized):
        return _stmt(s.body, indent)
    assert isinstance(s, Alloc), type(s).__name__
    shape = "".join(_expr(e) + ", " for e in s.buffer.shape)
    made = f"_w.alloc({s.buffer.name!r}, ({shape}), {s.buffer.dtype!r})"
    return f"{indent}{_name(s.buffer.name)} = {made}\n{_stmt(s.body, indent)}"


def _indices(indices: tuple[Expr, ...]) -> str:
    return "(" + "".join(_expr(i) + ", " for i in indices) + ")"


def _expr(e: Expr) -> str:
    if isinstance(e, Const):
        return _const(e)
    if isinstance(e, Var):
        return e.name if e.role == "iter" else f"_size_{e.name}"  # a loop and a size may have one name
    if isinstance(e, Poly):
        return "(" + " + ".join("*".join([str(c), *map(_expr, m)]) for m, c in e.terms) + ")"
    if isinstance(e, Binary):
        if e.op in ("min", "max"):
            return f"_apply({e.op}, {_expr(e.a)}, {_expr(e.b)})"
        return f"({_expr(e.a)} {_ARITHMETIC[e.op]} {_expr(e.b)})"
    if isinstance(e, Compare):
        return f"({_expr(e.a)} {_COMPARE[e.op]} {_expr(e.b)})"
    if isinstance(e, And):
        return "(" + " and ".join(map(_expr, e.args)) + ")"
    if isinstance(e, Select):
        return f"({_expr(e.a)} if {_expr(e.condition)} else {_expr(e.b)})"
    if isinstance(e, Cast):
        return f"_apply(_cast, {_expr(e.a)}, '{e.type}')"
    if isinstance(e, Call):
        return f"_apply(_math['{e.function}'], {', '.join(map(_expr, e.args))})"
    assert isinstance(e, Load), type(e).__name__
    return f"{_name(e.buffer)}[{_indices(e.indices)}]"


def _const(e: Const) -> str:
    if e.type == "bool":
        return str(bool(e.value))
    if e.type == "index":
        return str(e.value)
    value = f"float('{e.value}')" if e.type in FLOATS else str(e.value)
    return f"_cast({value}, '{e.type}')"
