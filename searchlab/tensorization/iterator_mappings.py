"""Mappings of a block's iterators to those of an instruction, by characteristic vectors.

The characteristic vector of an iterator says in which operands it occurs: (output, first, second ...).  Iterators of a
convolution with (1, 1, 0), the output and the data, are rows of a matrix product; with (1, 0, 1), columns; with
(0, 1, 1), what is added up.  An iterator of the instruction takes one or several of equal vector and kind, fused in any
order; the rest stay outside, as does what occurs in all operands (a batch, a group).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from math import prod

from searchlab.ir.algebra import mod
from searchlab.ir.expr import ONE, ZERO, Binary, Expr, Var
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Iter
from searchlab.ir.walk import walk
from searchlab.schedule import transform_block_layout
from searchlab.schedule.primitive import find_block, loops_around
from searchlab.tensorization.scalar_bodies import (
    BodyMatch,
    body_matches,
    description_block,
    description_operands,
)

Vector = tuple[int, ...]
LIMIT = 64  # mappings that are made at a time; all are counted


@dataclass(frozen=True, slots=True)
class IteratorMapping:
    """One way to let an instruction compute the inner part of a block.

    `operands` are the block's buffers in the order of the description's (output first), `groups` the iterators that are
    fused for each iterator of the description, outermost first, and `outside` the others.  `padded` names iterators of
    the description whose extent does not divide that of its group.
    """

    block: str
    operands: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    outside: tuple[str, ...]
    padded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mappings:
    """The number of mappings, and the first of them, most natural first."""

    count: int
    first: tuple[IteratorMapping, ...]


@dataclass(frozen=True, slots=True)
class NoMapping:
    """Why an instruction cannot compute a block, in words; it is falsy.

    `same_body` says that both add up the same terms, so that it is for the iterators alone.
    """

    block: str
    description: str
    reason: str
    same_body: bool = False

    @property
    def words(self) -> str:
        """The reason as a sentence for itself."""
        return f"'{self.block}' is not computed by '{self.description}': {self.reason}"

    def __bool__(self) -> bool:
        return False


def mappings(program: Program, block: str, description: Program, limit: int = LIMIT) -> Mappings | NoMapping:
    """All mappings of a block's iterators to those of a description, the first `limit` of them made."""
    described = description_block(description)
    program = prepared(program, block)
    b = find_block(program, block)
    matched = body_matches(b, described)
    if isinstance(matched, str):
        return NoMapping(block, description.name, matched)
    found: list[IteratorMapping] = []
    count, words = 0, ""
    for match in matched:
        choices = _choices(b, described, match)
        if isinstance(choices, str):
            words = words or choices
            continue
        count += prod(map(len, choices))
        found += [_mapping(program, b, described, match, groups) for groups in islice(_combined(choices), limit)]
    return Mappings(count, tuple(found[:limit])) if count else NoMapping(block, description.name, words, True)


