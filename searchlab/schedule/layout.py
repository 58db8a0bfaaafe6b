"""Primitives on storage: transform_layout (packing, also of constant weights ahead of time) and pad."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from searchlab.errors import ScheduleError
from searchlab.ir.algebra import ceildiv
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ONE, TRUE, ZERO, Binary, Expr, Like, Load, Select, Var, all_of, const, index, select
from searchlab.ir.program import Layout, Program
from searchlab.ir.stmt import Block, Buffer, Iter, Loop, Stmt, Store, kept, path_to, read, rename_buffer, seq
from searchlab.ir.walk import Substitution, loads, transform, variables, walk
from searchlab.schedule.primitive import (
    MadeNames,
    check,
    find_block,
    fresh,
    is_leaf,
    loops_around,
    names_of,
    nearest,
    primitive,
    producers,
    replaced,
    top_statement,
)
from searchlab.schedule.reduction import check_perfect, sum_of

Map = Callable[..., Sequence[Like]] | tuple[tuple[Var, ...], tuple[Expr, ...]]


@dataclass(frozen=True, slots=True)
class _LayoutDigit:
    """One new dimension: (x // low) % extent, x one or several fused old indices; the leading digit has no extent."""

    source: tuple[Var, ...]
    low: Expr
    extent: Expr | None


@primitive
def transform_layout(program: Program, buffer: str, mapping: Map) -> MadeNames:
    """Change the layout of a buffer; `mapping` takes the old indices and returns the new ones.

        B[k, j]   =>   B[j // 16, k, j % 16]        with mapping = lambda k, j: (j // 16, k, j % 16)

    Each new index is an old one, its quotient, its remainder, or the remainder of a quotient; adjacent indices may be
    fused, as in `lambda i, j: (i * n + j,)`.  The stage that fills the buffer then iterates in the new order.  Callers
    still pass an input in its old shape: it is packed before the kernel runs, only once if bound as a constant.
    """
    check(buffer in program.buffers, lambda: nearest("buffer", buffer, program.buffers))
    check(buffer not in program.outputs, f"'{buffer}' is an output, which keeps its shape; cache_write it first")
    old = program.buffers[buffer]
    olds, news = _evaluate(mapping, len(old.shape), buffer)
    sizes = dict(zip(olds, old.shape, strict=True))
    digits = [_digit(e, sizes, buffer) for e in news]
    facts = program.facts.having(sizes)
    shape = tuple(_extent(d, sizes) for d in digits)
    fresh_vars = tuple(Var(f"u{n}") for n in range(len(digits)))
    inverse, guard = _invert(digits, sizes, fresh_vars, buffer, facts)

    def access(indices: tuple[Expr, ...], block: Block) -> tuple[Expr, ...]:
        put = Substitution(dict(zip(olds, indices, strict=True)))
        known = facts.having({it.var: it.extent for it in block.iters})
        return tuple(known.simplify(put(e)) for e in news)

    refill = {
        b.name: _reiterate(program, b, fresh_vars, shape, inverse, guard)
        for b in producers(program, buffer)
        if _is_plain_copy(program, b)
    }
    body = _rewrite_accesses(program, buffer, access, refill)
    buffers = {**program.buffers, buffer: replace(old, shape=shape)}
    layouts = program.layouts
    if buffer in program.inputs:
        check(all(la.buffer != buffer for la in layouts), f"input '{buffer}' has been given another layout already")
        layouts = (*layouts, Layout(buffer, old, fresh_vars, inverse, guard))
    changed = program.with_body(body, buffers=buffers, layouts=layouts)
    return MadeNames(changed, recorded=(("mapping", (olds, news)),))


def _evaluate(mapping: Map, rank: int, buffer: str) -> tuple[tuple[Var, ...], tuple[Expr, ...]]:
    if isinstance(mapping, tuple):
        olds, news = mapping
        check(len(olds) == rank, f"'{buffer}' has {rank} dimensions, the mapping takes {len(olds)}")
        return tuple(olds), tuple(news)
    olds = tuple(Var(f"x{n}") for n in range(rank))
    try:
        return olds, tuple(index(e) for e in mapping(*olds))
    except TypeError as e:
        raise ScheduleError(f"'{buffer}' has {rank} dimensions: {e}") from None


def _digit(e: Expr, sizes: dict[Var, Expr], buffer: str) -> _LayoutDigit:
    if e == ZERO:  # the result of x % 1
        return _LayoutDigit((), ONE, ONE)
    inner, extent = (e.a, e.b) if isinstance(e, Binary) and e.op == "mod" else (e, None)
    inner, low = (inner.a, inner.b) if isinstance(inner, Binary) and inner.op == "floordiv" else (inner, ONE)
    source = tuple(v for v in sizes if v in variables(inner))
    fused: Expr = ZERO
    for v in source:
        fused = fused * sizes[v] + v
    accepted = "x, x // c, x % c, (x // c) % d, with x an index or neighbouring ones fused"
    check(bool(source) and inner == fused, f"'{e}' is not a digit of an index of '{buffer}'; accepted: {accepted}")
    return _LayoutDigit(source, low, extent)


def _whole(source: tuple[Var, ...], sizes: dict[Var, Expr]) -> Expr:
    total: Expr = ONE
    for v in source:
        total = total * sizes[v]
    return total


def _extent(d: _LayoutDigit, sizes: dict[Var, Expr]) -> Expr:
    return d.extent if d.extent is not None else ceildiv(_whole(d.source, sizes), d.low)


def _invert(
    digits: list[_LayoutDigit], sizes: dict[Var, Expr], news: tuple[Var, ...], buffer: str, facts: Facts
) -> tuple[tuple[Expr, ...], Expr]:
    """The old indices in terms of the new ones, and the condition that they are inside the old shape."""
    found: dict[Var, Expr] = {}
    guards = []
    for source in dict.fromkeys(d.source for d in digits):
        parts = [(d, n) for d, n in zip(digits, news, strict=True) if d.source == source]
        total, covered = _compose(parts, _whole(source, sizes), buffer)
        enough = any(d.extent is None for d, _ in parts) or facts.proves(_whole(source, sizes) <= covered)
        names = ", ".join(v.name for v in source)
        check(enough, f"the mapping of '{buffer}' loses '{names}' from {covered} on; add '{names} // {covered}'")
        if covered != _whole(source, sizes):
            guards.append(total < _whole(source, sizes))
        for v in reversed(source):
            check(v not in found, f"the mapping of '{buffer}' uses the index '{v}' twice")
            found[v] = total % sizes[v] if v != source[0] else total
            total = total // sizes[v]
    for v in sizes:
        check(v in found, f"the mapping of '{buffer}' loses the index '{v}'")
    return tuple(found[v] for v in sizes), all_of(guards)


def _compose(parts: list[tuple[_LayoutDigit, Var]], whole: Expr, buffer: str) -> tuple[Expr, Expr]:
    """The number that the digits represent, and the size of their range."""
    covered: Expr = ONE
    total: Expr = ZERO
    left = list(parts)
    while left:
        part = next((p for p in left if p[0].low == covered), None)
        names = ", ".join(v.name for v in parts[0][0].source)
        check(
            part is not None,
            f"the mapping of '{buffer}' does not take '{names}' apart completely: no part begins at {covered}",
        )
        assert part is not None
        left.remove(part)
        digit, new = part
        total = total + new * digit.low
        check(digit.extent is not None or not left, f"the mapping of '{buffer}' uses digits of '{names}' twice")
        covered = covered * digit.extent if digit.extent is not None else ceildiv(whole, digit.low) * digit.low
    return total, covered


def _is_plain_copy(program: Program, b: Block) -> bool:
    """Whether a stage fills its buffer in a plain loop nest of its own, which can therefore be regenerated."""
    nest, path = loops_around(program, b.name), path_to(program.body, b)
    alone = bool(nest) and all(isinstance(s, Loop) for s in path[path.index(nest[0]) : -1])
    adds = b.init is not None or b.store.buffer in read(b)
    plain = not adds and not b.reduces and all(isinstance(i, Var) for i in b.store.indices)
    return alone and plain and b.predicate == TRUE and tuple(lp.var for lp in nest) == b.bindings


def _rewrite_accesses(
    program: Program,
    buffer: str,
    access: Callable[[tuple[Expr, ...], Block], tuple[Expr, ...]],
    refill: dict[str, Stmt],
) -> Stmt:
    """The body with accesses to the buffer in new indices; stages in `refill` are replaced as a whole."""

    def rewrite(b: Block) -> Stmt:
        def load(e: Expr) -> Expr | None:
            return Load(buffer, access(e.indices, b), e.type) if isinstance(e, Load) and e.buffer == buffer else None

        def store(s: Store) -> Store:
            value = transform(s.value, load)
            return Store(s.buffer, access(s.indices, b) if s.buffer == buffer else s.indices, value)

        return replace(b, body=store(b.store), init=None if b.init is None else store(b.init))

    tops = {loops_around(program, name)[0].name: nest for name, nest in refill.items()}

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Loop) and s.name in tops:
            return tops[s.name]
        if isinstance(s, Block) and is_leaf(s):
            return rewrite(s)
        return kept(s.map_children(visit))

    return visit(program.body)


