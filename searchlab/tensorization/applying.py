"""Application of a mapping: the inner part of a block becomes what an instruction's description says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from searchlab.errors import ScheduleError
from searchlab.ir.expr import ZERO, Expr, Load, Var
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.ir.sums import as_sum
from searchlab.ir.walk import loads
from searchlab.schedule import Schedule
from searchlab.tensorization.iterator_mappings import IteratorMapping, axis_name, free_names, loops_of, prepared
from searchlab.tensorization.scalar_bodies import description_block, description_operands


def apply_mapping(program: Program, mapping: IteratorMapping, description: Program) -> tuple[Program, str]:
    """The program with a block around tiles that are the description, and the name of that block.

    Operands are copied so that the block indexes them as the description does, behind the iterators that stay outside;
    extents are padded to multiples of the description's; loops are tiled.  A description without an init gets sums that
    have been begun before.
    """
    described = description_block(description)
    s = Schedule(prepared(program, mapping.block))
    _check_known(s.program, mapping, described)
    mapping = _in_order(s, mapping)
    copies = [_reindexed(s, mapping.block, buffer) for buffer in mapping.operands]
    inner = _fused(s, mapping, described)
    for (buffer, ld), operand in zip(copies, description_operands(described), strict=True):
        _ordered(s, mapping, described, buffer, ld, operand)
    _padded(s, mapping, described, inner, [buffer for buffer, _ in copies])
    added = as_sum(s.program.blocks[mapping.block].store)
    read = [ld.buffer for ld in loads(added.term)] if added is not None else []
    if len(read) == 2 and read[0] in (copies[2][0], f"{copies[2][0]}_pad"):  # the product is the other way round
        s.commute(mapping.block)
    made = _tiled(s, mapping, described, inner)
    return s.program, made


def _check_known(program: Program, mapping: IteratorMapping, described: Block) -> None:
    known = {it.var.name for it in program.blocks[mapping.block].iters}
    named = [*mapping.outside, *(v for group in mapping.groups for v in group)]
    if set(named) != known or len(named) != len(known) or len(mapping.groups) != len(described.iters):
        raise ScheduleError(
            f"the mapping is not one of block '{mapping.block}' with iterators {', '.join(sorted(known))}"
        )


def _in_order(s: Schedule, mapping: IteratorMapping) -> IteratorMapping:
    """Puts the iterators in the order of the mapping, so that copies are fused alike; the mapping in their names."""
    loops = loops_of(s.program, mapping.block)
    order = [*mapping.outside, *(v for group in mapping.groups for v in group)]
    where = [list(loops).index(v) for v in order]
    s.transform_block_layout(mapping.block, lambda *x: [x[n] for n in where], names=[loops[v] for v in order])
    new = dict(zip(order, loops_of(s.program, mapping.block), strict=True))
    groups = tuple(tuple(new[v] for v in group) for group in mapping.groups)
    return replace(mapping, groups=groups, outside=tuple(new[v] for v in mapping.outside))


def _reindexed(s: Schedule, block: str, buffer: str) -> tuple[str, tuple[str, ...]]:
    """Reindexes an operand; the name of its copy, and the iterators that index it."""
    s.reindex(block, buffer)
    made = s.program.trace[-1].made[-1]
    b = s.program.blocks[block]
    found = [Load(made, b.store.indices, "")] if b.store.buffer == made else []
    found += [e for e in loads(b.store.value) if e.buffer == made]
    return made, tuple(i.name for i in found[0].indices if isinstance(i, Var))


def _number(parts: Sequence[tuple[Expr, Expr]]) -> Expr:
    """Indices with their extents, fused."""
    whole: Expr = ZERO
    for v, extent in parts:
        whole = whole * extent + v
    return whole


def _fused(s: Schedule, mapping: IteratorMapping, described: Block) -> list[str]:
    """Fuses the iterators of the block; the loops of those that the description has."""
    b = s.program.blocks[mapping.block]
    at = {it.var.name: n for n, it in enumerate(b.iters)}
    sizes = [it.extent for it in b.iters]
    loops = loops_of(s.program, mapping.block)

    def fuse(*x: Expr) -> list[Expr]:
        groups = [_number([(x[at[v]], sizes[at[v]]) for v in group]) for group in mapping.groups]
        return [*(x[at[v]] for v in mapping.outside), *groups]

    outside = [loops[v] for v in mapping.outside]
    wanted = [axis_name(it.var.name) for it in described.iters]
    inner = free_names(wanted, s.program, without=set(loops.values()) - set(outside))
    s.transform_block_layout(mapping.block, fuse, names=[*outside, *inner])
    return inner


def _ordered(
    s: Schedule, mapping: IteratorMapping, described: Block, buffer: str, at: tuple[str, ...], operand: Load
) -> None:
    """Lays a copy out as the description indexes its operand, behind the iterators that stay outside."""
    shape = s.program.buffers[buffer].shape
    groups = {it.var: group for it, group in zip(described.iters, mapping.groups, strict=True)}

    def layout(*x: Expr) -> list[Expr]:
        place = {v: (x[n], shape[n]) for n, v in enumerate(at)}
        fused = [_number([place[v] for v in groups[i]]) for i in operand.indices if isinstance(i, Var)]
        return [*(place[v][0] for v in mapping.outside if v in place), *fused]

    s.transform_layout(buffer, layout)


def _padded(s: Schedule, mapping: IteratorMapping, described: Block, inner: list[str], copies: Sequence[str]) -> None:
    """Pads to multiples of the description's extents; copies that only feed a padded one become part of it."""
    of = dict(zip([it.var.name for it in described.iters], zip(inner, described.iters, strict=True), strict=True))
    wanted = {f"v{of[name][0]}": of[name][1].extent for name in mapping.padded}
    if not wanted:
        return
    s.pad(mapping.block, wanted)
    made = s.program.trace[-1].made
    output, *inputs = copies
    for name in inputs:
        if f"{name}_pad" in made:
            s.compute_inline(name)
    if f"{output}_pad" in made:
        s.compute_inline(f"{output}_crop")


def _tiled(s: Schedule, mapping: IteratorMapping, described: Block, inner: list[str]) -> str:
    """Tiles the loops by the description's extents, and makes a block of the tile; its name."""
    tiles = {name: s.split(name, [None, it.extent]) for name, it in zip(inner, described.iters, strict=True)}
    kinds = {name: it.kind for name, it in zip(inner, described.iters, strict=True)}
    outside = [lp for lp in s.loops(mapping.block) if not any(lp in pair for pair in tiles.values())]
    sums = {lp for lp in outside if _is_summed(s, mapping.block, lp)}
    outer = [*(lp for lp in outside if lp not in sums), *(t[0] for name, t in tiles.items() if kinds[name] == "space")]
    adding = [*(lp for lp in outside if lp in sums), *(t[0] for name, t in tiles.items() if kinds[name] == "reduce")]
    last = [t[1] for t in tiles.values()]
    s.reorder(*outer, *adding, *last)
    if described.init is None:
        s.decompose_reduction(mapping.block, adding[0] if adding else last[0])
    return s.blockize(last[0])


def _is_summed(s: Schedule, block: str, loop: str) -> bool:
    b = s.program.blocks[block]
    return any(it.kind == "reduce" and e == Var(loop) for it, e in zip(b.iters, b.bindings, strict=True))
