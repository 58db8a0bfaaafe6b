"""The algebra of task mappings: which worker runs which tasks, and in which order.

A mapping has a number of workers n, a task shape d, and gives every worker 0 <= w < n an ordered list of task indices.
Atoms are composed with `*`; the task of the outer mapping is scaled by the task shape of the inner one:

    f(w) = [outer * inner.task_shape + inner  for outer in f_outer(w // n_inner)  for inner in f_inner(w % n_inner)]

Extents are integers or knob expressions; a list of tasks needs integers, `on(worker)` writes programs with either.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from searchlab.errors import SpaceError
from searchlab.intrinsics import find_intrinsic
from searchlab.ir.expr import ONE, ZERO, Expr, Like, Var, index, value_of

Index = tuple[Expr, ...]
Kind = Literal["serial", "unrolled", "vectorized"]
KINDS: tuple[Kind, ...] = ("serial", "unrolled", "vectorized")
Function = Callable[[Any], Sequence[Sequence[Any]]]


@dataclass(frozen=True)
class Atom:
    """A mapping that is not composed of others."""

    shape: Index

    @property
    def workers(self) -> Expr:
        """How many workers it has."""
        return ONE

    def tasks(self, worker: int) -> Iterator[tuple[int, ...]]:
        """The tasks of a worker, in order."""
        raise NotImplementedError

    def along(self, d: int) -> Index:
        """The extents of the loops that it has in a dimension, outermost first."""
        return () if self.shape[d] == ONE else (self.shape[d],)


@dataclass(frozen=True)
class Repeat(Atom):
    """One worker runs all tasks; the dimension of rank 0 changes slowest.  `kind` says how its loops are run."""

    ranks: tuple[int, ...]
    kind: Kind = "serial"

    def tasks(self, worker: int) -> Iterator[tuple[int, ...]]:
        """All tasks, in the order of the ranks."""
        order = by_rank(self.ranks)
        shape = _integers(self.shape)
        for slow_to_fast in itertools.product(*(range(shape[d]) for d in order)):
            place = dict(zip(order, slow_to_fast, strict=True))
            yield tuple(place[d] for d in range(len(shape)))


@dataclass(frozen=True)
class Spatial(Atom):
    """As many workers as tasks, one each; neighbouring workers differ in the dimension of the last rank."""

    ranks: tuple[int, ...]

    @property
    def workers(self) -> Expr:
        """One for each task."""
        return product(self.shape)

    def tasks(self, worker: int) -> Iterator[tuple[int, ...]]:
        """The one task of a worker."""
        yield _integers(self.place(index(worker)))

    def place(self, worker: Expr) -> Index:
        """The task of a worker, which may be a symbol."""
        found: dict[int, Expr] = {}
        stride: Expr = ONE
        for d in reversed(by_rank(self.ranks)):
            digit = worker // stride
            found[d] = digit if self.ranks[d] == 0 else digit % self.shape[d]
            stride = stride * self.shape[d]
        return tuple(found[d] for d in range(len(self.shape)))


@dataclass(frozen=True)
class Called(Atom):
    """One worker runs all tasks at once, by a call of an intrinsic.

    `loops` are those of its description, outermost first: the dimension that each runs along, and its extent.
    """

    intrinsic: str
    loops: tuple[tuple[int, int], ...]

    def tasks(self, worker: int) -> Iterator[tuple[int, ...]]:
        """All tasks, in the order of the description."""
        for places in itertools.product(*(range(n) for _, n in self.loops)):
            found = [0] * len(self.shape)
            for (d, n), i in zip(self.loops, places, strict=True):
                found[d] = found[d] * n + i
            yield tuple(found)

    def along(self, d: int) -> Index:
        """The loops of the description that run along a dimension."""
        return tuple(index(n) for at, n in self.loops if at == d)


@dataclass(frozen=True)
class Custom(Atom):
    """The tasks of a worker by a function, which gives a list of as many indices as there are dimensions."""

    count: Expr
    function: Function

    @property
    def workers(self) -> Expr:
        """As many as were said."""
        return self.count

    def tasks(self, worker: int) -> Iterator[tuple[int, ...]]:
        """The tasks that the function lists."""
        return (_integers(t) for t in self.listed(worker))

    def listed(self, worker: Like) -> list[Index]:
        """The tasks that the function gives, checked for their rank."""
        found = [tuple(index(i) for i in task) for task in self.function(worker)]
        wrong = [t for t in found if len(t) != len(self.shape)]
        if wrong:
            raise SpaceError(
                f"custom mapping: task {wrong[0]} does not have the {len(self.shape)} indices of its task shape"
            )
        return found


@dataclass(frozen=True)
class Projection(Atom):
    """Another mapping with some coordinates set to 0: its workers then share tasks."""

    inner: TaskMapping
    dims: tuple[int, ...]

    @property
    def workers(self) -> Expr:
        """As many as the inner mapping has."""
        return self.inner.num_workers

    def tasks(self, worker: int) -> Iterator[tuple[int, ...]]:
        """The tasks of the inner mapping, projected."""
        return (tuple(0 if d in self.dims else i for d, i in enumerate(t)) for t in self.inner(worker))


@dataclass(frozen=True, eq=False)
class TaskMapping:
    """A composition of atoms, outermost first."""

    atoms: tuple[Atom, ...]

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.atoms[0].shape)

    @property
    def num_workers(self) -> Expr:
        """How many workers there are."""
        return product(a.workers for a in self.atoms)

    @property
    def task_shape(self) -> Index:
        """How many tasks there are along each dimension."""
        return tuple(product(a.shape[d] for a in self.atoms) for d in range(self.rank))

    def __mul__(self, inner: TaskMapping) -> TaskMapping:
        if not isinstance(inner, TaskMapping):
            return NotImplemented
        if inner.rank != self.rank:
            raise SpaceError(f"mappings of rank {self.rank} and {inner.rank} cannot be composed: ranks must be equal")
        if isinstance(self.atoms[-1], Called):
            raise SpaceError(f"{self} ends with a call, which has nothing inside; compose it with what is around it")
        return TaskMapping(self.atoms + inner.atoms)

    def __call__(self, worker: int) -> list[tuple[int, ...]]:
        """The tasks of a worker, in order."""
        workers = _integers((self.num_workers,))[0]
        if not 0 <= worker < workers:
            raise SpaceError(f"there is no worker {worker}: the mapping has {workers}")
        return _tasks(self.atoms, worker)

    def mapping(self, worker: int) -> list[tuple[int, ...]]:
        """The same as calling the mapping."""
        return self(worker)

    def on(
        self, worker: Like = 0, inside: Sequence[Like] | None = None, bound: Sequence[Like] | None = None
    ) -> Iterator[tuple[Var, ...]]:
        """For the program that is being written: loops around the body of a `for`, whose indices it yields.

        `inside` is the task of an outer mapping that this one refines, so that nested loops mean their composition;
        `bound` is the true task shape where tiles do not divide it: nothing is stored outside.
        """
        if not writers:
            raise SpaceError("on(worker) writes a program: use it inside `with Writer(name)`")
        return writers[-1].open_tasks(self, worker, inside, bound)

    def __eq__(self, other: object) -> bool:
        """Equal by what they do; with symbols in them, by how they are written."""
        if not isinstance(other, TaskMapping):
            return NotImplemented
        if self.num_workers != other.num_workers or self.task_shape != other.task_shape:
            return False
        count = value_of(self.num_workers)
        if count is None or any(value_of(e) is None for e in self.task_shape):
            return self.atoms == other.atoms
        return all(self(w) == other(w) for w in range(count))

    def __hash__(self) -> int:
        return hash((self.num_workers, self.task_shape))

    def __repr__(self) -> str:
        return " * ".join(map(_text, self.atoms))


class TaskWriter(Protocol):
    """A program under construction that a mapping can write its loops to."""

    def open_tasks(
        self, mapping: TaskMapping, worker: Like, inside: Sequence[Like] | None, bound: Sequence[Like] | None
    ) -> Iterator[tuple[Var, ...]]:
        """Loops around what happens until the next step of the iterator, which gives their indices."""


writers: list[TaskWriter] = []  # those that are open, the current one last


def _tasks(atoms: Sequence[Atom], worker: int) -> list[tuple[int, ...]]:
    first, *rest = atoms
    if not rest:
        return list(first.tasks(worker))
    workers = math.prod(_integers(a.workers for a in rest))
    scale = [math.prod(_integers(a.shape[d] for a in rest)) for d in range(len(first.shape))]
    inner = _tasks(rest, worker % workers)
    return [
        tuple(o * s + i for o, s, i in zip(outer, scale, task, strict=True))
        for outer in first.tasks(worker // workers)
        for task in inner
    ]


def by_rank(ranks: Sequence[int]) -> list[int]:
    """The dimensions from the slowest to the fastest."""
    return sorted(range(len(ranks)), key=lambda d: ranks[d])


def product(extents: Iterator[Expr] | Sequence[Expr] | Any) -> Expr:
    """The product of extents."""
    total: Expr = ONE
    for e in extents:
        total = total * e
    return total


def _integers(extents: Any) -> tuple[int, ...]:
    found = []
    for e in extents:
        known = value_of(e)
        if known is None:
            raise SpaceError(f"'{e}' is a symbol: a list of tasks needs integers; write programs with on(worker)")
        found.append(known)
    return tuple(found)


def _text(atom: Atom) -> str:
    shape = ", ".join(map(str, atom.shape))
    if isinstance(atom, Projection):
        return f"projection({atom.inner}, {{{', '.join(f'{d}: 0' for d in atom.dims)}}})"
    if isinstance(atom, Custom):
        return f"custom(({shape}), {atom.count})"
    if isinstance(atom, Called):
        return f"call('{atom.intrinsic}', {tuple(d for d, _ in atom.loops)}, rank={len(atom.shape)})"
    assert isinstance(atom, (Repeat, Spatial))
    plain = atom.ranks == tuple(range(len(atom.ranks)))
    more = "" if plain else f", ranks={atom.ranks}"
    more += f", kind='{atom.kind}'" if isinstance(atom, Repeat) and atom.kind != "serial" else ""
    return f"{type(atom).__name__.lower()}({shape}{more})"


# --- making mappings --------------------------------------------------------------------------------------------------


def repeat(*shape: Like, ranks: Sequence[int] | None = None, kind: Kind = "serial") -> TaskMapping:
    """One worker runs all tasks of the shape, in row-major order unless ranks are given (0 changes slowest)."""
    if kind not in KINDS:
        raise SpaceError(f"repeat: unknown kind of loop '{kind}'; known: {', '.join(KINDS)}")
    extents = _shape("repeat", shape)
    return TaskMapping((Repeat(extents, _ranks("repeat", ranks, len(extents)), kind),))


def spatial(*shape: Like, ranks: Sequence[int] | None = None) -> TaskMapping:
    """Every task of the shape has a worker of its own, numbered in row-major order unless ranks are given."""
    extents = _shape("spatial", shape)
    return TaskMapping((Spatial(extents, _ranks("spatial", ranks, len(extents))),))


def call(intrinsic: str, dims: Sequence[int], rank: int) -> TaskMapping:
    """One worker runs the tasks of an intrinsic at once; `dims` says which dimension each of its loops runs along.

    It is the last of a composition: call("avx2_u8s8_8x4", (1, 2), rank=3) has 1 x 8 x 4 tasks.
    """
    extents = [value_of(lp.extent) or 0 for lp in find_intrinsic(intrinsic).nest.loops]
    if len(dims) != len(extents) or not all(0 <= d < rank for d in dims):
        shape = " x ".join(map(str, extents))
        raise SpaceError(
            f"call: dimensions {tuple(dims)} of {rank} for '{intrinsic}', whose loops are {shape}; "
            f"accepted: a dimension from 0 to {rank - 1} for each loop"
        )
    loops = tuple(zip(dims, extents, strict=True))
    shape_ = tuple(index(math.prod(n for at, n in loops if at == d)) for d in range(rank))
    return TaskMapping((Called(shape_, intrinsic, loops),))


def custom(shape: Sequence[Like], workers: Like, function: Function) -> TaskMapping:
    """The tasks of a worker by a function of its number, which gives an ordered list of index tuples."""
    return TaskMapping((Custom(_shape("custom", shape), _shape("custom", [workers])[0], function),))


def projection(mapping: TaskMapping, dims: Mapping[int, int]) -> TaskMapping:
    """The mapping with the given coordinates set to 0, of size 1 in those dimensions: workers share tasks."""
    for d, value in dims.items():
        if value != 0 or not 0 <= d < mapping.rank:
            raise SpaceError(f"projection: {{{d}: {value}}} of rank {mapping.rank}; accepted: {{dimension: 0}}")
    shape = tuple(ONE if d in dims else e for d, e in enumerate(mapping.task_shape))
    return TaskMapping((Projection(shape, mapping, tuple(sorted(dims))),))


def auto_map(shape: Sequence[int], workers: int) -> TaskMapping:
    """repeat * spatial for a shape and a number of workers; neighbouring workers take neighbouring tasks."""
    extents = _integers(_shape("auto_map", shape))
    left, here = workers, []
    for extent in reversed(extents):
        here.append(math.gcd(left, extent))
        left //= here[-1]
    here.reverse()
    if workers < 1 or left != 1:
        raise SpaceError(f"auto_map: {workers} workers cannot share {'x'.join(map(str, extents))} tasks evenly")
    return repeat(*(e // h for e, h in zip(extents, here, strict=True))) * spatial(*here)


def _shape(what: str, shape: Sequence[Like]) -> Index:
    extents = tuple(index(e) for e in shape)
    if not extents:
        raise SpaceError(f"{what}: a task shape has at least one dimension")
    small = [e for e in extents if (value_of(e) if value_of(e) is not None else 1) < 1]  # type: ignore[operator]
    if small:
        raise SpaceError(f"{what}: extent {small[0]} is below 1")
    return extents


def _ranks(what: str, ranks: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    found = tuple(range(rank)) if ranks is None else tuple(ranks)
    if sorted(found) != list(range(rank)):
        raise SpaceError(f"{what}: ranks {found} are not an order of the {rank} dimensions: 0 to {rank - 1}, each once")
    return found


def origin(rank: int) -> Index:
    """The task (0, ..., 0)."""
    return (ZERO,) * rank