def _reiterate(
    program: Program, b: Block, news: tuple[Var, ...], shape: tuple[Expr, ...], inverse: tuple[Expr, ...], guard: Expr
) -> Stmt:
    """The filling stage with one loop per new dimension; outside the old shape it stores zero."""
    at = dict(zip(b.store.indices, inverse, strict=True))
    iters = tuple(Iter(Var(f"v{n}"), e) for n, e in enumerate(shape))
    to_iters = Substitution({u: it.var for u, it in zip(news, iters, strict=True)})
    put = Substitution({v: to_iters(e) for v, e in at.items()})
    value = put(b.store.value)
    if guard != TRUE:
        value = select(to_iters(guard), value, const(0, value.dtype))
    loops = [(Var(fresh(program, f"{b.name}_u{n}")), e) for n, e in enumerate(shape)]
    store = Store(b.store.buffer, tuple(it.var for it in iters), value)
    body: Stmt = Block(b.name, iters, tuple(v for v, _ in loops), store, None, TRUE, b.annotations)
    for var, extent in reversed(loops):
        body = Loop(var, extent, body)
    return body


# --- padding ----------------------------------------------------------------------------------------------------------


@primitive
def pad(program: Program, block: str, multiples: Mapping[str, Like] | Sequence[tuple[str, Like]]) -> MadeNames:
    """Round a block's iteration domain up to multiples; inputs are zero-padded, the output is cropped.

        C[i, j] += A[i, k] * B[k, j]   =>   A_pad = A with zeros;  C_pad += A_pad * B_pad;  C = C_pad cropped

    `multiples` maps iteration variables of the block to multiples.  A padded reduction must be a sum of products in
    which some factor is padded with zeros.
    """
    b = find_block(program, block)
    check(is_leaf(b), f"block '{block}' holds other blocks")
    wanted = {k: index(v) for k, v in (multiples.items() if isinstance(multiples, Mapping) else multiples)}
    known = [it.var.name for it in b.iters]
    for n in wanted:
        check(n in known, nearest(f"iteration variable of '{block}'", n, known))
    nest = loops_around(program, block)
    check(b.bindings == tuple(lp.var for lp in nest), f"the loops of '{block}' have been changed already; pad first")
    check(b.predicate == TRUE, f"block '{block}' has a predicate")
    check_perfect(program, b, nest, "pad")
    adds = b.store.buffer in read(b) and b.init is None
    check(
        not adds,
        f"block '{block}' adds to '{b.store.buffer}', which another block has set; pad before decompose_reduction",
    )
    sizes = {
        it.var: ceildiv(it.extent, wanted[it.var.name]) * wanted[it.var.name] if it.var.name in wanted else it.extent
        for it in b.iters
    }
    grown = {it.var for it in b.iters if sizes[it.var] != it.extent}
    recorded = (("multiples", tuple(wanted.items())),)
    if not grown:
        return MadeNames(program, recorded=recorded)
    _check_padded_sum(b, grown)
    _check_guards(b, grown)
    return replace(_padded(program, b, nest, sizes, grown), recorded=recorded)


