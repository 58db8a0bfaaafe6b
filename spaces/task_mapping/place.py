"""A task mapping put on a stage of a program: its loops are split, ordered and run as the mapping says."""

from __future__ import annotations

from collections.abc import Mapping

from searchlab.errors import SpaceError
from searchlab.ir.expr import ONE, Expr, Like
from searchlab.schedule import Schedule
from searchlab.tactics import fuse_parallel
from spaces.task_mapping.mapping import Custom, Projection, Repeat, Spatial, TaskMapping, by_rank


def place(s: Schedule, block: str, mapping: TaskMapping) -> list[list[str]]:
    """Runs a stage by a mapping of its iteration variables; the names of the loops that each atom became.

    The first spatial atom stands for the cores, which `share` gives its loops in the end; later ones are lanes.  The
    outermost extent of each dimension is rounded up, whatever the mapping says, and the surplus is cut off.
    """
    made = [dict[int, str]() for _ in mapping.atoms]
    for d, loop in enumerate(_own_loops(s, block, mapping)):
        for n, name in _split(s, loop, mapping, d).items():
            made[n][d] = name
    found = [
        [names[d] for d in by_rank(atom.ranks) if d in names] if isinstance(atom, (Repeat, Spatial)) else []
        for atom, names in zip(mapping.atoms, made, strict=True)
    ]
    order = [name for names in found for name in names]
    if len(order) > 1:
        s.reorder(*order)
    _mark(s, mapping, found)
    return found


def _split(s: Schedule, loop: str, mapping: TaskMapping, d: int) -> dict[int, str]:
    """The loop of one dimension in as many as there are atoms that move in it, by the numbers of these atoms."""
    at = [n for n, atom in enumerate(mapping.atoms) if atom.shape[d] != ONE] or [0]
    factors: list[Like | None] = [None, *(mapping.atoms[n].shape[d] for n in at[1:])]
    return dict(zip(at, s.split(loop, factors, tail=True) if len(at) > 1 else [loop], strict=True))


def share(s: Schedule, loops: list[str], threads: int) -> None:
    """Lets the cores share loops that are directly nested, as one; a single iteration cannot be shared."""
    if threads > 1 and any(s.program.loops[lp].extent != ONE for lp in loops):
        fuse_parallel(s, loops)


def _own_loops(s: Schedule, block: str, mapping: TaskMapping) -> list[str]:
    if any(isinstance(a, (Custom, Projection)) for a in mapping.atoms):
        raise SpaceError(f"a stage is placed with repeat and spatial only, not with {mapping}")
    b = s.program.blocks[block]
    loops = s.loops(block)
    own = loops[len(loops) - len(b.iters) :]
    if len(b.iters) != mapping.rank or tuple(s.program.loops[lp].var for lp in own) != b.bindings:
        raise SpaceError(f"a mapping of rank {mapping.rank} does not fit the loops {', '.join(loops)} of '{block}'")
    return own


def _mark(s: Schedule, mapping: TaskMapping, loops: list[list[str]]) -> None:
    cores = next((n for n, a in enumerate(mapping.atoms) if isinstance(a, Spatial)), None)
    for n, (atom, names) in enumerate(zip(mapping.atoms, loops, strict=True)):
        lanes = isinstance(atom, Spatial) and n != cores
        if lanes or (isinstance(atom, Repeat) and atom.kind == "vectorized"):
            s.vectorize(*names)
        elif isinstance(atom, Repeat) and atom.kind == "unrolled":
            s.unroll(*names)


def extents(rank: int, at: Mapping[int, Like]) -> list[Like]:
    """A task shape that is 1 but for the given dimensions."""
    return [at.get(d, 1) for d in range(rank)]


def shape(s: Schedule, block: str) -> list[Expr]:
    """The extents of a stage's iteration variables."""
    return [it.extent for it in s.program.blocks[block].iters]