def prepared(program: Program, block: str) -> Program:
    """The program with iterators split where an operand uses only their quotient, such as the group of a channel."""
    b = find_block(program, block)
    for it in b.iters:
        parts = [x for e in b.store.own_expressions() for x in walk(e) if isinstance(x, Binary)]
        tiles = {x.b for x in parts if x.op == "floordiv" and x.a == it.var}
        if len(tiles) == 1 and mod(it.extent, tile := tiles.pop()) == ZERO:
            olds = tuple(Var(f"x{n}") for n in range(len(b.iters)))
            at = b.iters.index(it)
            news = (*olds[:at], olds[at] // tile, olds[at] % tile, *olds[at + 1 :])
            loops = list(loops_of(program, block).values())
            names = [*loops[:at], *free_names([f"{loops[at]}_0", f"{loops[at]}_1"], program), *loops[at + 1 :]]
            return prepared(transform_block_layout(program, block, (olds, news), names), block)
    return program


# --- characteristic vectors -------------------------------------------------------------------------------------------


def characteristic(v: Var, operands: Sequence[frozenset[Var]]) -> Vector:
    """In which operands an iterator occurs."""
    return tuple(int(v in used) for used in operands)


def _choices(b: Block, described: Block, match: BodyMatch) -> list[list[tuple[Iter, ...]]] | str:
    """For each iterator of the description, all groups that it can take, most natural first; or who has no partner."""
    theirs = [frozenset(i for i in ld.indices if isinstance(i, Var)) for ld in description_operands(described)]
    ours = [o.used for o in match.operands]
    vectors = {it: characteristic(it.var, ours) for it in b.iters}
    found = []
    for it in described.iters:
        wanted = characteristic(it.var, theirs)
        if [characteristic(x.var, theirs) for x in described.iters if x.kind == it.kind].count(wanted) > 1:
            return f"'{it.var}' of the description occurs in the same operands as another of its iterators"
        fitting = [x for x, vector in vectors.items() if vector == wanted and x.kind == it.kind]
        if not fitting:
            return _no_partner(it, wanted, vectors, match)
        found.append(_groups(fitting))
    return found


def _no_partner(it: Iter, wanted: Vector, vectors: dict[Iter, Vector], match: BodyMatch) -> str:
    names = [o.buffer for o in match.operands]

    def said(vector: Vector) -> str:
        return " and ".join(name for name, bit in zip(names, vector, strict=True) if bit) or "no operand"

    of_kind = [(x, vector) for x, vector in vectors.items() if x.kind == it.kind]
    others = (
        ", ".join(f"{axis_name(x.var.name, names[0])} in {said(vector)}" for x, vector in of_kind) or "there is none"
    )
    kind = "space" if it.kind == "space" else "reduction"
    described = f"as {axis_name(it.var.name)} of the description does"
    return f"no {kind} iterator occurs in {said(wanted)} alone, {described}: {others}"


def _groups(fitting: list[Iter]) -> list[tuple[Iter, ...]]:
    """All non-empty ordered subsets: first those in the block's order, and of these first the largest, then the last.

    Iterators of extent 1 change nothing, so they are left out unless there is no other.
    """
    moving = [it for it in fitting if it.extent != ONE] or fitting[-1:]
    places = {it: n for n, it in enumerate(moving)}
    chosen = [group for size in range(1, len(moving) + 1) for group in permutations(moving, size)]

    def naturalness(group: tuple[Iter, ...]) -> tuple[int, int, tuple[int, ...]]:
        at = [places[it] for it in group]
        turned = sum(a > b for n, a in enumerate(at) for b in at[n + 1 :])
        return turned, -len(at), tuple(-n for n in reversed(at))

    return sorted(chosen, key=naturalness)


def _combined(choices: list[list[tuple[Iter, ...]]]) -> Iterator[tuple[tuple[Iter, ...], ...]]:
    """One group for each iterator of the description, in all combinations, those of early choices first."""
    start = (0,) * len(choices)
    heap, seen = [(0, start)], {start}
    while heap:
        _, at = heapq.heappop(heap)
        yield tuple(c[n] for c, n in zip(choices, at, strict=True))
        for k in range(len(at)):
            after = (*at[:k], at[k] + 1, *at[k + 1 :])
            if after[k] < len(choices[k]) and after not in seen:
                seen.add(after)
                heapq.heappush(heap, (sum(after), after))


def _mapping(
    program: Program, b: Block, described: Block, match: BodyMatch, groups: tuple[tuple[Iter, ...], ...]
) -> IteratorMapping:
    taken = {it for group in groups for it in group}
    padded = []
    for it, group in zip(described.iters, groups, strict=True):
        if program.facts.simplify(mod(_product(x.extent for x in group), it.extent)) != ZERO:
            padded.append(it.var.name)
    return IteratorMapping(
        b.name,
        tuple(o.buffer for o in match.operands),
        tuple(tuple(it.var.name for it in group) for group in groups),
        tuple(it.var.name for it in b.iters if it not in taken),
        tuple(padded),
    )


def loops_of(program: Program, block: str) -> dict[str, str]:
    """The loop that each iterator of an unscheduled block is bound to."""
    b = find_block(program, block)
    return {it.var.name: lp.name for it, lp in zip(b.iters, loops_around(program, block), strict=True)}


def free_names(wanted: Iterable[str], program: Program, without: Collection[str] = ()) -> list[str]:
    """Names for new loops, as near to those wanted as a program lets them be; names in `without` are about to go."""
    used = {*program.loops, *program.blocks, *program.buffers} - set(without)
    names = []
    for name in wanted:
        while name in used:
            name = f"{name}_"
        used.add(name)
        names.append(name)
    return names


def axis_name(iterator: str, block: str = "") -> str:
    """An iterator as people call it: `vh` of any block and `vY_h` of block Y are h."""
    return iterator.removeprefix("v").removeprefix(f"{block}_")


def fused_extents(program: Program, mapping: IteratorMapping) -> tuple[Expr, ...]:
    """How many iterations the groups of a mapping have, one for each iterator of the description."""
    sizes = {it.var.name: it.extent for it in find_block(prepared(program, mapping.block), mapping.block).iters}
    return tuple(_product(sizes[v] for v in group) for group in mapping.groups)


def _product(extents: Iterable[Expr]) -> Expr:
    whole: Expr = ONE
    for extent in extents:
        whole = whole * extent
    return whole