def _check_padded_sum(b: Block, grown: set[Var]) -> None:
    reduce = {it.var for it in b.iters if it.kind == "reduce"} & grown
    if not reduce:
        return
    found = sum_of(b)
    factors = list(_factors(found.term))
    ok = found.op == "add" and all(any(isinstance(f, Load) and v in f.indices for f in factors) for v in reduce)
    check(ok, f"'{b.name}' is not a sum of products that padding with zeros leaves unchanged: '{b.store.value}'")


def _check_guards(b: Block, grown: set[Var]) -> None:
    """Refuses loads whose indices may have been simplified under an enclosing condition that padding would change."""
    for x in walk(b.store.value):
        if isinstance(x, Select) and variables(x.condition) & grown:
            fixed = [ld for side in (x.a, x.b) for ld in loads(side) if not variables(ld) & grown]
            check(not fixed, f"'{b.name}' reads {names_of(fixed)} under '{x.condition}', a condition on what is padded")


def _factors(e: Expr) -> list[Expr]:
    if isinstance(e, Binary) and e.op == "mul":
        return [*_factors(e.a), *_factors(e.b)]
    return [e.a] if hasattr(e, "type") and not isinstance(e, Load) and hasattr(e, "a") else [e]


@dataclass
class _Padding:
    """The buffers, names and copies created by padding one block."""

    program: Program
    block: Block
    sizes: dict[Var, Expr]
    grown: set[Var]
    buffers: dict[str, Buffer] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    before: list[Stmt] = field(default_factory=list)
    after: list[Stmt] = field(default_factory=list)

    def input(self, ld: Load) -> None:
        """Creates a padded copy of the buffer that a load reads."""
        alone = all(isinstance(i, Var) for i in ld.indices if variables(i) & self.grown)
        check(alone, f"'{ld}' is not indexed by iteration variables alone, so it cannot be padded")
        several = any(x.buffer == ld.buffer and x != ld for x in loads(self.block.store.value))
        check(not several, f"'{ld.buffer}' is read at several places, so it cannot be padded for one of them")
        old = self.program.buffers[ld.buffer]
        pairs = zip(ld.indices, old.shape, strict=True)
        shape = tuple(self.sizes[i] if isinstance(i, Var) and i in self.grown else s for i, s in pairs)
        extents: dict[Expr, Expr] = {it.var: it.extent for it in self.block.iters}
        copied = [extents[i] if i in self.grown else None for i in ld.indices]
        name = self.rename(old, shape)
        inside = _inside(copied, old.shape, shape)
        self.before.append(_copy(self.program, ld.buffer, name, shape, ld.type, inside))

    def output(self) -> None:
        """Creates a padded output, from which the original is copied."""
        store = self.block.store
        plain = all(isinstance(i, Var) for i in store.indices)
        check(plain, f"'{self.block.name}' does not store one element per iteration")
        old = self.program.buffers[store.buffer]
        name = self.rename(old, tuple(self.sizes[i] for i in store.indices if isinstance(i, Var)))
        crop = fresh(self.program, f"{old.name}_crop")
        self.after.append(_copy(self.program, name, old.name, old.shape, old.dtype, TRUE, crop))

    def rename(self, old: Buffer, shape: tuple[Expr, ...]) -> str:
        name = fresh(self.program, f"{old.name}_pad")
        self.buffers[name] = replace(old, name=name, shape=shape)
        self.renamed[old.name] = name
        return name


