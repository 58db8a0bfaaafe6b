"""Primitives on stages: caching (cache_read, cache_write, prefetch), moving (compute_at and its reverse), inlining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ZERO, Expr, Like, Load, Var, all_of, compare, index, value_of
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import (
    accesses,
    map_expressions,
    path_to,
    read,
    rename_buffer,
    statements,
    swap,
    written,
)
from searchlab.ir.stmt import SCOPES, Ahead, Block, Loop, Seq, Stmt, Store, seq
from searchlab.ir.walk import Substitution, transform, variables
from searchlab.schedule.loops import check_begins, resolved_bindings
from searchlab.schedule.nests import inserted, stage_nest, top_holding
from searchlab.schedule.primitive import (
    MadeNames,
    check,
    consumers,
    find_block,
    find_loop,
    fresh,
    is_leaf,
    leaves_in,
    names_of,
    nearest,
    primitive,
    producers,
    replaced,
    top_statement,
)
from searchlab.schedule.regions import (
    Digits,
    Interval,
    ReadDimensions,
    check_tile,
    read_dimensions,
    tile_conditions,
    touched,
)


@primitive
def cache_read(program: Program, block: str, buffer: str, scope: str = "local", name: str | None = None) -> MadeNames:
    """Let a block read a copy of one of its inputs; move the copy with compute_at, shape it with transform_layout.

    C[i] = f(A[i])   =>   A_local[i] = A[i];  C[i] = f(A_local[i])
    """
    b = _leaf(program, block)
    _check_scope(scope)
    check(buffer in inputs_of(b), lambda: nearest(f"buffer read by '{block}'", buffer, inputs_of(b)))
    made = fresh(program, f"{buffer}_{scope}") if name is None else name
    check_free(program, made)
    copy = _copy_nest(program, buffer, made, made)
    top = top_statement(program, b)
    late = [p for p in producers(program, buffer) if path_to(top, p)]
    check(not late, f"'{buffer}' is made by {names_of(late)} in the same nest as '{block}'; cache it before compute_at")
    body = replaced(program, b, rename_buffer(b, buffer, made))
    new_top = top_holding(body, block)
    buffers = {**program.buffers, made: replace(program.buffers[buffer], name=made, scope=scope)}
    return MadeNames(program.with_body(inserted(body, new_top, copy, before=True), buffers=buffers), (made,))


@primitive
def cache_write(
    program: Program, block: str, buffer: str | None = None, scope: str = "local", name: str | None = None
) -> MadeNames:
    """Let a block write to a copy of its output, copied back afterwards; move the copy with reverse_compute_at.

        C[i] += f(i)   =>   C_local[i] += f(i);  C[i] = C_local[i]

    The block keeps its name; the block that copies back is named after the buffer, `C_store`.
    """
    b = _leaf(program, block)
    _check_scope(scope)
    target = b.store.buffer if buffer is None else buffer
    check(target in written(b), lambda: nearest(f"buffer written by '{block}'", target, written(b)))
    made = fresh(program, f"{target}_{scope}") if name is None else name
    check_free(program, made)
    others = [p for p in producers(program, target) if p.name != block]
    check(not others, f"'{target}' is written by {names_of(others)} too")
    copy_name = fresh(program, f"{target}_store", [made])
    copy = _copy_nest(program, made, target, copy_name)
    body = replaced(program, b, rename_buffer(b, target, made))
    buffers = {**program.buffers, made: replace(program.buffers[target], name=made, scope=scope)}
    return MadeNames(
        program.with_body(inserted(body, top_holding(body, block), copy, before=False), buffers=buffers),
        (copy_name, made),
    )


@primitive
def prefetch(program: Program, block: str, buffer: str, loop: str, distance: Like) -> MadeNames:
    """Prefetch what a block will read of a buffer `distance` iterations of a loop later (0: no prefetch).

        for i: for j: Y[i, j] = f(X[i, j])   =>   for i: for j: prefetch X[i + d, j];  Y[i, j] = f(X[i, j])

    Each cache line that the unrolled and vectorised loops inside touch is prefetched once, and if serial loops between
    repeat the same elements, in their last iteration.  Apply it after the loops have reached their final structure.
    """
    b = _leaf(program, block)
    lp = find_loop(program, loop)
    check(bool(path_to(lp, b)), f"loop '{loop}' is not around block '{block}'")
    check(buffer in inputs_of(b), lambda: nearest(f"buffer read by '{block}'", buffer, inputs_of(b)))
    known = [a for a in b.ahead if (a.buffer, a.loop) == (buffer, loop)]
    check(not known, f"block '{block}' already prefetches '{buffer}' along '{loop}'")
    far = index(distance)
    check((value_of(far) or 0) >= 0, f"distance {far} is below 0")
    if far == ZERO:
        return MadeNames(program)
    new = replace(b, annotations=(*b.annotations, ("prefetch", Ahead(buffer, loop, far))))
    return MadeNames(program.with_body(replaced(program, b, new)))


def _leaf(program: Program, name: str) -> Block:
    block = find_block(program, name)
    check(is_leaf(block), f"block '{name}' holds other blocks")
    return block


def inputs_of(b: Block) -> list[str]:
    return [n for n in read(b) if n not in written(b)]


def _check_scope(scope: str) -> None:
    check(scope in SCOPES, nearest("scope", scope, SCOPES))


def check_free(program: Program, name: str) -> None:
    taken = name in program.buffers or name in program.blocks
    check(name.isidentifier() and not taken, f"'{name}' is not a free name for a buffer and its block")


def _copy_nest(program: Program, source: str, target: str, block: str) -> Stmt:
    buffer = program.buffers[source if source in program.buffers else target]
    return stage_nest(program, block, buffer.shape, lambda at: Store(target, at, Load(source, at, buffer.dtype)))


# --- moving stages ----------------------------------------------------------------------------------------------------


@primitive
def compute_at(program: Program, block: str, loop: str) -> MadeNames:
    """Compute, inside a loop, only the part of a stage that the rest of the loop's body reads.

    for i: P(i)                  for i_0:
    for i_0: for i_1: C(...)  =>   for p in (needed): P(i_0*f + p)
                                   for i_1: C(...)
    """
    b = _leaf(program, block)
    at = find_loop(program, loop)
    buffer = b.store.buffer
    check(not path_to(at, b), f"block '{block}' is already inside loop '{loop}'")
    check(buffer not in program.outputs, f"'{buffer}' is an output; cache_write it first, or move its reader")
    readers = consumers(program, buffer)
    check(bool(readers), f"nothing reads '{buffer}'")
    outside = [c for c in readers if not path_to(at, c)]
    check(not outside, f"'{buffer}' is also read by {names_of(outside)}, outside loop '{loop}'")
    _check_plain_store(b)
    _check_movable(program, b)
    root, inside = _resolve(program, at, readers)
    region = touched(root, inside, buffer, program.buffers[buffer].shape, program.facts, writes=False)
    nest = _region_nest(program, b, dict(zip((i for i in b.store.indices if isinstance(i, Var)), region, strict=True)))
    body = swap(program.body, b, None)
    assert body is not None
    return MadeNames(program.with_body(_place(body, loop, nest, b, before=True)))


@primitive
def reverse_compute_at(program: Program, block: str, loop: str, rounded: bool = False) -> MadeNames:
    """Run a consumer inside a loop, on only what the rest of the loop's body has produced.

    for i_0: for i_1: P(...)        for i_0:
    for i: C(i)                 =>    for i_1: P(...)
                                      for c in (produced): C(i_0*f + c)

    With `rounded`, what is produced may have been rounded up to symbolic tiles.  Without it that is refused, as it was
    when the sketches of CPUs were written: the points of their spaces keep their programs.
    """
    b = _leaf(program, block)
    at = find_loop(program, loop)
    check(not path_to(at, b), f"block '{block}' is already inside loop '{loop}'")
    makers = [p for p in leaves_in(at) if set(written(p)) & set(inputs_of(b))]
    check(bool(makers), f"nothing inside loop '{loop}' makes an input of '{block}' ({', '.join(inputs_of(b))})")
    buffers = {written(p)[0] for p in makers}
    check(len(buffers) == 1, f"several inputs of '{block}' are made inside '{loop}'; move it below one of them first")
    buffer = buffers.pop()
    _check_complete(program, at, producers(program, buffer))
    _check_movable(program, b)
    _check_ready(program, b, [n for n in inputs_of(b) if n != buffer], at)
    indices = {ld.indices for ld in _loads(b, buffer)}
    check(len(indices) == 1, f"'{block}' reads '{buffer}' at several places")
    at_indices = indices.pop()
    dimensions = read_dimensions(at_indices)
    message = f"'{block}' reads '{buffer}' at [{', '.join(map(str, at_indices))}], not one element per iteration"
    check(dimensions is not None, message)
    assert dimensions is not None
    shape = program.buffers[buffer].shape
    extents: dict[Expr, Expr] = {it.var: it.extent for it in b.iters}
    filled = _filled_part(makers[-1], shape, program.facts)
    longer = [v for v, d in dimensions.items() if not _is_within(extents[v], d, filled, program.facts, rounded)]
    check(not longer, f"'{block}' runs over more than '{buffer}' has (along {names_of(longer)})")
    root, inside = _resolve(program, at, makers)
    region = touched(root, inside, buffer, shape, program.facts, writes=True)
    for maker in inside:
        check_tile(root, maker, b.name)
    spans = {v: d.span(region) for v, d in dimensions.items()}
    nest = _region_nest(program, b, spans, tile_conditions(root, inside[-1], block))
    body = swap(program.body, b, None)
    assert body is not None
    moved = program.with_body(_place(body, loop, nest, b, before=False))
    if b.init is not None:
        check_begins(moved, block)
    return MadeNames(moved)


def _filled_part(maker: Block, shape: tuple[Expr, ...], facts: Facts) -> tuple[Expr, ...]:
    """The shape of a buffer without the ends that its stage never stores to, such as those a layout rounds up to."""
    known = facts.having({it.var: it.extent for it in maker.iters})
    stored = [known.simplify(known.upper(i) + 1) for i in maker.store.indices]
    return tuple(e if known.proves(e < whole) else whole for e, whole in zip(stored, shape, strict=True))


def _is_within(extent: Expr, read: ReadDimensions, shape: tuple[Expr, ...], facts: Facts, rounded: bool) -> bool:
    """Whether a variable stays within the dimensions that it indexes."""
    if read.low is not None and not facts.proves(read.base <= shape[read.low]):
        return False
    room = shape[read.high] * read.base - extent
    return facts.nonnegative_rounded(room) if rounded else facts.nonnegative(room)


def _loads(b: Block, buffer: str) -> list[Load]:
    return [ld for ld in accesses(b) if ld.buffer == buffer]


def _resolve(program: Program, at: Loop, blocks: list[Block]) -> tuple[Loop, list[Block]]:
    """The loop and the given blocks inside it, with variables of enclosing blocks resolved to loop variables."""
    mapping: dict[Expr, Expr] = {}
    for s in path_to(program.body, at):
        if isinstance(s, Block):
            mapping.update({it.var: e for it, e in zip(s.iters, resolved_bindings(program, s), strict=True)})
    if not mapping:
        return at, blocks
    root = map_expressions(at, Substitution(mapping))
    assert isinstance(root, Loop)
    names = {b.name for b in blocks}
    return root, [b for b in leaves_in(root) if b.name in names]


def _check_plain_store(b: Block) -> None:
    indices = b.store.indices
    space = {it.var for it in b.iters if it.kind == "space"}
    plain = all(i in space for i in indices) and len(set(indices)) == len(indices) == len(space)
    check(
        plain,
        f"block '{b.name}' does not store one element per iteration: {b.store.buffer}[{', '.join(map(str, indices))}]",
    )


def _check_movable(program: Program, b: Block) -> None:
    """Refuses a stage that cannot leave its nest as a whole, or would leave its own producers behind in that nest."""
    path = path_to(program.body, b)
    check(not any(isinstance(s, Block) for s in path[:-1]), f"block '{b.name}' is inside another block")
    check_only_writer(program, b)
    nest = [s for s in path if isinstance(s, Loop)]
    feeding = [x for x in leaves_in(nest[0]) if x is not b and set(written(x)) & set(inputs_of(b))] if nest else []
    message = f"{names_of(feeding)} in the nest of '{b.name}' makes what it reads there; move '{b.name}' before that"
    check(not feeding, message)


def check_only_writer(program: Program, b: Block) -> None:
    others = [p for p in producers(program, b.store.buffer) if p.name != b.name]
    message = f"'{b.store.buffer}' is written by {names_of(others)} too; move stages before decompose_reduction"
    check(not others, message)


def _check_complete(program: Program, at: Loop, makers: list[Block]) -> None:
    """Refuses a loop unless all elements written in one iteration have their final values at its end."""
    around = {s.var for s in path_to(program.body, at) if isinstance(s, Loop)}
    last = makers[-1]
    check(bool(path_to(at, last)), f"'{last.name}' still adds to '{last.store.buffer}' after loop '{at.name}'")
    for p in makers:
        for it, binding in zip(p.iters, resolved_bindings(program, p), strict=True):
            open_loops = sorted(v.name for v in variables(binding) & around) if it.kind == "reduce" else []
            message = (
                f"'{p.name}' is not finished inside loop '{at.name}': loop {names_of(open_loops)} still adds to it"
            )
            check(not open_loops, message)


def _check_ready(program: Program, b: Block, inputs: list[str], at: Stmt) -> None:
    """Refuses inputs that are still being filled by the loops around the destination."""
    around = [s for s in path_to(program.body, at) if isinstance(s, Loop)]
    for n in inputs:
        late = [p for p in producers(program, n) if around and path_to(around[0], p)]
        check(not late, f"'{n}', which '{b.name}' reads too, is made by {names_of(late)} in the same nest")


def _region_nest(
    program: Program, b: Block, region: Mapping[Var, Interval | Digits], where: Sequence[Expr] = ()
) -> Stmt:
    """A loop nest that runs a block over a region; iteration variables without a span cover their whole domain."""
    loops, bindings, guards, extents = [], [], list(where), {}
    for it in b.iters:
        span = region.get(it.var, Interval(ZERO, it.extent))
        var = Var(fresh(program, f"{b.name}_{it.var.name[1:] or it.var.name}"))
        extents[var] = span.extent
        loops.append((var, span.extent))
        bindings.append(span.at(var))
        if isinstance(span, Digits):
            guards.append(span.low.at(var % span.low.extent) < span.base)  # else it would belong to the next tile
    facts = program.facts.having(extents)
    guards = [c for c in guards if not facts.proves(c)]
    for it, binding in zip(b.iters, bindings, strict=True):
        guards += [c for c in (binding < it.extent, compare("le", ZERO, binding)) if not facts.proves(c)]
    nest: Stmt = replace(b, bindings=tuple(bindings), predicate=all_of(guards))
    for var, extent in reversed(loops):
        nest = Loop(var, extent, nest)
    return nest


def _place(body: Stmt, loop: str, nest: Stmt, b: Block, *, before: bool) -> Stmt:
    """Inserts a nest into a loop's body: directly before its first consumer, or directly after its last producer."""
    at = next(s for s in statements(body) if isinstance(s, Loop) and s.name == loop)
    parts = list(at.body.body if isinstance(at.body, Seq) else (at.body,))
    if before:
        touching = [n for n, p in enumerate(parts) if b.store.buffer in read(p)]
        where = touching[0]
        late = [p for p in parts[where:] if set(written(p)) & set(inputs_of(b))]
        check(not late, f"the loop makes an input of '{b.name}' only after the place where it would go")
    else:
        where = max(n for n, p in enumerate(parts) if set(written(p)) & set(inputs_of(b))) + 1
        early = [p for p in parts[:where] if b.store.buffer in read(p)]
        check(not early, f"'{b.store.buffer}' is read in the loop before '{b.name}' would write it")
    parts.insert(where, nest)
    result = swap(body, at, replace(at, body=seq(*parts)))
    assert result is not None
    return result


