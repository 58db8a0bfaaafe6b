"""Places intermediate buffers: each is allocated in the innermost loop around all its accesses, with minimal extents.

Accesses with divisions left by a fused loop (`a[i // n, i % n]`) become one flat index where that is simpler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from searchlab.ir.algebra import flat_index
from searchlab.ir.apart import told_apart
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import TRUE, ZERO, Binary, Expr, Var, compare, value_of
from searchlab.ir.loopkind import THREADS, LoopKind
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import kept, map_accesses, own_accesses, reindexed, statements, swap
from searchlab.ir.stmt import Alloc, Buffer, Loop, Place, Stmt, Store, Update
from searchlab.ir.visitor import Rewriter
from searchlab.ir.walk import loads, lookups, variables, walk

Path = tuple[Stmt, ...]


def place_buffers(
    program: Program,
    body: Stmt,
    only: Collection[str] | None = None,
    enlarged: Callable[[Buffer], Buffer] | None = None,
) -> Stmt:
    """The body with an Alloc for every buffer that is not a parameter, and without the buffers that nothing reads.

    Buffers in shared memory are placed outside of the loops of threads.  `only` limits this to some buffers, which may
    be `enlarged`.
    """
    stages = {n: b for n, b in program.buffers.items() if n not in program.inputs and n not in program.outputs}
    inner = stages if only is None else {n: stages[n] for n in only}
    body = _without_collisions(_without_unread(body, set(inner)), set(inner))
    for buffer in inner.values():
        body = _place(body, buffer)
    if enlarged is not None:
        body = _enlarged(body, enlarged)
    later = {n for n, b in stages.items() if n not in inner and b.scope != "global"}
    settled = {n: b for n, b in program.buffers.items() if n not in later}
    return kept(_Joined().visit(body, settled, Facts()))


def _enlarged(s: Stmt, enlarged: Callable[[Buffer], Buffer]) -> Stmt:
    s = kept(s.map_children(lambda child: _enlarged(child, enlarged))) if s.children() else s
    return Alloc(enlarged(s.buffer), s.body) if isinstance(s, Alloc) else s


def _without_unread(body: Stmt, inner: set[str]) -> Stmt:
    """Dead-code elimination: conditions decided by now may have removed the only readers of a stage."""
    unread = inner.intersection(_written(body)) - set(_read(body))
    if not unread:
        return body

    def live(s: Stmt) -> Stmt | None:
        return None if isinstance(s, Store) and s.buffer in unread else s.map_children(live)

    return _without_unread(kept(live(body)), inner)  # outputs are written, so the body is not empty


def _written(s: Stmt) -> Iterator[str]:
    return (x.buffer for x in statements(s) if isinstance(x, Store))


def _read(s: Stmt) -> Iterator[str]:
    """The buffers that statements read, except where a statement reads its own buffer to accumulate into it."""
    for x in statements(s):
        own = x.buffer if isinstance(x, Store) else None
        yield from (ld.buffer for e in x.own_expressions() for ld in loads(e) if ld.buffer != own)


def _without_collisions(s: Stmt, inner: set[str]) -> Stmt:
    """The statement with vectorised loops made serial if their lanes may accumulate into one element of a buffer."""
    new = kept(s.map_children(lambda child: _without_collisions(child, inner)))
    if isinstance(new, Loop) and new.kind == LoopKind.VECTORIZED:
        if any(_collide(new, path) for path in _sums(new.body, (), inner)):
            return replace(new, kind=LoopKind.SERIAL)
    return new


def _sums(s: Stmt, path: Path, buffers: set[str]) -> Iterator[Path]:
    """The paths to stores that accumulate into one of the buffers."""
    here = (*path, s)
    if isinstance(s, Store) and s.buffer in buffers and any(ld.buffer == s.buffer for ld in loads(s.value)):
        yield here
    for child in s.children():
        yield from _sums(child, here, buffers)


def _collide(lanes: Loop, path: Path) -> bool:
    """Whether two lanes may accumulate into the same element; an element common to all lanes is reduced across them."""
    (store,), inside = path[-1].own_stores(), [s for s in path if isinstance(s, Loop)]
    space = {v for i in store.indices for v in variables(i)}
    # loops outside those that carry the sum restart it in each iteration, if it has an init
    carrying = (n for n, lp in enumerate(inside) if lp.var not in space)
    first = next(carrying, len(inside)) if isinstance(store, Update) else 0
    moving = {lp.var: lp.extent for lp in (lanes, *inside[first:]) if lp.var in space}
    return lanes.var in space and not told_apart(store.indices, moving, TRUE, Facts())


class _Joined(Rewriter[[dict[str, Buffer], Facts]]):
    """Rewrites accesses to one flat index where this cancels the divisions of a fused loop."""

    def other(self, s: Stmt, buffers: dict[str, Buffer], facts: Facts) -> Stmt | None:
        if s.children():
            return s.map_children(lambda child: self.visit(child, buffers, facts))
        if not any(_divides(e) for e in s.own_expressions()):
            return s

        def joined(place: Place) -> Place:
            name, indices = place
            return (name, _flat(buffers[name], indices, facts)) if name in buffers else place

        return map_accesses(s, joined)

    def visit_alloc(self, s: Alloc, buffers: dict[str, Buffer], facts: Facts) -> Stmt | None:
        return self.other(s, {**buffers, s.buffer.name: s.buffer}, facts)

    def visit_loop(self, s: Loop, buffers: dict[str, Buffer], facts: Facts) -> Stmt | None:
        return self.other(s, buffers, facts.having({s.var: s.extent}))


def _flat(buffer: Buffer, indices: tuple[Expr, ...], facts: Facts) -> tuple[Expr, ...]:
    if len(indices) == 1 or not any(_divides(i) for i in indices):
        return indices
    flat = facts.simplify(flat_index(indices, buffer.shape))
    return indices if _divides(flat) else (flat,)


def _divides(e: Expr) -> bool:
    return any(isinstance(x, Binary) and x.op in ("floordiv", "mod") for x in walk(e))


def _place(body: Stmt, buffer: Buffer) -> Stmt:
    found = list(_accesses(body, buffer.name, ()))
    if not found:
        return body
    home = _common([path for path, _ in found], shared=buffer.scope == "shared")
    outside = {lp.var: lp.extent for lp in found[0][0][: _depth(found[0][0], home)] if isinstance(lp, Loop)}
    intervals = [_interval(buffer, d, found, home, outside) for d in range(len(buffer.shape))]
    lows = tuple(low for low, _ in intervals)
    facts = Facts({lp.var: lp.extent for path, _ in found for lp in path if isinstance(lp, Loop)})

    def shift(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(facts.simplify(i - low) for i, low in zip(indices, lows, strict=True))

    inner = reindexed(body if home is None else home.body, buffer.name, shift)
    small = Alloc(replace(buffer, shape=tuple(extent for _, extent in intervals)), inner)
    return small if home is None else kept(swap(body, home, home.with_body(small)))


def _accesses(s: Stmt, name: str, path: Path) -> Iterator[tuple[Path, tuple[Expr, ...]]]:
    here = (*path, s)
    for indices in own_accesses(s, name):
        yield here, indices
    for child in s.children():
        yield from _accesses(child, name, here)


def _common(paths: list[Path], *, shared: bool) -> Loop | None:
    """The innermost loop around all accesses, if any, outside of loops whose iterations share one buffer: lanes of
    vectors, and threads if it is in shared memory."""
    home = None
    for level in zip(*paths, strict=False):
        s = level[0]
        if any(other is not s for other in level):
            break
        if isinstance(s, Loop):
            if s.kind == LoopKind.VECTORIZED or (shared and s.kind in THREADS):
                break
            home = s
    return home


def _depth(path: Path, home: Loop | None) -> int:
    """The number of statements on a path outside the body of `home`."""
    return 0 if home is None else next(n for n, s in enumerate(path) if s is home) + 1


def _interval(
    buffer: Buffer, d: int, found: list[tuple[Path, tuple[Expr, ...]]], home: Loop | None, outside: dict[Var, Expr]
) -> tuple[Expr, Expr]:
    """The interval of one dimension that is accessed in one iteration of `home`: lowest index and extent."""
    whole, outer = buffer.shape[d], Facts(outside)
    lows, highs = [], []
    for path, indices in found:
        inside = {lp.var: lp.extent for lp in path[_depth(path, home) :] if isinstance(lp, Loop)}
        facts = Facts({**outside, **inside})
        lows.append(facts.simplify(facts.lower(indices[d], inside)))
        highs.append(facts.simplify(facts.upper(indices[d], inside)))
    low, high = _least(lows, outer), _least(highs, outer, most=True)
    if low is None or high is None:
        return ZERO, whole
    extent = outer.simplify(high - low + 1)
    # an extent that varies between iterations is no better than the whole dimension
    if any(v.role == "iter" for v in variables(extent)) or lookups(extent) or (value_of(extent) or 1) < 1:
        return ZERO, whole
    # tiles larger than the buffer are masked by predicates, so the whole dimension suffices
    if (value_of(extent - whole) or 0) > 0:
        return ZERO, whole
    return low, extent


def _least(values: list[Expr], facts: Facts, *, most: bool = False) -> Expr | None:
    """The smallest (or largest) of several values, if it can be proved."""
    found = values[0]
    for e in values[1:]:
        below, above = (found, e) if most else (e, found)
        if facts.proves(compare("le", below, above)):
            found = e
        elif not facts.proves(compare("le", above, below)):
            return None
    return found
