"""Writing a program with task mappings: the body of a `for` over a mapping runs once, inside loops of the program.

with Writer("scale") as p:
    X, Y = p.input("X", (m, n)), p.output("Y", (m, n))
    with p.cores(2) as core, p.lanes(16) as lane:
        for i, j in (spatial(2, 1) * repeat(m // 2, n // 16) * spatial(1, 16)).on(core * 16 + lane):
            Y[i, j] = X[i, j] * 2.0
program = p.program()

A repeat becomes loops, a spatial becomes arithmetic on the worker, a call the loops that its intrinsic replaces.  Cores
share a parallel loop; lanes run in lock step, so their vectorised loop stands around each statement by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from searchlab.errors import IRError, ScheduleError, SpaceError
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ZERO, Const, Expr, Like, Load, Var, all_of, const, index, select, value_of
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Buffer, Iter, Loop, Stmt, Store, seq
from searchlab.ir.verify import verify
from searchlab.ir.walk import Substitution, variables
from searchlab.schedule import Schedule
from spaces.task_mapping.expand import Expansion
from spaces.task_mapping.mapping import Index, TaskMapping, origin, writers


@dataclass(frozen=True)
class Array:
    """A buffer of the program that is being written: reading gives an expression, assigning makes a statement."""

    writer: Writer
    buffer: Buffer
    init: Const | None = None

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The extents of the array."""
        return self.buffer.shape

    def __getitem__(self, key: Like | tuple[Like, ...]) -> Expr:
        return Load(self.buffer.name, self._indices(key), self.buffer.dtype)

    def get(self, *key: Like, default: float = 0) -> Expr:
        """The element, or a default value outside of the array."""
        at = self._indices(key)
        inside = all_of(c for i, e in zip(at, self.shape, strict=True) for c in (i >= 0, i < e))
        return select(inside, self[key], const(default, self.buffer.dtype))

    def __setitem__(self, key: Like | tuple[Like, ...], value: Expr | float) -> None:
        stored = value if isinstance(value, Expr) else const(value, self.buffer.dtype)
        self.writer.store(self, self._indices(key), stored)

    def _indices(self, key: Like | tuple[Like, ...]) -> Index:
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) != len(self.shape):
            raise SpaceError(f"'{self.buffer.name}' has {len(self.shape)} dimensions, indexed with {len(keys)}")
        return tuple(index(k) for k in keys)


@dataclass
class _Scope:
    """One level around the next statement: a loop, lanes, a condition, or tasks, with the statements so far."""

    loop: Loop | None = None
    lanes: Loop | None = None
    condition: Expr | None = None
    tasks: dict[Var, tuple[Expr, Expr]] = field(default_factory=dict)  # variable -> (binding, extent)
    body: list[Stmt] = field(default_factory=list)


@dataclass(frozen=True)
class _Surroundings:
    """All that is open around a statement: loops and tasks with their bindings and extents, and conditions."""

    loops: Mapping[Var, tuple[Expr, Expr]]
    tasks: Mapping[Var, tuple[Expr, Expr]]
    guards: list[Expr]

    @staticmethod
    def of(scopes: Sequence[_Scope]) -> _Surroundings:
        tasks = {v: t for s in scopes for v, t in s.tasks.items()}
        loops = {x.var: (x.var, x.extent) for s in scopes for x in (s.loop, s.lanes) if x is not None}
        found = _Surroundings(loops, tasks, [])
        return replace(found, guards=[found.resolve(s.condition) for s in scopes if s.condition is not None])

    @property
    def bound(self) -> dict[Var, tuple[Expr, Expr]]:
        """Loops and tasks together, from the outside in."""
        return {**self.loops, **self.tasks}

    @cached_property
    def resolve(self) -> Substitution:
        """Puts loops in place of tasks."""
        return Substitution({v: binding for v, (binding, _) in self.tasks.items()})

    def mixed(self, used: set[Var], space: set[Var]) -> dict[Var, Expr]:
        """Tasks that move in space and in a sum at once, which are taken apart into their loops."""
        return {v: self.tasks[v][0] for v in used & self.tasks.keys() if _is_mixed(self.tasks[v][0], space)}

    def limits(self, facts: Facts) -> list[Expr]:
        """That tasks are inside of what they are bound by, where it is not certain."""
        return [b < e for b, e in self.tasks.values() if not facts.proves(b < e)]


