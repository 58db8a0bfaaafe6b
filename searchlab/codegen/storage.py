"""Places intermediate buffers: each is allocated in the innermost loop that holds all its accesses, as large as needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from searchlab.codegen.plain import map_access, own_accesses
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ZERO, Expr, Var, compare, value_of, variables
from searchlab.ir.program import Alloc, Buffer, If, Loop, Program, Seq, Stmt, children

Path = tuple[Stmt, ...]


def place_buffers(program: Program, body: Stmt) -> Stmt:
    """The body with an Alloc for every buffer that is no parameter."""
    for name, buffer in program.buffers.items():
        if name not in program.inputs and name not in program.outputs:
            body = _place(body, buffer)
    return body


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


def _interval(buffer: Buffer, d: int, found: list[tuple[Path, tuple[Expr, ...]]], home: Stmt, outside: dict[Var, Expr]) -> tuple[Expr, Expr]:
    """The part of one dimension that is touched in one iteration of `home`: lowest index and extent."""
    whole = buffer.shape[d]
    low: Expr | None = None
    high: Expr | None = None
    for path, indices in found:
        inside = {lp.var: lp.extent for lp in path[_depth(path, home):] if isinstance(lp, Loop)}
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
    return low, extent


def _swap(root: Stmt, old: Stmt, new: Stmt) -> Stmt:
    if root is old:
        return new
    if isinstance(root, Seq):
        return replace(root, body=tuple(_swap(p, old, new) for p in root.body))
    if isinstance(root, (Loop, If, Alloc)):
        return replace(root, body=_swap(root.body, old, new))
    return root


