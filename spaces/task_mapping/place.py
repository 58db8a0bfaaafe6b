"""A task mapping put on a stage of a program: its loops are split, ordered and run as the mapping says."""

from __future__ import annotations

from collections.abc import Mapping

from searchlab.errors import SpaceError
from searchlab.ir.expr import ONE, Expr, Like
from searchlab.schedule import Schedule
from searchlab.tactics import fuse_parallel
from spaces.task_mapping.mapping import Atom, Called, Custom, Projection, Repeat, Spatial, TaskMapping, by_rank


def place(s: Schedule, block: str, mapping: TaskMapping) -> list[list[str]]:
    """Runs a stage by a mapping of its iteration variables; the names of the loops that each atom became.

    The first spatial atom stands for the cores, which `share` gives its loops in the end; later ones are lanes.  A call
    is a nest of loops until `insert`, since stages are placed around loops.  The outermost extent of each dimension is
    rounded up, whatever the mapping says, and the surplus is cut off.
    """
    made = [dict[int, list[str]]() for _ in mapping.atoms]
    for d, loop in enumerate(_own_loops(s, block, mapping)):
        for n, name in _split(s, loop, mapping, d):
            made[n].setdefault(d, []).append(name)
    found = [_ordered(atom, names) for atom, names in zip(mapping.atoms, made, strict=True)]
    order = [name for names in found for name in names]
    if len(order) > 1:
        s.reorder(*order)
    _mark(s, mapping, found)
    return found


def _split(s: Schedule, loop: str, mapping: TaskMapping, d: int) -> list[tuple[int, str]]:
    """The loop of one dimension in as many as atoms have in it, each with the number of its atom."""
    parts = [(n, e) for n, atom in enumerate(mapping.atoms) for e in atom.along(d)] or [(0, ONE)]
    factors: list[Like | None] = [None, *(e for _, e in parts[1:])]
    names = s.split(loop, factors, tail=True) if len(parts) > 1 else [loop]
    return [(n, name) for (n, _), name in zip(parts, names, strict=True)]


def _ordered(atom: Atom, names: dict[int, list[str]]) -> list[str]:
    """The loops of an atom from the outermost: by its ranks, or as a description has them."""
    if isinstance(atom, Called):
        left = {d: list(those) for d, those in names.items()}
        return [left[d].pop(0) for d, _ in atom.loops]
    assert isinstance(atom, (Repeat, Spatial))
    return [name for d in by_rank(atom.ranks) for name in names.get(d, [])]


def insert(s: Schedule, mapping: TaskMapping, loops: list[list[str]]) -> None:
    """Makes calls of the loops that `place` made of the last atom; operands keep their layouts from then on."""
    last = mapping.atoms[-1]
    if isinstance(last, Called):
        s.tensorize(loops[-1][0], last.intrinsic)


def share(s: Schedule, loops: list[str], threads: int) -> None:
    """Lets the cores share loops that are directly nested, as one; a single iteration cannot be shared."""
    if threads > 1 and any(s.program.loops[lp].extent != ONE for lp in loops):
        fuse_parallel(s, loops)


def _own_loops(s: Schedule, block: str, mapping: TaskMapping) -> list[str]:
    if any(isinstance(a, (Custom, Projection)) for a in mapping.atoms):
        raise SpaceError(f"a stage is placed with repeat, spatial and call only, not with {mapping}")
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
