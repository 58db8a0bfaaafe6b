"""Places intermediate buffers: each is allocated in the innermost loop that holds all its accesses, as large as needed.

Accesses that a fused loop has left with divisions (`a[i // n, i % n]`) become one flat index where that is simpler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from searchlab.codegen.plain import map_access, map_plain, own_accesses, own_expressions
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ZERO, Binary, Expr, Load, Var, compare, transform, value_of, variables, walk
from searchlab.ir.program import Alloc, Buffer, If, Loop, Prefetch, Program, Seq, Stmt, Store, children

Path = tuple[Stmt, ...]


def place_buffers(program: Program, body: Stmt) -> Stmt:
    """The body with an Alloc for every buffer that is no parameter."""
    for name, buffer in program.buffers.items():
        if name not in program.inputs and name not in program.outputs:
            body = _place(body, buffer)
    return _join(body, dict(program.buffers), Facts())


def _join(s: Stmt, buffers: dict[str, Buffer], facts: Facts) -> Stmt:
    """Accesses through one flat index, where the divisions of a fused loop cancel so."""
    if isinstance(s, Store):

        def load(e: Expr) -> Expr | None:
            return replace(e, indices=_flat(buffers[e.buffer], e.indices, facts)) if isinstance(e, Load) else None

        if any(_divides(e) for e in own_expressions(s)):
            s = map_plain(s, lambda e: transform(e, load))
            assert isinstance(s, Store)
            return replace(s, indices=_flat(buffers[s.buffer], s.indices, facts))
        return s
    if isinstance(s, Prefetch):
        return replace(s, indices=_flat(buffers[s.buffer], s.indices, facts))
    if isinstance(s, Seq):
        return Seq(tuple(_join(p, buffers, facts) for p in s.body))
    if isinstance(s, Alloc):
        buffers = {**buffers, s.buffer.name: s.buffer}
    if isinstance(s, Loop):
        facts = facts.having({s.var: s.extent})
    return replace(s, body=_join(s.body, buffers, facts))


def _flat(buffer: Buffer, indices: tuple[Expr, ...], facts: Facts) -> tuple[Expr, ...]:
    if len(indices) == 1 or not any(_divides(i) for i in indices):
        return indices
    flat = facts.simplify(flat_index(indices, buffer.shape))
    return indices if _divides(flat) else (flat,)


def _divides(e: Expr) -> bool:
    return any(isinstance(x, Binary) and x.op in ("floordiv", "mod") for x in walk(e))


def flat_index(indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr:
    """The row-major position of an element; a single index of a larger buffer is one already."""
    if len(indices) == 1:
        return indices[0]
    total: Expr = ZERO
    for i, extent in zip(indices, shape, strict=True):
        total = total * extent + i
    return total


def _place(body: Stmt, buffer: Buffer) -> Stmt:
    found = list(_accesses(body, buffer.name, ()))
    if not found:
        return body
    home = _common(body, [path for path, _ in found])
    outside = {lp.var: lp.extent for lp in found[0][0][: _depth(found[0][0], home)] if isinstance(lp, Loop)}
    intervals = [_interval(buffer, d, found, home, outside) for d in range(len(buffer.shape))]
    lows = tuple(low for low, _ in intervals)
    facts = Facts({lp.var: lp.extent for path, _ in found for lp in path if isinstance(lp, Loop)})

    def shift(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(facts.simplify(i - low) for i, low in zip(indices, lows, strict=True))

    inner = map_access(home.body if isinstance(home, Loop) else home, buffer.name, shift)
    small = Alloc(replace(buffer, shape=tuple(extent for _, extent in intervals)), inner)
    new: Stmt = replace(home, body=small) if isinstance(home, Loop) else small
    return _swap(body, home, new)


def _accesses(s: Stmt, name: str, path: Path) -> Iterator[tuple[Path, tuple[Expr, ...]]]:
    here = (*path, s)
    for indices in own_accesses(s, name):
        yield here, indices
    for child in children(s):
        yield from _accesses(child, name, here)


def _common(body: Stmt, paths: list[Path]) -> Stmt:
    """The innermost loop around all accesses, or the whole body; lanes of a vectorised loop share one buffer."""
    home = body
    for level in zip(*paths, strict=False):
        if any(s is not level[0] for s in level) or (isinstance(level[0], Loop) and level[0].kind == "vectorized"):
            break
        if isinstance(level[0], Loop):
            home = level[0]
    return home


def _depth(path: Path, home: Stmt) -> int:
    return next(n for n, s in enumerate(path) if s is home) + (1 if isinstance(home, Loop) else 0)


def _interval(
    buffer: Buffer, d: int, found: list[tuple[Path, tuple[Expr, ...]]], home: Stmt, outside: dict[Var, Expr]
) -> tuple[Expr, Expr]:
    """The part of one dimension that is touched in one iteration of `home`: lowest index and extent."""
    whole = buffer.shape[d]
    low: Expr | None = None
    high: Expr | None = None
    for path, indices in found:
        inside = {lp.var: lp.extent for lp in path[_depth(path, home) :] if isinstance(lp, Loop)}
        facts = Facts({**outside, **inside})
        a, b = facts.simplify(facts.lower(indices[d], inside)), facts.simplify(facts.upper(indices[d], inside))
        if low is None or high is None:
            low, high = a, b
            continue
        outer = Facts(outside)
        low = a if outer.proves(compare("le", a, low)) else low if outer.proves(compare("le", low, a)) else None
        high = b if outer.proves(compare("le", high, b)) else high if outer.proves(compare("le", b, high)) else None
        if low is None or high is None:
            return ZERO, whole
    assert low is not None and high is not None
    extent = Facts(outside).simplify(high - low + 1)
    # an extent that changes from iteration to iteration is no better than the whole dimension
    if any(v.role == "iter" for v in variables(extent)) or (value_of(extent) or 1) < 1:
        return ZERO, whole
    # tiles that reach beyond the buffer do so under conditions that keep them inside
    if (value_of(extent - whole) or 0) > 0:
        return ZERO, whole
    return low, extent


def _swap(root: Stmt, old: Stmt, new: Stmt) -> Stmt:
    if root is old:
        return new
    if isinstance(root, Seq):
        return replace(root, body=tuple(_swap(p, old, new) for p in root.body))
    if isinstance(root, (Loop, If, Alloc)):
        return replace(root, body=_swap(root.body, old, new))
    return root
