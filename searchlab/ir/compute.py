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
from dataclasses import dataclass, replace

from searchlab.dtype import DTYPES
from searchlab.errors import IRError
from searchlab.ir.expr import ONE, ZERO, Const, Expr, Like, Load, Lookup, Var, const, index, lookup, maximum, minimum
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Buffer, Iter, Loop, Stmt, Store, seq
from searchlab.ir.verify import verify
from searchlab.ir.walk import loads, lookups, substitute, variables


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
class Indices:
    """An array of indices; indexing it gives one of these, which indexes other arrays or is an extent."""

    buffer: Buffer
    below: Expr
    expected: Expr | None = None

    def __getitem__(self, key: Like | tuple[Like, ...]) -> Expr:
        return lookup(Tensor(self.buffer)[key], self.below, self.expected)


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
        self._states: dict[str, Buffer] = {}
        self._stages: dict[str, tuple[Buffer, tuple[Block, ...]]] = {}

    def input(self, name: str, shape: Sequence[Like], dtype: str = "float32") -> Tensor:
        """An array that the caller passes in."""
        if dtype not in DTYPES:
            raise IRError(f"{self.name}: input '{name}' has unknown dtype '{dtype}'; known: {', '.join(DTYPES)}")
        buffer = Buffer(self._new(name), self._shape(name, shape), dtype)
        self._inputs[name] = buffer
        return Tensor(buffer)

    def indices(
        self, name: str, shape: Sequence[Like], below: Like, expected: Like | None = None, dtype: str = "int32"
    ) -> Indices:
        """An array of indices, all of them at least 0 and less than `below`, that the caller passes in.

        As an extent of a stage, one of them says how much there is to do; features take it to be `expected`.
        """
        buffer = self.input(name, shape, dtype).buffer
        return Indices(buffer, index(below), None if expected is None else index(expected))

    def state(self, name: str, shape: Sequence[Like], dtype: str = "float32") -> Tensor:
        """An array that the caller passes in, and that `put` writes to in place."""
        made = self.input(name, shape, dtype)
        self._states[name] = self._inputs.pop(name)
        return made

    def put(
        self, name: str, state: Tensor, shape: Sequence[Like], body: Callable[..., tuple[Sequence[Like], Expr]]
    ) -> Tensor:
        """A stage that writes elements of a state: `body(*args)` gives the place of one and its value.

        Places that are looked up must differ, as the order of iterations is not fixed.
        """
        if state.name not in self._states:
            raise IRError(f"{self.name}: '{state.name}' is no state; states: {', '.join(self._states) or 'none'}")
        space = self._space(name, shape, body)
        place, value = body(*(it.var for it in space))
        at = tuple(index(i) for i in place)
        if len(at) != len(state.shape) or value.dtype != state.dtype:
            raise IRError(f"{self.name}: stage '{name}' puts {value.dtype} at {len(at)} indices of '{state.name}'")
        block = Block(self._new(name), space, (), Store(state.name, at, value))
        self._check(block, *at, value)
        self._stages[name] = (state.buffer, (block,))
        return state

    def axis(self, name: str, extent: Like) -> Var:
        """A reduction axis over [0, extent)."""
        var = Var(name)
        if self._axes.get(var, index(extent)) != index(extent):
            raise IRError(f"{self.name}: axis '{name}' exists already with extent {self._axes[var]}")
        self._axes[var] = self._shape(name, [extent])[0]
        return var

    def compute(self, name: str, shape: Sequence[Like], body: Callable[..., Expr | Reduction]) -> Tensor:
        """A stage whose element at [args] is `body(*args)`; the parameter names of `body` name the loops."""
        self._new(name)
        space = self._space(name, shape, body)
        value = body(*(it.var for it in space))
        inner = value.value if isinstance(value, Reduction) else value
        if not isinstance(inner, Expr):
            raise IRError(f"{self.name}: the function of stage '{name}' returns {inner!r}, not an expression")
        target = tuple(it.var for it in space)
        buffer = Buffer(name, tuple(_longest(it.extent) for it in space), inner.dtype)
        reduce: tuple[Iter, ...] = ()
        store, init = Store(name, target, inner), None
        if isinstance(value, Reduction):
            reduce = tuple(Iter(a, self._extent_of(name, a), "reduce") for a in value.axes)
            store = Store(name, target, value.combine(Load(name, target, inner.dtype), inner))
            init = Store(name, target, value.identity)
        block = Block(name, (*space, *reduce), (), store, init)
        self._check(block, inner)
        blocks: tuple[Block, ...] = (block,)
        if init is not None and any(lookups(it.extent) for it in reduce):  # there may be nothing to add up
            blocks = (Block(self._new(f"{name}_init"), space, (), init), replace(block, init=None))
        self._stages[name] = (buffer, blocks)
        return Tensor(buffer)

    def _space(self, name: str, shape: Sequence[Like], body: Callable[..., object]) -> tuple[Iter, ...]:
        """The iteration variables of a stage, named as the parameters of its function."""
        names = list(inspect.signature(body).parameters)
        if len(names) != len(shape):
            raise IRError(
                f"{self.name}: stage '{name}' has {len(shape)} dimensions, its function takes {len(names)} indices"
            )
        return tuple(Iter(Var(n), e, "space") for n, e in zip(names, self._shape(name, shape), strict=True))

    def program(self, *outputs: Tensor) -> Program:
        """The program: one loop nest per stage, in the order of definition."""
        names = tuple(t.name for t in outputs)
        made = {b.name for b, _ in self._stages.values()}
        for n in names:
            if n not in made:
                raise IRError(f"{self.name}: output '{n}' is not a stage; stages: {', '.join(self._stages)}")
        blocks = [b for _, parts in self._stages.values() for b in parts]
        read = {ld.buffer for b in blocks for e in (*b.store.indices, b.store.value) for ld in loads(e)}
        for n in made:
            if n not in (*names, *self._states) and n not in read:
                raise IRError(f"{self.name}: stage '{n}' is neither an output nor read by another stage")
        taken: set[str] = set()
        body = seq(*(_nest(block, taken) for block in blocks))
        inputs = {**self._inputs, **{n: b for n, b in self._states.items() if n not in names}}
        buffers = {**inputs, **{b.name: b for b, _ in self._stages.values()}}
        updates = tuple(n for n in names if n in self._states)
        program = Program(self.name, tuple(inputs), names, buffers, body, updates=updates)
        verify(program)
        return program

    def _new(self, name: str) -> str:
        if name in self._inputs or name in self._states or name in self._stages:
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

    def _check(self, block: Block, *values: Expr) -> None:
        known = {it.var for it in block.iters}
        if len(known) != len(block.iters):
            raise IRError(
                f"{self.name}: stage '{block.name}' uses an index name twice: {[i.var.name for i in block.iters]}"
            )
        for v in sorted({v for e in values for v in variables(e)} - known, key=lambda v: v.name):
            if v.role == "iter":
                raise IRError(
                    f"{self.name}: stage '{block.name}' uses '{v}', which it neither iterates nor reduces over"
                )
        tensors = {*self._inputs, *self._states, *self._stages}
        for ld in (ld for e in values for ld in loads(e)):
            if ld.buffer not in tensors:
                raise IRError(
                    f"{self.name}: stage '{block.name}' reads '{ld.buffer}', which is not a tensor of this builder"
                )


def _longest(extent: Expr) -> Expr:
    """The extent of a buffer that holds as many elements as data may ask for."""
    most = extent.below - 1 if isinstance(extent, Lookup) else extent
    return ONE if most == ZERO else most


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
