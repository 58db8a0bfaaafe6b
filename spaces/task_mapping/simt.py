"""The matrix product of a GPU without matrix units (fp32), as rules: which tile shapes are valid under which limits.

    block = spatial(block_warps) * repeat(warp_outer) * atom of 32 lanes * repeat(warp_inner)

`grid` makes programs of its points.  How many points are valid follows from the limits, which are part of the space:
177 with 48 KB of shared memory per multiprocessor, 268 with 100 KB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from searchlab.errors import SpaceError
from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import Expr, compare, knob, value_of
from searchlab.search import Knob, Points, Sketch, Space
from spaces.task_mapping.mapping import TaskMapping, repeat, spatial

WARP_INNER = (4, 4)
WARP_OUTER = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 1), (2, 3), (3, 2), (3, 3))
DEPTHS = ((4, 1), (8, 1))  # steps of the sum that a block keeps in shared memory, and those of a warp
BLOCK_WARPS = ((1, 1), (1, 2), (2, 1), (2, 2), (2, 4), (4, 2))
ATOMS = (spatial(4, 8), spatial(2, 1) * spatial(1, 8) * spatial(2, 1), spatial(2, 16))
ATOM_ROWS = ((4, 1), (2, 2), (2, 1))  # rows of each atom: those outside and those inside of its columns
_LANES = 32
_STAGES = 2  # double buffering
_OTHER_REGISTERS = 48  # addresses and counters
_FLOAT = 4


@dataclass(frozen=True)
class MultiprocessorLimits:
    """The resources of a multiprocessor: bytes of shared memory, registers, and registers that one thread may use."""

    shared_memory: int = 48 << 10
    registers: int = 64 << 10
    thread_registers: int = 255


@dataclass(frozen=True)
class SimtMatmul:
    """The space under some limits."""

    limits: MultiprocessorLimits = MultiprocessorLimits()

    @property
    def space(self) -> Space:
        """Four knobs and the conditions that the limits set."""
        return Space([Sketch("simt", simt_knobs(), simt_conditions(self.limits))], "simt-matmul")

    def mapping(self, point: Points) -> TaskMapping:
        """The mapping of a block's threads to its tile, for one point of the space."""
        if len(point) != 1:
            raise SpaceError(f"a mapping belongs to one point, not to {len(point)}")
        v = {name: int(values[0]) for name, values in self.space.values(point).items()}
        block = spatial(v["block_m"], v["block_n"]) * repeat(v["warp_m"], v["warp_n"])
        return block * ATOMS[v["atom"]] * repeat(*WARP_INNER)


def simt_knobs() -> tuple[Knob, ...]:
    """What the warps and threads of a block compute; of an atom, the rows are `atom_m` = `atom_o` * `atom_i`.

    Its lanes are numbered by `atom_o`, then by its columns, then by `atom_i`.
    """
    atoms = [[n, *(value_of(e) or 0 for e in a.task_shape), *ATOM_ROWS[n]] for n, a in enumerate(ATOMS)]
    symbols = ("atom", "atom_m", "atom_n", "atom_o", "atom_i")
    return (
        _knob("warp_outer", ("warp_m", "warp_n"), WARP_OUTER),
        _knob("depth", ("block_k", "warp_k"), DEPTHS),
        _knob("block_warps", ("block_m", "block_n"), BLOCK_WARPS),
        Knob("atom", "category", symbols, np.array(atoms), tuple(map(str, ATOMS))),
    )


def _knob(name: str, symbols: tuple[str, str], pairs: tuple[tuple[int, int], ...]) -> Knob:
    return Knob(name, "category", symbols, np.array(pairs))


def simt_conditions(limits: MultiprocessorLimits) -> tuple[Expr, ...]:
    """What the limits demand of the knobs."""
    warp_m, warp_n, block_k, warp_k = map(knob, ("warp_m", "warp_n", "block_k", "warp_k"))
    block_m, block_n, atom_m, atom_n = map(knob, ("block_m", "block_n", "atom_m", "atom_n"))
    rows, columns, depth = warp_m * WARP_INNER[0], warp_n * WARP_INNER[1], block_k * warp_k
    threads = block_m * block_n * _LANES
    m, n = block_m * rows * atom_m, block_n * columns * atom_n
    loaders = threads // depth  # threads that load one line of the sum
    staging = (m + n) * depth // threads
    registers = ceildiv(rows + columns + rows * columns + staging + _OTHER_REGISTERS, 8) * 8
    resident = limits.registers // (registers * threads)
    shared = (m + n) * depth * _STAGES * _FLOAT
    return (
        (atom_m * atom_n).equals(_LANES),
        (block_k % _STAGES).equals(0),
        (_LANES % depth).equals(0),
        (m % loaders).equals(0),
        (n % loaders).equals(0),
        compare("le", registers, limits.thread_registers),
        compare("le", registers * threads, limits.registers),
        compare("le", shared * resident, limits.shared_memory),
        compare("le", shared, limits.shared_memory),
    )
