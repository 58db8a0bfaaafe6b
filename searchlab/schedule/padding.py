"""pad and unpad: iteration domains rounded up to multiples, with zeros around the operands, and back again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from searchlab.ir.expr import (
    TRUE,
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Select,
    Var,
    all_of,
    conditions,
    const,
    select,
)
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import kept, path_to, read, rename_buffer, swap
from searchlab.ir.stmt import Block, Buffer, Iter, Loop, Stmt, Store, seq
from searchlab.ir.walk import loads, variables, walk
from searchlab.schedule.enlarging import LargerDomain, Multiples, larger_domain
from searchlab.schedule.nests import stage_nest
from searchlab.schedule.primitive import (
    MadeNames,
    check,
    consumers,
    find_block,
    fresh,
    is_leaf,
    names_of,
    primitive,
    producers,
    replaced,
    top_statement,
)
from searchlab.schedule.reduction import sum_of


@primitive
def pad(program: Program, block: str, multiples: Multiples) -> MadeNames:
    """Round a block's iteration domain up to multiples; inputs are zero-padded, the output is cropped.

        C[i, j] += A[i, k] * B[k, j]   =>   A_pad = A with zeros;  C_pad += A_pad * B_pad;  C = C_pad cropped

    `multiples` maps iteration variables of the block to multiples.  A padded reduction must be a sum of products in
    which some factor is padded with zeros.
    """
    domain = larger_domain(program, block, multiples, "pad")
    b, grown = domain.block, set(domain.grown)
    adds = b.store.buffer in read(b) and b.init is None
    check(
        not adds,
        f"block '{block}' adds to '{b.store.buffer}', which another block has set; pad before decompose_reduction",
    )
    if not grown:
        return MadeNames(program, recorded=domain.recorded)
    _check_padded_sum(b, grown)
    _check_guards(b, grown)
    return replace(_padded(program, domain), recorded=domain.recorded)


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
        grown = {it.var for it in self.block.iters if it.kind == "space"} & self.grown
        plain = all(isinstance(i, Var) for i in store.indices) and grown <= set(store.indices)
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


def _padded(program: Program, domain: LargerDomain) -> MadeNames:
    b, nest, grown = domain.block, domain.nest, set(domain.grown)
    made = _Padding(program, b, domain.sizes, grown)
    for ld in dict.fromkeys(x for x in loads(b.store.value) if x.buffer != b.store.buffer):
        if any(variables(i) & grown for i in ld.indices):
            made.input(ld)
    if any(it.var in grown for it in b.iters if it.kind == "space"):
        made.output()
    check(top_statement(program, nest[0]) is nest[0], f"'{b.name}' has been moved into another nest; pad first")
    body = domain.around(_with_buffers(b, made.renamed, domain.sizes))
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

    def store(at: tuple[Var, ...]) -> Store:
        return Store(target, at, select(inside, Load(source, at, dtype), const(0, dtype)))

    return stage_nest(program, name or target, shape, store)


# --- and back ---------------------------------------------------------------------------------------------------------


@primitive
def unpad(program: Program, block: str) -> MadeNames:
    """Take back the padding of a block, also after its loops have been split and reordered.

        A_pad = A with zeros;  C_pad += A_pad * B_pad;  C = C_pad cropped   =>   C[i, j] += A[i, k] * B[k, j]

    The copies that only served the padding are dropped.  Where the loops go beyond the domain, a predicate masks the
    surplus iterations.  A padded copy in another layout is still read; its padding does no harm.
    """
    b = find_block(program, block)
    check(is_leaf(b), f"block '{block}' holds other blocks")
    others = [p for p in producers(program, b.store.buffer) if p.name != block]
    check(not others, f"'{b.store.buffer}' is set by {names_of(others)} too; unpad before decompose_reduction")
    copies = {n: found for n in read(b) if (found := _padded_copy(program, b, n)) is not None}
    crop = _crop(program, b)
    sizes = _sizes_before(program, b, copies, crop)
    check(bool(sizes), f"block '{block}' has no padding to take back, or it has been laid out otherwise")
    unneeded = {n: c for n, c in copies.items() if _stays_inside(b, n, c, sizes)}
    renamed = {n: c.source for n, c in unneeded.items()}
    dropped = [program.blocks[c.block] for c in unneeded.values()]
    if crop is not None:
        renamed[b.store.buffer] = crop.source
        dropped.append(program.blocks[crop.block])
    whole = {it.var: sizes.get(it.var, it.extent) for it in b.iters}
    body = replaced(program, b, _masked(program, _with_buffers(b, renamed, whole), sizes))
    for stage in dropped:
        body = kept(swap(body, stage, None))
    buffers = {n: x for n, x in program.buffers.items() if n not in renamed}
    return MadeNames(_trimmed(program.with_body(body, buffers=buffers), block))


@dataclass(frozen=True, slots=True)
class _Copied:
    """A stage that copies between buffers element by element; `sizes` are the extents of what is not zero."""

    block: str
    source: str
    sizes: tuple[Expr, ...]


def _padded_copy(program: Program, b: Block, name: str) -> _Copied | None:
    """The stage that makes a padded copy which only `b` reads, at iteration variables."""
    makers, readers = producers(program, name), [x.name for x in consumers(program, name)]
    at_variables = all(isinstance(i, Var) for ld in loads(b.store.value) if ld.buffer == name for i in ld.indices)
    if len(makers) != 1 or readers != [b.name] or name in program.outputs or not at_variables:
        return None
    store = makers[0].store
    value, at = store.value, store.indices
    if not (isinstance(value, Select) and isinstance(value.a, Load) and value.a.indices == at and _is_zero(value.b)):
        return None
    if at != tuple(it.var for it in makers[0].iters):
        return None
    limits = {c.a: c.b for c in conditions(value.condition) if isinstance(c, Compare) and c.op == "lt"}
    if len(limits) != len(conditions(value.condition)) or not limits.keys() <= set(at):
        return None
    sizes = tuple(limits.get(v, e) for v, e in zip(at, program.buffers[name].shape, strict=True))
    return _Copied(makers[0].name, value.a.buffer, sizes)


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def _crop(program: Program, b: Block) -> _Copied | None:
    """The stage that alone reads what a block writes, and copies a part of it, which starts at its first element."""
    made, readers = b.store.buffer, consumers(program, b.store.buffer)
    if made in program.outputs or len(readers) != 1:
        return None
    store, at = readers[0].store, tuple(it.var for it in readers[0].iters)
    plain = store.indices == at and store.value == Load(made, at, store.value.dtype)
    target = program.buffers[store.buffer]
    whole = plain and tuple(it.extent for it in readers[0].iters) == target.shape
    if not whole or len(producers(program, store.buffer)) != 1 or not all(isinstance(i, Var) for i in b.store.indices):
        return None
    return _Copied(readers[0].name, store.buffer, target.shape)


def _sizes_before(program: Program, b: Block, copies: Mapping[str, _Copied], crop: _Copied | None) -> dict[Var, Expr]:
    """The extents before the padding: of space variables from the crop, of reduce variables from zeros in a factor."""
    found: dict[Var, Expr] = {}
    extents = {it.var: it for it in b.iters}
    if crop is not None:
        found = {v: e for v, e in zip(b.store.indices, crop.sizes, strict=True) if isinstance(v, Var)}
    for name, copy in copies.items():
        for ld in (x for x in loads(b.store.value) if x.buffer == name):
            for v, e, whole in zip(ld.indices, copy.sizes, program.buffers[name].shape, strict=True):
                if isinstance(v, Var) and extents[v].kind == "reduce" and e != whole and _is_factor(b, ld):
                    found[v] = e
    return {v: e for v, e in found.items() if e != extents[v].extent}


def _is_factor(b: Block, ld: Load) -> bool:
    found = sum_of(b)
    return found.op == "add" and any(f == ld for f in _factors(found.term))


def _stays_inside(b: Block, name: str, copy: _Copied, sizes: Mapping[Var, Expr]) -> bool:
    """Whether a block no longer reads the zeros of a padded copy."""
    extents: dict[Expr, Expr] = {it.var: sizes.get(it.var, it.extent) for it in b.iters}
    found = [ld.indices for ld in loads(b.store.value) if ld.buffer == name]
    return all(extents[i] == e for at in found for i, e in zip(at, copy.sizes, strict=True))


def _masked(program: Program, b: Block, sizes: Mapping[Var, Expr]) -> Block:
    """The block with its predicate extended by what keeps its smaller domain."""
    bound = {it.var: e for it, e in zip(b.iters, b.bindings, strict=True)}
    guards = [c for v, e in sizes.items() if not program.facts.proves(c := bound[v] < e)]
    return replace(b, predicate=all_of((b.predicate, *guards)))


def _trimmed(program: Program, block: str) -> Program:
    """The program with shorter loops where a whole loop of the block is masked by one condition on it alone."""
    b = program.blocks[block]
    for c in conditions(b.predicate):
        assert isinstance(c, Compare)
        loop = program.loops.get(c.a.name) if isinstance(c.a, Var) and c.op == "lt" else None
        if loop is None or variables(c.b) & program.facts.extents.keys():
            continue
        inside = path_to(loop, program.blocks[block])
        if inside and all(isinstance(s, Loop) for s in inside[:-1]):
            left = [x for x in conditions(program.blocks[block].predicate) if x != c]
            new = kept(swap(loop, inside[-1], replace(program.blocks[block], predicate=all_of(left))))
            program = program.with_body(replaced(program, loop, replace(new, extent=c.b)))  # type: ignore[type-var]
    return program
