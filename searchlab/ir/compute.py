"""Writing a computation: a Builder collects inputs, reduction axes and stages into a Program.

b = Builder("matmul")
A, B = b.input("A", (m, k)), b.input("B", (k, n))
r = b.axis("r", k)
C = b.compute("C", (m, n), lambda i, j: total(A[i, r] * B[r, j], r))
program = b.program(C)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from searchlab.dtype import DTYPES
from searchlab.errors import IRError
from searchlab.ir.expr import Const, Expr, Like, Load, Var, const, index, maximum, minimum
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Buffer, Iter, Loop, Stmt, Store, seq
from searchlab.ir.verify import verify
from searchlab.ir.walk import loads, substitute, variables


@dataclass(frozen=True)
class Tensor:
    """A named array of a computation; indexing it gives an expression."""

    buffer: Buffer

    @property
    def name(self) -> str:
        """The name of its buffer."""
        return self.buffer.name

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Its extents."""
        return self.buffer.shape

    @property
    def dtype(self) -> str:
        """The type of its elements."""
        return self.buffer.dtype

    def __getitem__(self, key: Like | tuple[Like, ...]) -> Expr:
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) != len(self.shape):
            raise IRError(f"{self.name} has {len(self.shape)} dimensions, indexed with {len(keys)}")
        return Load(self.name, tuple(index(k) for k in keys), self.dtype)


@dataclass(frozen=True)
class Reduction:
    """A reduction of `value` over axes; made by total, largest or smallest."""

    value: Expr
    axes: tuple[Var, ...]
    combine: Callable[[Expr, Expr], Expr]
    identity: Const


def total(value: Expr, *axes: Var) -> Reduction:
    """The sum over axes."""
    return Reduction(value, axes, lambda a, b: a + b, const(0, value.dtype))


def largest(value: Expr, *axes: Var) -> Reduction:
    """The maximum over axes."""
    return Reduction(value, axes, maximum, const(DTYPES[value.dtype].limits[0], value.dtype))


def smallest(value: Expr, *axes: Var) -> Reduction:
    """The minimum over axes."""
    return Reduction(value, axes, minimum, const(DTYPES[value.dtype].limits[1], value.dtype))


