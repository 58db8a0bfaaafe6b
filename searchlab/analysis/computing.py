"""An estimate of the cycles that statements take to compute, from vectors, registers and calls of intrinsics."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.analysis.graph import Node
from searchlab.analysis.intrinsic_calls import calls
from searchlab.analysis.nest import CalledLoops, Nest, Statement
from searchlab.analysis.position import annotated
from searchlab.analysis.ranges import Ranges
from searchlab.intrinsics import Pace
from searchlab.targets import Target, cpu_of

# An ordinary machine: vector registers and their bytes.
_REGISTERS, _VECTOR = 16, 32
# What a core of today does in a cycle: two vector operations, two loads; the next term of a sum waits for four cycles.
_PORTS, _LOADS, _LATENCY = 2, 2, 4


@dataclass(frozen=True)
class VectorCore:
    """The bytes of a vector, vector registers, and threads."""

    vector: int
    registers: int
    threads: int

    @staticmethod
    def of(target: Target | None) -> VectorCore:
        """That of a target; an ordinary one if it is not known."""
        if target is None:
            return VectorCore(_VECTOR, _REGISTERS, 1)
        return VectorCore(cpu_of(target).vector_bits // 8, target.vector_registers, target.threads)

    def lanes(self, s: Statement) -> int:
        """Results of a statement that a vector holds."""
        return self.vector // s.accesses[0].bytes


@dataclass(frozen=True, eq=False)
class WrittenTile:
    """What unrolled and vectorised loops hold: how often they run in all, elements of the result, of each operand
    (`boxes`) and of all operands.
    """

    steps: Node
    accumulators: Node
    boxes: tuple[Node, ...]
    operands: Node


def tile(nest: Nest, s: Statement) -> WrittenTile:
    """The tile of a statement."""
    return nest.made(("tile", id(s)), lambda: _tile(nest, s))


def _tile(nest: Nest, s: Statement) -> WrittenTile:
    g = nest.graph
    written = [lp.kinds["unrolled"] + lp.kinds["vectorized"] for lp in s.loops]
    extents = {lp.var: mask * (lp.extent - 1) + 1 for lp, mask in zip(s.loops, written, strict=True)}
    inside = Ranges(g, extents)
    first, *boxes = (nest.touched(a, s.running(0), inside) / a.bytes for a in s.accesses)
    return WrittenTile(g.product(extents.values()), first, tuple(boxes), g.total(boxes))


def cycles(nest: Nest, s: Statement, target: Target | None) -> Node:
    """An estimate of the cycles that a statement takes if all its data were in the nearest cache, shared by threads."""
    machine = VectorCore.of(target)
    alone = _of_loops(nest, s, machine) if s.called is None else _of_calls(nest, s, s.called, machine)
    return alone / annotated(nest, s, "parallel").product.most(1).least(machine.threads)


def _of_loops(nest: Nest, s: Statement, machine: VectorCore) -> Node:
    """Short vectors waste lanes, a sum waits for itself unless several are side by side, operands are loaded, and
    results beyond the registers are kept in memory.
    """
    lanes, own, flops = machine.lanes(s), tile(nest, s), max(s.flops, 1)
    length = annotated(nest, s, "vectorized").length.most(1)
    used = length / ((length + (lanes - 1)) // lanes)  # lanes of a vector, on average
    vectors = nest.iterations(s) / used
    sums = (own.accumulators / used).most(1)
    waits = any(it.kind == "reduce" for it in s.block.iters)
    side_by_side = sums.least(_PORTS * _LATENCY) if waits else nest.graph.const(_PORTS * _LATENCY)
    computed = vectors * (max(flops / 2, 1) * _LATENCY) / side_by_side
    loaded = vectors * own.operands * (1 / _LOADS) / own.steps
    spilled = (1 - sums.at_most(machine.registers)) * vectors
    return computed.most(loaded) + spilled


def _of_calls(nest: Nest, s: Statement, called: CalledLoops, machine: VectorCore) -> Node:
    """A call takes what its pace says, and waits for the last one that added to the same results; a tile of calls loads
    each operand once, in vectors or in what one call takes of it; results beyond the registers are kept in memory.
    """
    g, own, made = nest.graph, tile(nest, s), calls(nest, s)
    pace = called.intrinsic.pace or _guessed(s, called, machine)
    together = own.accumulators / made.accumulators  # calls of a tile that add to results of their own
    computed = made.calls * (g.const(pace.latency) / together).most(pace.cycles)
    loads = [
        box / (nest.touched(a, s.running(called.depth)) / a.bytes).least(machine.vector // a.bytes)
        for a, box in zip(s.accesses[1:], own.boxes, strict=True)
    ]
    tiles = made.calls * made.terms / own.steps
    loaded = tiles * g.total(loads) * (1 / _LOADS)
    kept = own.accumulators / machine.lanes(s)
    fits = together.at_most(pace.held) if pace.held else kept.at_most(machine.registers)
    spilled = (1 - fits) * made.calls * (made.accumulators / machine.lanes(s)).most(1)
    return computed.most(loaded) + spilled


def _guessed(s: Statement, called: CalledLoops, machine: VectorCore) -> Pace:
    """The pace of an intrinsic that states none: an instruction for every vector of products, at least one."""
    products = called.intrinsic.terms * min(a.bytes for a in s.accesses)
    return Pace(max(products / machine.vector, 1.0) / _PORTS, _LATENCY)