class Writer:
    """Collects one program; `with Writer(name) as p` makes it the one that mappings write to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._buffers: dict[str, Buffer] = {}
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._scopes = [_Scope()]
        self._names: set[str] = set()
        self._stored: set[str] = set()
        self._calls: dict[str, str] = {}  # outermost loop -> intrinsic

    def __enter__(self) -> Writer:
        writers.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        writers.remove(self)

    # --- arrays -------------------------------------------------------------------------------------------------------

    def input(self, name: str, shape: Sequence[Like], dtype: str = "float32") -> Array:
        """An array that the caller passes in."""
        self._inputs.append(name)
        return self._array(name, shape, dtype, "global", None)

    def output(self, name: str, shape: Sequence[Like], dtype: str = "float32", init: float | None = None) -> Array:
        """An array that the program fills; with `init`, what `+=` adds to begins with that value."""
        self._outputs.append(name)
        return self._array(name, shape, dtype, "global", init)

    def local(self, name: str, shape: Sequence[Like], dtype: str = "float32", init: float | None = None) -> Array:
        """An array of the program itself, such as a packed panel; it lives where it is used, as small as can be."""
        return self._array(name, shape, dtype, "local", init)

    def _array(self, name: str, shape: Sequence[Like], dtype: str, scope: str, init: float | None) -> Array:
        if name in self._buffers or not name.isidentifier():
            raise SpaceError(f"{self.name}: '{name}' is not a free name for an array")
        self._buffers[name] = Buffer(name, tuple(index(e) for e in shape), dtype, scope)
        return Array(self, self._buffers[name], None if init is None else const(init, dtype))

    # --- workers and conditions ---------------------------------------------------------------------------------------

    @contextmanager
    def cores(self, count: Like, name: str = "core") -> Iterator[Expr]:
        """Workers that share a parallel loop; the number of each."""
        with self._loop(Var(self._fresh(name)), index(count), "parallel") as worker:
            yield worker

    @contextmanager
    def lanes(self, count: Like, name: str = "lane") -> Iterator[Expr]:
        """Workers that are the lanes of vectors: all of them run a statement before any of them runs the next."""
        var = Var(self._fresh(name))
        with self._open(_Scope(lanes=Loop(var, index(count), Store("", (), ZERO), LoopKind.VECTORIZED))):
            yield var

    @contextmanager
    def when(self, *conditions: Expr) -> Iterator[None]:
        """Statements inside run only where the conditions hold."""
        with self._open(_Scope(condition=all_of(conditions))):
            yield

    @contextmanager
    def _loop(self, var: Var, extent: Expr, kind: str) -> Iterator[Var]:
        with self._open(_Scope(loop=Loop(var, extent, Store("", (), ZERO), LoopKind(kind)))):
            yield var

    @contextmanager
    def _open(self, scope: _Scope) -> Iterator[None]:
        self._scopes.append(scope)
        yield
        if self._scopes.pop() is not scope:
            raise SpaceError(f"{self.name}: a loop was left by something else than the end of its body")
        if not scope.body:
            return
        body = seq(*scope.body)
        if scope.loop is not None:
            body = Loop(scope.loop.var, scope.loop.extent, body, scope.loop.kind)
        self._scopes[-1].body.append(body)

    def _fresh(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._names or name in self._buffers:
            number += 1
            name = f"{wanted}{number}"
        self._names.add(name)
        return name

    @property
    def facts(self) -> Facts:
        """The extents and bounds that are known where the next statement goes."""
        loops = [x for s in self._scopes for x in (s.loop, s.lanes) if x is not None]
        tasks = {v: extent for s in self._scopes for v, (_, extent) in s.tasks.items()}
        return Facts({**{lp.var: lp.extent for lp in loops}, **tasks})

    # --- statements ---------------------------------------------------------------------------------------------------

    def store(self, array: Array, indices: Index, value: Expr) -> None:
        """A statement: a block whose iteration variables are those of the loops and tasks that it uses."""
        name = array.buffer.name
        own = Load(name, indices, array.buffer.dtype)
        adds = own in value.children()
        if adds and array.init is None and name not in self._stored:
            raise SpaceError(
                f"{self.name}: '{name}' is added to before it is set; store to it first or give it an init"
            )
        if adds and array.init is not None and name in self._stored:
            raise SpaceError(
                f"{self.name}: '{name}' has an init, which begins one sum, and is stored to a second time; "
                "give it no init and store its first value"
            )
        self._stored.add(name)
        lanes = [s.lanes for s in self._scopes if s.lanes is not None]
        rename: dict[Var, Expr] = {lp.var: Var(self._fresh(lp.name)) for lp in lanes}
        init = Store(name, indices, array.init) if adds and array.init is not None else None
        body: Stmt = self._block(Store(name, indices, value), init, adds, Substitution(rename))
        for lp in reversed(lanes):
            var = rename[lp.var]
            assert isinstance(var, Var)
            body = Loop(var, lp.extent, body, lp.kind)
        self._scopes[-1].body.append(body)

    def _block(self, store: Store, init: Store | None, adds: bool, lane: Substitution) -> Block:
        facts, around = self.facts, _Surroundings.of(self._scopes)
        space = _variables(map(around.resolve, store.indices))
        used = _variables((*store.indices, store.value))
        if adds:
            mixed = around.mixed(used, space)
            store, init = _put(store, Substitution(mixed)), init and _put(init, Substitution(mixed))
            used = (used - mixed.keys()) | _variables(mixed.values())
        inner = {v: v if v in around.tasks else Var(self._fresh(f"v{v.name}")) for v in around.bound if v in used}
        iters, bindings = [], []
        for v, axis in inner.items():
            binding, extent = around.bound[v]
            iters.append(Iter(axis, extent, "reduce" if adds and _is_summed(binding, space) else "space"))
            bindings.append(lane(binding))
        put, name = Substitution(inner), self._fresh(f"{store.buffer}_{len(self._names)}")
        predicate = lane(facts.simplify(all_of([*around.limits(facts), *around.guards])))
        return Block(name, tuple(iters), tuple(bindings), _put(store, put), init and _put(init, put), predicate)

    # --- loops of mappings --------------------------------------------------------------------------------------------

    def open_tasks(
        self, mapping: TaskMapping, worker: Like, inside: Sequence[Like] | None, bound: Sequence[Like] | None
    ) -> Iterator[tuple[Var, ...]]:
        """The loops of a mapping in this program, as `TaskMapping.on` asks for them."""
        outer = origin(mapping.rank) if inside is None else tuple(index(i) for i in inside)
        if inside is not None and bound is None:
            raise SpaceError("on(worker, inside=...) needs the bound of the whole task")
        limit = mapping.task_shape if bound is None else bound
        for what, given in (("inside", outer), ("bound", limit)):
            if len(given) != mapping.rank:
                raise SpaceError(f"on(worker): {what} has {len(given)} numbers for a mapping of rank {mapping.rank}")
        number = index(worker)
        last, count = value_of(self.facts.upper(number)), value_of(mapping.num_workers)
        if last is not None and count is not None and last >= count:
            raise SpaceError(f"on(worker): '{number}' goes up to {last}, but the mapping has {count} workers")
        return self.tasks(mapping, number, outer, tuple(index(e) for e in limit))

    def tasks(self, mapping: TaskMapping, worker: Expr, inside: Index, bound: Index) -> Iterator[tuple[Var, ...]]:
        """Opens the loops of a mapping around what happens until the next step of the iterator."""
        inner = Expansion(
            lambda: self.facts,
            lambda extent, kind: self._loop(Var(self._fresh("r")), extent, kind),
            lambda loop, intrinsic: self._calls.update({loop.name: intrinsic}),
        )
        for found in inner.tasks(mapping.atoms, worker):
            scope = _Scope()
            names = tuple(Var(self._fresh(f"t{d}")) for d in range(mapping.rank))
            outer = Substitution({v: b for s in self._scopes for v, (b, _) in s.tasks.items()})
            for var, o, extent, t, limit in zip(names, inside, mapping.task_shape, found, bound, strict=True):
                scope.tasks[var] = self.facts.simplify(outer(o * extent + t)), limit
            with self._open(scope):
                yield names

    # --- the program --------------------------------------------------------------------------------------------------

    def program(self) -> Program:
        """The program as written."""
        if len(self._scopes) != 1:
            raise SpaceError(f"{self.name}: the program is asked for inside one of its loops")
        if not self._scopes[0].body:
            raise SpaceError(f"{self.name}: nothing was stored")
        program = Program(
            self.name, tuple(self._inputs), tuple(self._outputs), dict(self._buffers), seq(*self._scopes[0].body)
        )
        try:
            verify(program)
            s = Schedule(program)
            for loop, intrinsic in self._calls.items():
                s.tensorize(loop, intrinsic)
        except (IRError, ScheduleError) as e:
            raise SpaceError(str(e)) from e
        return replace(s.program, trace=())  # calls are written, too: there is no program that a trace would begin with


def _variables(expressions: Iterable[Expr]) -> set[Var]:
    return {v for e in expressions for v in variables(e)}


def _iterations(e: Expr) -> set[Var]:
    return {v for v in variables(e) if v.role == "iter"}


def _is_mixed(binding: Expr, space: set[Var]) -> bool:
    found = _iterations(binding)
    return bool(found & space) and not found <= space


def _is_summed(binding: Expr, space: set[Var]) -> bool:
    """Whether an axis of a sum moves through nothing but the sum."""
    found = _iterations(binding)
    return bool(found) and not found & space


def _put(s: Store, put: Substitution) -> Store:
    return Store(s.buffer, tuple(put(i) for i in s.indices), put(s.value))