# --- inlining ---------------------------------------------------------------------------------------------------------


@primitive
def compute_inline(program: Program, block: str) -> MadeNames:
    """Replace every read of a stage by its definition, and drop the stage.

    P[i] = f(i);  C[i] = g(P[i])   =>   C[i] = g(f(i))
    """
    b = _leaf(program, block)
    buffer = b.store.buffer
    check(buffer not in program.outputs, f"'{buffer}' is an output of the program")
    check(not b.reduces and b.init is None, f"block '{block}' is a reduction")
    _check_plain_store(b)
    _check_movable(program, b)
    body = swap(program.body, b, None)
    check(body is not None, f"nothing reads '{buffer}'")
    assert body is not None

    def inline(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer == buffer:
            return Substitution(dict(zip(b.store.indices, e.indices, strict=True)))(b.store.value)
        return None

    body = map_expressions(body, lambda e: transform(e, inline))
    buffers = {n: x for n, x in program.buffers.items() if n != buffer}
    return MadeNames(program.with_body(body, buffers=buffers))


@primitive
def reverse_compute_inline(program: Program, block: str) -> MadeNames:
    """Apply an elementwise consumer where its input is produced, and drop the input.

    P[i] = f(i);  C[i] = g(P[i])   =>   C[i] = g(f(i))        (in the loops of P)
    """
    b = _leaf(program, block)
    check(not b.reduces and b.init is None, f"block '{block}' is a reduction")
    _check_plain_store(b)
    _check_movable(program, b)
    made_inside = [n for n in inputs_of(b) if n not in program.inputs]
    maker = _only_maker(program, b, made_inside)
    store, buffer = b.store, maker.store.buffer
    mapping = dict(zip(_read_whole(program, b, buffer), maker.store.indices, strict=True))

    def fill(e: Expr) -> Expr | None:
        return maker.store.value if isinstance(e, Load) and e.buffer == buffer else None

    value = transform(Substitution(mapping)(store.value), fill)
    new = replace(maker, body=Store(store.buffer, tuple(Substitution(mapping)(i) for i in store.indices), value))
    early = [n for n in inputs_of(b) if n != buffer and n in made_inside]
    _check_ready(program, b, early, maker)
    for p in (p for n in early for p in producers(program, n)):
        check(_before(program, p, maker), f"'{p.store.buffer}', which '{block}' reads too, is made after '{buffer}'")
    body = swap(replaced(program, maker, new), b, None)
    assert body is not None
    return MadeNames(program.with_body(body, buffers={n: x for n, x in program.buffers.items() if n != buffer}))


def _only_maker(program: Program, b: Block, made_inside: list[str]) -> Block:
    """The only producer of a stage that only `b` reads."""
    fitting = [n for n in made_inside if len(consumers(program, n)) == 1 and n not in program.outputs]
    check(
        len(fitting) == 1,
        f"'{b.name}' must be the only reader of exactly one stage; it reads {names_of(made_inside) or 'none'}",
    )
    makers = producers(program, fitting[0])
    check(len(makers) == 1, f"'{fitting[0]}' is written by several blocks")
    check(
        not makers[0].reduces and makers[0].init is None,
        f"'{makers[0].name}' is a reduction: its values are not final when stored; use reverse_compute_at",
    )
    return makers[0]


def _read_whole(program: Program, b: Block, buffer: str) -> tuple[Expr, ...]:
    """The indices of a block that reads a whole buffer, one element per iteration."""
    indices = {ld.indices for ld in _loads(b, buffer)}
    check(len(indices) == 1, f"'{b.name}' reads '{buffer}' at several places")
    at = indices.pop()
    extents: dict[Expr, Expr] = {it.var: it.extent for it in b.iters}
    direct = set(at) == extents.keys() and len(set(at)) == len(at)
    check(direct, f"'{b.name}' does not read '{buffer}' one element per iteration")
    whole = tuple(extents[i] for i in at) == program.buffers[buffer].shape
    check(whole, f"'{b.name}' reads only a part of '{buffer}'; accepted: readers of all of it")
    return at


def _before(program: Program, first: Block, second: Block) -> bool:
    order = list(program.blocks)
    return order.index(first.name) < order.index(second.name)
