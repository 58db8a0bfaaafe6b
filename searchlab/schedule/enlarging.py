"""Iteration domains rounded up to multiples: what pad and round_up begin with, and the nest that they end with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import Expr, Like, Var, index
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Iter, Loop, Stmt
from searchlab.schedule.nests import untouched_nest
from searchlab.schedule.primitive import check, find_block, is_leaf, nearest

Multiples = Mapping[str, Like] | Sequence[tuple[str, Like]]


@dataclass(frozen=True)
class LargerDomain:
    """A block in untouched loops, and the extents that its iteration variables get.

    `recorded` are the multiples as the trace has them.
    """

    block: Block
    nest: list[Loop]
    sizes: dict[Var, Expr]
    recorded: tuple[tuple[str, tuple[tuple[str, Expr], ...]], ...]

    @property
    def grown(self) -> dict[Var, Expr]:
        """Those that get larger."""
        return {it.var: self.sizes[it.var] for it in self.block.iters if self.sizes[it.var] != it.extent}

    def around(self, b: Block) -> Stmt:
        """The loops, with their new extents, around the block in another form."""
        body: Stmt = replace(b, iters=tuple(Iter(it.var, self.sizes[it.var], it.kind) for it in b.iters))
        for lp, it in zip(reversed(self.nest), reversed(b.iters), strict=True):
            body = replace(lp, extent=self.sizes[it.var], body=body)
        return body


def larger_domain(program: Program, block: str, multiples: Multiples, what: str) -> LargerDomain:
    """The domain of a block rounded up; refuses unknown variables, and blocks that `what` comes too late for."""
    b = find_block(program, block)
    check(is_leaf(b), f"block '{block}' holds other blocks")
    wanted = {k: index(v) for k, v in (multiples.items() if isinstance(multiples, Mapping) else multiples)}
    known = [it.var.name for it in b.iters]
    for n in wanted:
        check(n in known, nearest(f"iteration variable of '{block}'", n, known))
    nest = untouched_nest(program, b, what)
    sizes = {it.var: _rounded(it, wanted.get(it.var.name)) for it in b.iters}
    return LargerDomain(b, nest, sizes, (("multiples", tuple(wanted.items())),))


def _rounded(it: Iter, multiple: Expr | None) -> Expr:
    return it.extent if multiple is None else ceildiv(it.extent, multiple) * multiple