class Builder:
    """Collects one computation; every name is used once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._inputs: dict[str, Buffer] = {}
        self._axes: dict[Var, Expr] = {}
        self._stages: dict[str, tuple[Buffer, Block]] = {}

    def input(self, name: str, shape: Sequence[Like], dtype: str = "float32") -> Tensor:
        """An array that the caller passes in."""
        if dtype not in DTYPES:
            raise IRError(f"{self.name}: input '{name}' has unknown dtype '{dtype}'; known: {', '.join(DTYPES)}")
        buffer = Buffer(self._new(name), self._shape(name, shape), dtype)
        self._inputs[name] = buffer
        return Tensor(buffer)

    def axis(self, name: str, extent: Like) -> Var:
        """A reduction axis over [0, extent)."""
        var = Var(name)
        if self._axes.get(var, index(extent)) != index(extent):
            raise IRError(f"{self.name}: axis '{name}' exists already with extent {self._axes[var]}")
        self._axes[var] = self._shape(name, [extent])[0]
        return var

    def compute(self, name: str, shape: Sequence[Like], body: Callable[..., Expr | Reduction]) -> Tensor:
        """A stage whose element at [args] is `body(*args)`; the parameter names of `body` name the loops."""
        names = list(inspect.signature(body).parameters)
        if len(names) != len(shape):
            raise IRError(
                f"{self.name}: stage '{name}' has {len(shape)} dimensions, its function takes {len(names)} indices"
            )
        self._new(name)
        space = [Iter(Var(n), e, "space") for n, e in zip(names, self._shape(name, shape), strict=True)]
        value = body(*(it.var for it in space))
        inner = value.value if isinstance(value, Reduction) else value
        if not isinstance(inner, Expr):
            raise IRError(f"{self.name}: the function of stage '{name}' returns {inner!r}, not an expression")
        target = tuple(it.var for it in space)
        buffer = Buffer(name, tuple(it.extent for it in space), inner.dtype)
        reduce: tuple[Iter, ...] = ()
        store, init = Store(name, target, inner), None
        if isinstance(value, Reduction):
            reduce = tuple(Iter(a, self._extent_of(name, a), "reduce") for a in value.axes)
            store = Store(name, target, value.combine(Load(name, target, inner.dtype), inner))
            init = Store(name, target, value.identity)
        block = Block(name, (*space, *reduce), (), store, init)
        self._check(block, inner)
        self._stages[name] = (buffer, block)
        return Tensor(buffer)

    def program(self, *outputs: Tensor) -> Program:
        """The program: one loop nest per stage, in the order of definition."""
        names = tuple(t.name for t in outputs)
        for n in names:
            if n not in self._stages:
                raise IRError(f"{self.name}: output '{n}' is not a stage; stages: {', '.join(self._stages)}")
        read = {ld.buffer for _, b in self._stages.values() for ld in loads(b.store.value)}
        for n in self._stages:
            if n not in read and n not in names:
                raise IRError(f"{self.name}: stage '{n}' is neither an output nor read by another stage")
        taken: set[str] = set()
        body = seq(*(_nest(block, taken) for _, block in self._stages.values()))
        buffers = {**self._inputs, **{n: b for n, (b, _) in self._stages.items()}}
        program = Program(self.name, tuple(self._inputs), names, buffers, body)
        verify(program)
        return program

    def _new(self, name: str) -> str:
        if name in self._inputs or name in self._stages:
            raise IRError(f"{self.name}: two tensors are called '{name}'")
        if not name.isidentifier():
            raise IRError(f"{self.name}: '{name}' is not a name (letters, digits and underscores)")
        return name

    def _shape(self, name: str, shape: Sequence[Like]) -> tuple[Expr, ...]:
        extents = tuple(index(e) for e in shape)
        if any(isinstance(e, Const) and e.value < 1 for e in extents):
            raise IRError(f"{self.name}: '{name}' has shape {tuple(shape)}; extents are at least 1")
        return extents

    def _extent_of(self, stage: str, axis: Var) -> Expr:
        if axis not in self._axes:
            raise IRError(f"{self.name}: stage '{stage}' reduces over '{axis}', which is not an axis of this builder")
        return self._axes[axis]

    def _check(self, block: Block, value: Expr) -> None:
        known = {it.var for it in block.iters}
        if len(known) != len(block.iters):
            raise IRError(
                f"{self.name}: stage '{block.name}' uses an index name twice: {[i.var.name for i in block.iters]}"
            )
        for v in sorted(variables(value) - known, key=lambda v: v.name):
            if v.role == "iter":
                raise IRError(
                    f"{self.name}: stage '{block.name}' uses '{v}', which it neither iterates nor reduces over"
                )
        for ld in loads(value):
            if ld.buffer not in self._inputs and ld.buffer not in self._stages:
                raise IRError(
                    f"{self.name}: stage '{block.name}' reads '{ld.buffer}', which is not a tensor of this builder"
                )


def _nest(block: Block, taken: set[str]) -> Stmt:
    """The loop nest of a stage; loop names used by an earlier stage are prefixed with the stage's name."""
    loops: list[tuple[Var, Expr]] = []
    renamed: dict[Var, Var] = {}
    for it in block.iters:
        name = it.var.name if it.var.name not in taken else f"{block.name}_{it.var.name}"
        while name in taken:
            name += "_"
        taken.add(name)
        loops.append((Var(name), it.extent))
    for it in block.iters:
        inner = f"v{it.var.name}"
        while inner in taken or Var(inner) in renamed.values():  # a loop may be called `vi` beside one called `i`
            inner = f"v{inner}"
        renamed[it.var] = Var(inner)
    iters = tuple(Iter(renamed[it.var], it.extent, it.kind) for it in block.iters)

    def put(s: Store) -> Store:
        return Store(s.buffer, tuple(substitute(i, renamed) for i in s.indices), substitute(s.value, renamed))

    init = put(block.init) if block.init is not None else None
    nest: Stmt = Block(block.name, iters, tuple(v for v, _ in loops), put(block.store), init)
    for var, extent in reversed(loops):
        nest = Loop(var, extent, nest)
    return nest
