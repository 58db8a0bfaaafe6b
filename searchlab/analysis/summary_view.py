"""The view `summary`: a few dozen features of a whole program, cheap enough for very large populations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from searchlab.analysis.access import AccessColumns, access_columns, innermost
from searchlab.analysis.columns import Schema
from searchlab.analysis.computing import VectorCore, cycles, tile
from searchlab.analysis.gpu_cost import KernelCost, device, kernel_costs
from searchlab.analysis.gpu_kernels import SECTOR
from searchlab.analysis.graph import Node
from searchlab.analysis.intrinsic_calls import CALLS, calls, running
from searchlab.analysis.nest import Nest, Statement
from searchlab.analysis.position import annotated, carries
from searchlab.analysis.statement_view import chosen
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import index
from searchlab.ir.walk import expected, variables
from searchlab.targets import CudaTarget, Target, cpu_of

# Bytes of the caches of a core of an ordinary machine.
_CACHES = (32 << 10, 512 << 10, 2 << 20)
_SUMS = (
    "flops", "iterations", "surplus_iterations", "bytes", "unique_bytes", "lines", "unique_lines",
    *(f"traffic_l{n}" for n in (1, 2, 3)), "cycles",
)  # fmt: skip
_MAIN = (
    "flops", "iterations", "loops", "parallel", "parallel_rounds", "vector_length", "vector_product", "vector_loose",
    "unrolled", "unrolled_body", "unroll_up_to", "tile_accumulators", "tile_registers", "tile_operands",
    "tile_flops_per_load", "vector_stride0", "vector_stride1", "vector_strided", "sum_in_tile", "innermost_length",
    *(f"{what}_l{n}" for what in ("iterations_in", "bytes_in", "traffic", "flops_per_byte") for n in (1, 2, 3)),
    *(f"buffer{n}_{what}" for n in range(4) for what in ("stride", "reuse_bytes", "reuse_times", "unique_lines")),
)  # fmt: skip
# Kernels of GPUs: sums over all, and the costliest kernel in detail; zero on CPUs.
_GPU = (
    "kernels", "issued", "sectors", "shared_turns", "blocks", "threads", "warps", "shared_bytes", "registers",
    "resident", "occupancy", "rounds", "coalescing", "conflicts", "computed_share", "flops_per_global_byte",
    "flops_per_shared_turn", "idle_lanes",
)  # fmt: skip
_CALLS = ("all_calls", "called_share", *(f"main_{c}" for c in CALLS), "main_calls_together")

SCHEMA = Schema(
    "summary",
    2,
    (
        *(f"all_{c}" for c in _SUMS), "statements", "parallel_least", "vector_least", "allocated",
        *(f"main_{c}" for c in _MAIN), *_CALLS, *(f"gpu_{c}" for c in _GPU),
    ),
    (len(_CALLS), len(_GPU)),
)  # fmt: skip


def columns(nest: Nest, target: Target | None) -> list[Node]:
    """Sums over all statements, and the main statement, the one with most to compute, in detail."""
    g = nest.graph
    if isinstance(target, CudaTarget):
        return _on_gpu(nest, target)
    each = [list(_sums(nest, s, target)) for s in nest.statements]
    found = [g.total(column) for column in zip(*each, strict=True)]
    found.append(g.const(len(nest.statements)))
    for kind in ("parallel", "vectorized"):
        products = [annotated(nest, s, kind).product for s in nest.statements]
        least = products[0]
        for p in products[1:]:
            least = least.least(p)
        found.append(least)
    found.append(g.total(nest.allocation(b)[1] for b in sorted(nest.intermediate) if nest.touching(b)))
    return [*found, *_main(nest, main(nest), target), *_called(nest), *(g.zero for _ in _GPU)]


def _on_gpu(nest: Nest, target: CudaTarget) -> list[Node]:
    """What is known of kernels; columns about vectors, threads and caches of CPUs are zero.

    `all_cycles` is the modelled cost, so what starts from the estimate of a CPU starts from that of a GPU.
    """
    g, costs = nest.graph, kernel_costs(nest, target)
    known = {
        "all_flops": g.total(nest.iterations(s) * s.flops for s in nest.statements),
        "all_iterations": g.total(nest.iterations(s) for s in nest.statements),
        "all_cycles": g.total(c.cycles for c in costs),
        "statements": g.const(len(nest.statements)),
        **dict(zip(_CALLS, _called(nest), strict=True)),
        **{f"gpu_{name}": node for name, node in zip(_GPU, _gpu(nest, costs, target), strict=True)},
    }
    return [known.get(name, g.zero) for name in SCHEMA.columns]


def _gpu(nest: Nest, costs: tuple[KernelCost, ...], target: CudaTarget) -> Iterator[Node]:
    g = nest.graph
    yield g.const(len(costs))
    yield from (g.total(getattr(c, what) * c.kernel.blocks for c in costs) for what in ("issued", "sectors", "turns"))
    work = main(nest)
    c = next(c for c in costs if any(s.statement is work for s in c.kernel.statements))
    k = c.kernel
    yield from (k.blocks, k.threads, k.warps, k.shared, k.registers, c.resident)
    yield c.resident * k.warps * target.warp / target.threads_per_sm
    multiprocessors, *_ = device(target)
    yield k.blocks / (c.resident * multiprocessors)
    yield c.asked / (c.sectors * SECTOR).most(1)
    shared = [x for s in k.statements for x in s.accesses() if x.scope == "shared"]
    yield g.largest(x.cost for x in shared)
    yield c.computed / c.issued.most(1)
    flops = nest.iterations(work) * max(work.flops, 1) / k.blocks
    yield from (flops / (c.sectors * SECTOR).most(1), flops / c.turns.most(1))
    yield k.warps * target.warp - k.threads


def main(nest: Nest) -> Statement:
    """The statement that computes most over the domain of its block, the last of equals; the same for all candidates.

    Symbols that stay in the size of a domain count as 1.
    """

    def work(s: Statement) -> float:
        domain = index(1)
        for it in s.block.iters:
            domain = domain * it.extent
        size = expected(nest.program.facts.reduce(domain))
        return float((s.flops + 1) * evaluate(size, {v.name: 1 for v in variables(size)}))

    return max(reversed(nest.statements), key=work)


def _sums(nest: Nest, s: Statement, target: Target | None) -> Iterator[Node]:
    g = nest.graph
    done = nest.iterations(s)
    accesses = [access_columns(nest, s, a) for a in s.accesses]
    yield from (done * s.flops, done, (done - nest.domain(s)).most(0))
    yield from (g.total(a.bytes for a in accesses), g.total(a.unique_bytes for a in accesses))
    yield from (g.total(a.lines for a in accesses), g.total(a.unique_lines for a in accesses))
    yield from (held(nest, s, target).moved, cycles(nest, s, target))


@dataclass(frozen=True, eq=False)
class Held:
    """The largest inner part of a nest whose boxes fit a cache: its iterations, its bytes, and the bytes moved in all.

    Wide: one column for each cache.
    """

    iterations: Node
    bytes: Node
    moved: Node


def _caches(target: Target | None) -> tuple[int, ...]:
    if target is None:
        return _CACHES
    cpu = cpu_of(target)
    return cpu.l1, cpu.l2, cpu.l3


def held(nest: Nest, s: Statement, target: Target | None) -> Held:
    """What fits each cache of the target."""
    return nest.made(("held", id(s)), lambda: _make_held(nest, s, nest.graph.wide(_caches(target))))


def _make_held(nest: Nest, s: Statement, caches: Node) -> Held:
    g = nest.graph
    depth = len(s.loops)
    size = caches * 0 + nest.footprint(s, depth)
    iterations, moved = caches * 0 + 1, size * nest.iterations(s)
    for depth in range(len(s.loops) - 1, -1, -1):
        # the box of an outer loop is never smaller, so what fits is an inner part of the nest
        here = nest.footprint(s, depth)
        fits = here.at_most(caches)
        iterations = iterations * (fits * (s.loops[depth].extent - 1) + 1)
        size = size.most(fits * here)
        moved = g.choose(fits, here * nest.iterations(s, 0, depth), moved)
    # code generation cuts surplus iterations off, and calls are made for whole tiles
    moved = moved * running(nest, s) / nest.iterations(s) if s.called is not None else moved
    return Held(iterations, size, moved)


def _main(nest: Nest, s: Statement, target: Target | None) -> Iterator[Node]:
    g = nest.graph
    done = nest.iterations(s)
    parallel, vector, unrolled = (annotated(nest, s, kind) for kind in ("parallel", "vectorized", "unrolled"))
    machine = VectorCore.of(target)
    lanes, registers, threads = machine.lanes(s), machine.registers, machine.threads
    yield from (done * s.flops, done, g.total(lp.alive for lp in s.loops))
    yield from (parallel.product, (parallel.product + (threads - 1)) // threads)
    yield from (vector.length, vector.product, vector.length % lanes)
    limit = nest.number(dict(s.block.annotations).get("unroll_up_to", 0))
    yield from (unrolled.product, unrolled.product * vector.product, limit)
    own = tile(nest, s)
    yield from (own.accumulators, own.accumulators / (lanes * registers), own.operands)
    yield own.steps * max(s.flops, 1) / own.operands if own.operands is not g.zero else g.zero
    accesses = [access_columns(nest, s, a) for a in chosen(s)]
    yield from _vector_strides(nest, s, accesses)
    reduced = (lp.kinds["unrolled"] * carries(nest, s, lp, "reduce") * (lp.extent - 1) + 1 for lp in s.loops)
    yield g.product(reduced)
    yield g.total(mask * lp.extent for mask, lp in zip(innermost(nest, s), s.loops, strict=True)).most(1)
    fits = held(nest, s, target)
    yield from (fits.iterations, fits.bytes, fits.moved, done * s.flops / fits.moved)
    for n in range(4):
        yield from _buffer(accesses[n]) if n < len(accesses) else (g.zero,) * 4


def _buffer(a: AccessColumns) -> tuple[Node, ...]:
    return a.innermost_stride, a.reuse.bytes, a.reuse.times, a.unique_lines


def _called(nest: Nest) -> Iterator[Node]:
    """Calls of intrinsics: in all, the share of the arithmetic that they do, and those of the main statement.

    `together` are the calls of a tile that add to accumulators of their own.
    """
    g, s = nest.graph, main(nest)
    made = [calls(nest, x).calls for x in nest.statements]
    work = [nest.iterations(x) * x.flops for x in nest.statements]
    inside = [w for x, w in zip(nest.statements, work, strict=True) if x.called is not None]
    yield from (g.total(made), g.total(inside) / g.total(work).most(1) if inside else g.zero)
    own = calls(nest, s)
    yield from own
    yield tile(nest, s).accumulators / own.accumulators if s.called is not None else g.zero


def _vector_strides(nest: Nest, s: Statement, accesses: list[AccessColumns]) -> tuple[Node, Node, Node]:
    """How many buffers stay, step by one, or jump when the innermost vectorised loop steps."""
    g = nest.graph
    still, one, more = g.zero, g.zero, g.zero
    none_inside = g.one
    for lp in reversed(s.loops):
        chosen_here = lp.kinds["vectorized"] * lp.alive * none_inside
        if chosen_here is g.zero:
            continue
        none_inside = none_inside * (1 - lp.kinds["vectorized"] * lp.alive)
        strides = [a.stride(lp) for a in accesses]
        zeros, ones = g.total(x.equals(0) for x in strides), g.total(x.equals(1) for x in strides)
        still, one = still + chosen_here * zeros, one + chosen_here * ones
        more = more + chosen_here * (len(strides) - zeros - ones)
    return still, one, more
