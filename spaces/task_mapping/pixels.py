"""Convolution as a matrix product of weights and columns of pixels: all pixels become one axis (im2col).

    Y[n, c, h, w] += W[c, i, y, x] * X[n, i, h + y, w + x]
    =>  X_columns[n, i, y, x, p] = X[n, i, p // w + y, p % w + x]
        Y[n, c, p // w, p % w] += W[c, i, y, x] * X_columns[n, i, y, x, p]

The columns are never stored as a whole: they are the stage that packs panels, run where a block of pixels needs it.
"""

from __future__ import annotations

from dataclasses import replace

from searchlab.ir.expr import ONE, Expr, Load, Var
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Iter, Loop, Stmt, Store, seq
from searchlab.ir.verify import verify
from searchlab.ir.walk import Substitution, loads, transform
from searchlab.schedule.primitive import consumers, fresh, leaves_in, replaced, top_statement
from searchlab.tactics import ProductView, moves_with, operands, space_axes, stores_plainly
from spaces.task_mapping.mapping import product

_PIXEL = Var("vp")


def pixel_axes(b: Block, view: ProductView) -> list[int]:
    """The last axes of the output that move the operand in lanes and nothing else."""
    space = space_axes(b)
    found: list[int] = []
    others = [ld for ld in operands(b) if ld != view.operand]
    for axis in reversed(range(len(space))):
        v = space[axis].var
        if axis == view.row or not moves_with(view.operand, v) or any(moves_with(ld, v) for ld in others):
            break
        found.insert(0, axis)
    return found


def as_columns(program: Program, view: ProductView) -> tuple[Program, ProductView] | None:
    """The program with one axis of pixels in its anchor and what follows, and the view of that; None if it has none."""
    b = program.blocks[view.block]
    axes = pixel_axes(b, view)
    followers = consumers(program, b.store.buffer)
    sizes = [b.iters[n].extent for n in axes]
    if product(sizes) == ONE or not stores_plainly(b) or not all(_follows(f, b) for f in followers):
        return None
    columns = _columns(program, b, view.operand, axes)
    name = columns.store.buffer
    column = Load(name, columns.store.indices, view.operand.type)
    shape = tuple(it.extent for it in columns.iters)
    buffers = dict(program.buffers)
    buffers[name] = replace(buffers[view.operand.buffer], name=name, shape=shape, scope="local")
    if followers:
        old = buffers[b.store.buffer]
        buffers[old.name] = replace(old, shape=(*old.shape[: axes[0]], product(sizes)))
    body: Stmt = program.body
    for f in followers:
        body = _swap(program.with_body(body), f, _joined(f, axes, sizes, b.store.buffer))
    new = _joined(b, axes, sizes, b.store.buffer if followers else "")
    new = _reading(new, columns.store.value, column)
    body = _swap(program.with_body(body), program.blocks[b.name], new, _nest(program, columns))
    made = replace(program, body=body, buffers=buffers, trace=())
    verify(made)
    return made, replace(view, vector=axes[0], operand=column, dimension=len(shape) - 1)


def _columns(program: Program, b: Block, operand: Load, axes: list[int]) -> Block:
    """The stage that makes columns of an operand: by what else it depends on, then by the number of the pixel."""
    pixels, sizes = [b.iters[n].var for n in axes], [b.iters[n].extent for n in axes]
    feeding = [it for it in b.iters if it.var not in pixels and moves_with(operand, it.var)]
    iters = (*(Iter(it.var, it.extent) for it in feeding), Iter(_PIXEL, product(sizes)))
    name = fresh(program, f"{operand.buffer}_columns")
    return Block(name, iters, (), Store(name, tuple(it.var for it in iters), _apart(pixels, sizes)(operand)))


def _follows(f: Block, b: Block) -> bool:
    """Whether a stage goes through the anchor's output element by element, in the same axes."""
    mine = [ld for ld in loads(f.store.value) if ld.buffer == b.store.buffer]
    plain = stores_plainly(f) and len(space_axes(f)) == len(space_axes(b))
    return plain and not f.reduces and all(ld.indices == f.store.indices for ld in mine)


def _apart(pixels: list[Var], sizes: list[Expr]) -> Substitution:
    """The axes from the number of the pixel."""
    found: dict[Var, Expr] = {}
    inner: Expr = ONE
    for v, extent in reversed(list(zip(pixels, sizes, strict=True))):
        found[v] = _PIXEL // inner if v == pixels[0] else (_PIXEL // inner) % extent
        inner = inner * extent
    return Substitution(found)


def _joined(b: Block, axes: list[int], sizes: list[Expr], flat: str) -> Block:
    """A stage with one axis of pixels in place of several; the buffer `flat` has the same single axis."""
    put = _apart([b.iters[n].var for n in axes], sizes)
    iters = [it for n, it in enumerate(b.iters) if n not in axes]
    iters.insert(axes[0], Iter(_PIXEL, product(sizes)))

    def access(buffer: str, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*indices[: axes[0]], _PIXEL) if buffer == flat else tuple(put(i) for i in indices)

    def load(e: Expr) -> Expr | None:
        return Load(flat, access(flat, e.indices), e.type) if isinstance(e, Load) and e.buffer == flat else None

    def store(s: Store) -> Store:
        return Store(s.buffer, access(s.buffer, s.indices), put(transform(s.value, load)))

    return replace(b, iters=tuple(iters), body=store(b.store), init=None if b.init is None else store(b.init))


def _reading(b: Block, old: Expr, new: Load) -> Block:
    value = transform(b.store.value, lambda e: new if e == old else None)
    return replace(b, body=Store(b.store.buffer, b.store.indices, value))


def _nest(program: Program, b: Block) -> Stmt:
    """Plain loops around a stage."""
    loops = [(Var(fresh(program, f"{b.name}_{it.var.name}")), it.extent) for it in b.iters]
    body: Stmt = replace(b, bindings=tuple(v for v, _ in loops))
    for var, extent in reversed(loops):
        body = Loop(var, extent, body)
    return body


def _swap(program: Program, old: Block, new: Block, before: Stmt | None = None) -> Stmt:
    """The body with the nest of one stage exchanged."""
    top = top_statement(program, next(b for b in leaves_in(program.body) if b.name == old.name))
    nest = _nest(program, new)
    return replaced(program, top, nest if before is None else seq(before, nest))