def _padded(program: Program, b: Block, nest: list[Loop], sizes: dict[Var, Expr], grown: set[Var]) -> MadeNames:
    made = _Padding(program, b, sizes, grown)
    for ld in dict.fromkeys(x for x in loads(b.store.value) if x.buffer != b.store.buffer):
        if any(variables(i) & grown for i in ld.indices):
            made.input(ld)
    if any(it.var in grown for it in b.iters if it.kind == "space"):
        made.output()
    body: Stmt = _with_buffers(b, made.renamed, sizes)
    for lp, it in zip(reversed(nest), reversed(b.iters), strict=True):
        body = replace(lp, extent=sizes[it.var], body=body)
    check(top_statement(program, nest[0]) is nest[0], f"'{b.name}' has been moved into another nest; pad first")
    whole = replaced(program, nest[0], seq(*made.before, body, *made.after))
    buffers = {**program.buffers, **made.buffers}
    return MadeNames(program.with_body(whole, buffers=buffers), tuple(made.renamed.values()))


def _with_buffers(b: Block, renamed: dict[str, str], sizes: dict[Var, Expr]) -> Block:
    for old, new in renamed.items():
        changed = rename_buffer(b, old, new)
        assert isinstance(changed, Block)
        b = changed
    return replace(b, iters=tuple(Iter(it.var, sizes[it.var], it.kind) for it in b.iters))


def _axes(rank: int) -> tuple[Var, ...]:
    return tuple(Var(f"v{n}") for n in range(rank))


def _inside(read: list[Expr | None], source: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr:
    """Where a padded copy is nonzero: inside its source, and in padded dimensions only up to the extent read before."""
    where = []
    for v, far, have, want in zip(_axes(len(shape)), read, source, shape, strict=True):
        where += [v < e for e in (have, far) if e is not None and e != want]
    return all_of(where)


def _copy(
    program: Program,
    source: str,
    target: str,
    shape: tuple[Expr, ...],
    dtype: str,
    inside: Expr,
    name: str | None = None,
) -> Stmt:
    """A stage that copies to a target of the given shape where `inside` holds, and stores zero elsewhere."""
    block, at = name or target, _axes(len(shape))
    iters = tuple(Iter(v, e) for v, e in zip(at, shape, strict=True))
    value = select(inside, Load(source, at, dtype), const(0, dtype))
    loops = [(Var(fresh(program, f"{block}_{n}")), e) for n, e in enumerate(shape)]
    body: Stmt = Block(block, iters, tuple(v for v, _ in loops), Store(target, at, value))
    for var, extent in reversed(loops):
        body = Loop(var, extent, body)
    return body
