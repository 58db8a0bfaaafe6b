"""Barriers: where the threads of a block must wait for each other, found by proof and not by convention.

An access to common memory is *owned* if the element tells which thread makes it: `As[ty*4 + i, tx]` is accessed by the
threads (x0 // 4, x1), whatever i is.  Two accesses, one of them a store, cannot meet in one element from two threads if
they have the same owners; in every other case a barrier goes between them.  Threads that may meet within one statement
cannot be separated, nor can blocks: such kernels are refused, as are those that need a barrier where only some threads
come along.  So a kernel that is accepted has no race, on the assumption that its loops and conditions are as written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import lcm, prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from searchlab.errors import BuildError
from searchlab.ir.apart import recovered
from searchlab.ir.bounds import Facts
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import ONE, ZERO, Binary, Compare, Expr, Var, all_of, conditions, index, value_of
from searchlab.ir.loopkind import BLOCKS, THREADS, LoopKind
from searchlab.ir.stmt import Alloc, Barrier, If, Loop, Prefetch, Seq, Stmt, Store, Tensorized, seq
from searchlab.ir.thread_stmt import AsyncCopy, Shuffle
from searchlab.ir.visitor import Visitor
from searchlab.ir.walk import Substitution, loads, variables

_MOST_COUNTED = 1 << 18  # iterations that are tried one by one
Path = tuple[Stmt, ...]
Owner = tuple[Expr, ...] | None  # the thread, or block, that accesses an element; None: not proved


@dataclass(frozen=True)
class CommonAccess:
    """An access to common memory, with the thread that makes it as a function of the element.

    `phase` says that the element is in half (loop + number) % 2 of a double buffer.  What is `deferred` is done at some
    time before the next barrier.
    """

    buffer: str
    indices: tuple[Expr, ...]
    writes: bool
    thread: Owner
    phase: tuple[Var, int] | None = None
    deferred: bool = False

    def meets(self, other: CommonAccess) -> bool:
        """Whether two threads may access one element, and one of them write it.

        Deferred stores may even meet loads of their own threads.  No element is copied twice between two barriers.
        """
        late = (self.deferred and not other.writes) or (other.deferred and not self.writes)
        same = _same(self.thread, other.thread) and not late
        return self.clashes(other) and not same and not self._in_another_half(other)

    def after(self, loop: Var, *, ended: bool) -> CommonAccess:
        """The access as the next iteration sees it, or what follows the loop: halves have changed places."""
        if self.phase is None or self.phase[0] != loop:
            return self
        return replace(self, phase=None if ended else (loop, 1 - self.phase[1]))

    def _in_another_half(self, other: CommonAccess) -> bool:
        a, b = self.phase, other.phase
        return a is not None and b is not None and a[0] == b[0] and a[1] != b[1]

    def clashes(self, other: CommonAccess) -> bool:
        """Whether they are accesses of one buffer, one of which writes."""
        return self.buffer == other.buffer and (self.writes or other.writes)


def _same(a: Owner, b: Owner) -> bool:
    return a is not None and a == b


def with_barriers(where: str, body: Stmt, common: Collection[str], outside: Collection[str]) -> Stmt:
    """The kernel with the barriers it needs; `common` names the buffers that threads share, `outside` those of them
    that blocks share."""
    found = list(_accesses(body, (), frozenset(common)))
    shared_by_blocks = [(path, access, _block_of(path, access)) for path, access in found if access.buffer in outside]
    for _, access, block in shared_by_blocks:
        for _, other, another in shared_by_blocks:
            if access.clashes(other) and not _same(block, another):
                raise BuildError(f"{where}: blocks may access one element of '{access.buffer}' while another writes it")
    for path, access in found:
        for other in _own(path[-1], path[:-1], frozenset(common)):
            if access.clashes(other) and _meet_at_once(access, other, path[:-1]):
                raise BuildError(
                    f"{where}: in '{access.buffer}' one thread may write what another accesses in the same statement; "
                    "bind loops that carry no sum to threads, loops of nothing but a sum to threadIdx.x, or use rfactor"
                )
    placed, _ = _Placement(where, frozenset(common)).visit(body, _Reached((), frozenset(), True))
    return placed


def _meet_at_once(a: CommonAccess, b: CommonAccess, path: Path) -> bool:
    """Whether two threads may make two accesses of one statement to one element, in the same iterations."""
    if a.indices == b.indices and a.thread is not None:  # it makes both, in whichever iterations
        return False
    return not _same(*(_thread_at_once(x.indices, *_around(path)) for x in (a, b)))


def check_private(where: str, body: Stmt, names: Collection[str]) -> None:
    """Refuses buffers in local memory of which a thread accesses elements that another thread writes."""
    found = [access for _, access in _accesses(body, (), frozenset(names))]
    for access in found:
        if any(access.meets(other) for other in found) and not _alone(body, access.buffer):
            raise BuildError(f"{where}: '{access.buffer}' is in local memory, but threads access each other's elements")


def _alone(body: Stmt, buffer: str) -> bool:
    """Whether no access of a buffer depends on the thread: then each computes all of its own copy."""
    axes = {Var(a.value) for a in THREADS}
    paths = [(path, i) for path, indices in _places(body, (), buffer) for i in indices]
    guarded = any(variables(s.condition) & axes for path, _ in paths for s in path if isinstance(s, If))
    return not guarded and not any(variables(i) & axes for _, i in paths)


def _places(s: Stmt, path: Path, buffer: str) -> Iterator[tuple[Path, tuple[Expr, ...]]]:
    here = (*path, s)
    for x in s.own_stores():
        if x.buffer == buffer:
            yield here, x.indices
    for e in s.own_expressions():
        yield from ((here, ld.indices) for ld in loads(e) if ld.buffer == buffer)
    for child in s.children():
        yield from _places(child, here, buffer)


# --- owners -----------------------------------------------------------------------------------------------------------


def _accesses(s: Stmt, path: Path, common: frozenset[str]) -> Iterator[tuple[Path, CommonAccess]]:
    """All accesses of a statement to common memory, each with the statements around it and its own."""
    here = (*path, s)
    for access in _own(s, path, common):
        yield here, access
    for child in s.children():
        yield from _accesses(child, here, common)


def _own(s: Stmt, path: Path, common: frozenset[str]) -> Iterator[CommonAccess]:
    """The accesses of a statement itself."""
    if isinstance(s, Prefetch):
        return
    for x in s.own_stores():
        if x.buffer in common:
            late = isinstance(x, AsyncCopy)
            thread, phase = _thread_among(x.indices, *_around(path)), _phase(x.indices, path)
            yield CommonAccess(x.buffer, x.indices, True, thread, phase, late)
    for e in s.own_expressions():
        for ld in loads(e):
            if ld.buffer in common:
                thread, phase = _thread_among(ld.indices, *_around(path)), _phase(ld.indices, path)
                yield CommonAccess(ld.buffer, ld.indices, False, thread, phase)


def _phase(indices: tuple[Expr, ...], path: Path) -> tuple[Var, int] | None:
    """The half of a double buffer that an access is in, as its first index tells: (k + 1) % 2.

    Only of loops that every thread runs by itself: two threads are never in the same iteration of threadIdx.x.
    """
    first = indices[0] if indices else ZERO
    if not isinstance(first, Binary) or first.op != "mod" or first.b != index(2):
        return None
    for loop in (s for s in path if isinstance(s, Loop) and s.kind in (LoopKind.SERIAL, LoopKind.UNROLLED)):
        number = value_of(first.a - loop.var)
        if number is not None:
            return loop.var, number % 2
    return None


def _block_of(path: Path, access: CommonAccess) -> Owner:
    """The block that accesses an element."""
    return _block_among(access.indices, *_around(path))


def _around(path: Path) -> tuple[tuple[_Around, ...], tuple[Expr, ...]]:
    """The loops and the conditions around an access."""
    loops = tuple(_Around(s.var, s.extent, s.kind) for s in path if isinstance(s, Loop))
    return loops, tuple(c for s in path if isinstance(s, If) for c in conditions(s.condition))


class _Around(NamedTuple):
    """A loop without its body."""

    var: Var
    extent: Expr
    kind: LoopKind


Loops = Sequence[_Around]


@lru_cache(maxsize=8192)  # candidates of a search have many accesses in common
def _thread_among(indices: tuple[Expr, ...], loops: Loops, asked: tuple[Expr, ...]) -> Owner:
    """The thread that accesses an element, in whichever iterations of the loops."""
    loops = [_narrowed(lp, asked) for lp in loops]
    found = _owner(indices, loops, THREADS, [lp for lp in loops if lp.kind not in BLOCKS], asked)
    return found if found is not None else _counted_owner(indices, loops, asked)


@lru_cache(maxsize=8192)
def _thread_at_once(indices: tuple[Expr, ...], loops: Loops, asked: tuple[Expr, ...]) -> Owner:
    """The thread that accesses an element in given iterations, which may be another one in the next."""
    loops = [_narrowed(lp, asked) for lp in loops]
    at_once = [lp for lp in loops if lp.kind in THREADS or lp.kind == LoopKind.VECTORIZED]
    found = _owner(indices, loops, THREADS, at_once, asked)
    return found if found is not None else _counted_owner(indices, loops, asked)


@lru_cache(maxsize=8192)
def _block_among(indices: tuple[Expr, ...], loops: Loops, asked: tuple[Expr, ...]) -> Owner:
    loops = [_narrowed(lp, asked) for lp in loops]
    found = _owner(indices, loops, BLOCKS, loops, asked)
    return found if found is not None else _counted_owner(indices, loops, asked, BLOCKS)


def _counted_owner(
    indices: tuple[Expr, ...], loops: Loops, asked: Sequence[Expr], axes: tuple[LoopKind, ...] = THREADS
) -> Owner:
    """What stands for the owner, if trying all iterations shows that no two threads (or blocks) access one element.

    That is for tiles whose elements are dealt out in the order of their digits: there is a proof, but a long one.  The
    same indices in the same loops under the same conditions have the same owner.
    """
    used = frozenset[Var]().union(*map(variables, indices))
    values: dict[str, Any] = {a.value: 0 for a in axes} | {lp.var.name: 0 for lp in loops}
    loops = [lp for lp in loops if lp.extent != ONE]
    unknown = {lp.var.name for lp in loops if lp.kind not in axes and lp.var not in used}
    loops = [lp for lp in loops if lp.var.name not in unknown]
    extents = [value_of(lp.extent) or 0 for lp in loops]
    if not 0 < prod(extents) <= _MOST_COUNTED or not {v.name for v in used} <= values.keys() - unknown:
        return None
    limits = [c for c in asked if not {v.name for v in variables(c)} & unknown]
    fewer = [lp._replace(extent=index(_period(lp, indices))) for lp in loops]
    left = [c for c in limits if not variables(c) & {a.var for a, b in zip(loops, fewer, strict=True) if a != b}]
    one = _have_one_owner(indices, fewer, left, axes, values)
    if not one and (left == limits or not _have_one_owner(indices, loops, limits, axes, values)):
        return None
    return (*indices, *(lp.var for lp in loops), *(lp.extent for lp in loops), *limits)


def _period(lp: _Around, indices: tuple[Expr, ...]) -> int:
    """The iterations of a loop after which indices repeat, as the halves of double buffers do, or all of them."""
    found = []

    def repeats(e: Expr) -> bool:
        if lp.var not in variables(e):
            return True
        if isinstance(e, Binary) and e.op == "mod" and lp.var not in variables(e.a - lp.var):
            found.append(value_of(e.b) or 0)
            return found[-1] > 0
        return not isinstance(e, Var) and all(map(repeats, e.children()))

    whole = value_of(lp.extent) or 0
    return min(whole, lcm(*found)) if all(map(repeats, indices)) and found else whole


def _have_one_owner(
    indices: tuple[Expr, ...],
    loops: Loops,
    limits: Sequence[Expr],
    axes: tuple[LoopKind, ...],
    others: Mapping[str, Any],
) -> bool:
    """Whether in no iterations within limits two threads (or blocks) access one element; `others` stand still."""
    extents = [value_of(lp.extent) or 0 for lp in loops]
    grid = np.indices(extents).reshape(len(loops), prod(extents))
    values = {**others, **{lp.var.name: row for lp, row in zip(loops, grid, strict=True)}}
    runs = np.ones(grid.shape[1], np.bool_)
    for c in limits:
        runs &= np.broadcast_to(evaluate(c, values), runs.shape)
    places = [evaluate(i, values) for i in indices]
    if axes is THREADS:  # of one block, whichever it is
        places += [values[lp.var.name] for lp in loops if lp.kind in BLOCKS]
    element = _numbered([np.broadcast_to(x, runs.shape)[runs] for x in places])
    owner = _numbered([np.broadcast_to(values[a.value], runs.shape)[runs] for a in axes])
    return _determines(element, owner)


def _determines(element: npt.NDArray[np.int64], owner: npt.NDArray[np.int64]) -> bool:
    """Whether each element has one owner."""
    if element.max(initial=0) < 4 * _MOST_COUNTED:  # faster than sorting them
        last = np.zeros(int(element.max(initial=0)) + 1, np.int64)
        last[element] = owner
        return bool((last[element] == owner).all())
    order = np.argsort(element)
    again = np.diff(element[order]) == 0
    return not (np.diff(owner[order])[again] != 0).any()


def _numbered(digits: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """One number for each combination of digits."""
    total = np.zeros(len(digits[0]), np.int64)
    for d in digits:
        low = int(d.min(initial=0))
        total = total * (int(d.max(initial=0)) - low + 1) + (d - low)
    return total


def _narrowed(lp: _Around, asked: Sequence[Expr]) -> _Around:
    """A loop with the iterations that a condition `i < n` leaves."""
    for c in asked:
        if isinstance(c, Compare) and c.op == "lt" and c.a == lp.var and (value_of(c.b - lp.extent) or 0) < 0:
            lp = lp._replace(extent=c.b)
    return lp


def _owner(
    indices: tuple[Expr, ...], loops: Loops, kinds: tuple[LoopKind, ...], moving: Loops, asked: Sequence[Expr]
) -> Owner:
    """Each axis of these kinds as a function of the element: `recovered`, or 0 where only the first thread comes."""
    axes, facts = [lp for lp in loops if lp.kind in kinds], Facts({lp.var: lp.extent for lp in loops})
    once = Substitution({lp.var: ZERO for lp in moving if lp.extent == ONE})
    places = [(once(i), Var(f"x{d}")) for d, i in enumerate(indices)]
    extents = {lp.var: lp.extent for lp in moving if lp.extent != ONE}
    found = recovered(places, extents, once(all_of(asked)), facts, [lp.var for lp in axes])
    owner: list[Expr] = [index(len(places))]  # places of other ranks are other functions of the element
    for lp in axes:
        if lp.extent == ONE or lp.var.equals(0) in asked:
            owner.append(ZERO)
        elif lp.var in found:
            owner.append(found[lp.var])
        else:
            return None
    return tuple(owner)


# --- placement --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reached:
    """The statements around the current one, accesses since the last barrier, and whether all threads come here."""

    path: Path
    pending: frozenset[CommonAccess]
    uniform: bool

    def inside(self, s: Stmt, pending: frozenset[CommonAccess], uniform: bool = True) -> _Reached:
        return _Reached((*self.path, s), pending, self.uniform and uniform)


Placed = tuple[Stmt, frozenset[CommonAccess]]  # a statement with its barriers, and the accesses that no barrier follows
_Place = Callable[[frozenset[CommonAccess]], Placed]


@dataclass(frozen=True)
class _Placement(Visitor[[_Reached], Placed]):
    where: str
    common: frozenset[str]
    known: dict[tuple[int, ...], frozenset[CommonAccess]] = field(default_factory=dict)

    def other(self, s: Stmt, state: _Reached) -> Placed:
        raise BuildError(f"{self.where}: cannot place barriers around a {type(s).__name__.lower()}")

    def visit_prefetch(self, s: Prefetch, state: _Reached) -> Placed:
        return s, state.pending

    def visit_store(self, s: Store | Shuffle, state: _Reached) -> Placed:
        own = self.within(s, state)
        return self.after_barrier(s, own, state, lambda pending: (s, pending | own))

    def visit_shuffle(self, s: Shuffle, state: _Reached) -> Placed:
        """All lanes of a warp must come to a shuffle, as all threads to a barrier."""
        if not state.uniform:
            raise BuildError(f"{self.where}: threads would have to exchange values where only some of them come")
        return self.visit_store(s, state)

    def visit_tensorized(self, s: Tensorized, state: _Reached) -> Placed:
        """All lanes of a warp must come to what it does together."""
        if not state.uniform:
            raise BuildError(f"{self.where}: a warp would have to call '{s.intrinsic}' where only some threads come")
        own = self.within(s, state)
        return self.after_barrier(s, own, state, lambda pending: (s, pending | own))

    def visit_seq(self, s: Seq, state: _Reached) -> Placed:
        parts, pending = [], state.pending
        for part in s.body:
            placed, pending = self.visit(part, _Reached((*state.path, s), pending, state.uniform))
            parts.append(placed)
        return seq(*parts), pending

    def visit_alloc(self, s: Alloc, state: _Reached) -> Placed:
        body, pending = self.visit(s.body, state.inside(s, state.pending))
        return Alloc(s.buffer, body), pending

    def visit_if(self, s: If, state: _Reached) -> Placed:
        uniform = not _differs(s.condition)

        def inside(pending: frozenset[CommonAccess]) -> Placed:
            body, left = self.visit(s.body, state.inside(s, pending, uniform))
            return If(s.condition, body), pending | left | frozenset(_own(s, state.path, self.common))

        return self.after_barrier(s, self.within(s, state), state, inside)

    def visit_loop(self, s: Loop, state: _Reached) -> Placed:
        if s.kind in THREADS or s.kind in BLOCKS:
            body, left = self.visit(s.body, state.inside(s, state.pending))
            return s.with_body(body), left
        uniform = not _differs(s.extent) and s.kind != LoopKind.VECTORIZED

        def inside(pending: frozenset[CommonAccess]) -> Placed:
            while True:  # what an iteration leaves is what the next one begins with
                body, left = self.visit(s.body, state.inside(s, pending, uniform))
                again = frozenset(access.after(s.var, ended=False) for access in left)
                if again <= pending:
                    left = left if (value_of(s.extent) or 0) >= 1 else pending
                    return s.with_body(body), frozenset(access.after(s.var, ended=True) for access in left)
                pending |= again

        return self.after_barrier(s, self.within(s, state), state, inside)

    def within(self, s: Stmt, state: _Reached) -> frozenset[CommonAccess]:
        """The accesses in a statement, found once: loops ask for those of all statements inside them."""
        return self._within(s, state.path, tuple(map(id, state.path)))

    def _within(self, s: Stmt, path: Path, ids: tuple[int, ...]) -> frozenset[CommonAccess]:
        key = (*ids, id(s))
        found = self.known.get(key)
        if found is None:
            inside = (self._within(child, (*path, s), key) for child in s.children())
            found = self.known[key] = frozenset(_own(s, path, self.common)).union(*inside)
        return found

    def after_barrier(self, s: Stmt, own: frozenset[CommonAccess], state: _Reached, place: _Place) -> Placed:
        """The statement behind a barrier, if it accesses what other threads may have accessed before."""
        if not any(a.meets(b) for a in own for b in state.pending):
            return place(state.pending)
        if not state.uniform:
            raise BuildError(f"{self.where}: threads would have to wait for each other where only some of them come")
        placed, left = place(frozenset())
        return seq(Barrier(), placed), left


def _differs(e: Expr) -> bool:
    """Whether threads may disagree on a condition or an extent."""
    return any(Var(a.value) in variables(e) for a in THREADS) or any(True for _ in loads(e))
