"""The modelled cost of kernels for GPUs: cycles by issue slots, memory transactions and latencies that warps hide.

It is a model, not a measurement: it ranks candidates before any device has run them, and says nothing in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.analysis.gpu_kernels import GpuKernel, GpuStatement, gpu_kernels
from searchlab.analysis.graph import Node
from searchlab.analysis.nest import Nest
from searchlab.errors import TargetError
from searchlab.ir.program import Program
from searchlab.targets import CudaTarget, Target

MODELLED = "modelled cost in cycles (stored in the place of nanoseconds); no time was measured"
_SCHEDULERS = 4  # warps that a multiprocessor issues an instruction for in a cycle
_SECTORS = 4.0  # of global memory that a multiprocessor's cache delivers in a cycle
_NOT_OVERLAPPED = 0.5  # of what other units do while the busiest one works
_ENOUGH_WARPS = 8.0  # of a multiprocessor, with which its units stay busy
_LATENCY = 450.0  # cycles until what was asked of global memory is there
_CACHED = 40.0  # the same, of what neighbours have asked for before
_BARRIER = 30.0  # cycles of a step through shared memory that nothing else fills
_START = 2000.0  # cycles until a launched kernel runs
# multiprocessors of a large device, warps of float32 operations that one of them completes in a cycle, and how fast its
# tensor cores are, in terms of those of sm_80
_DEVICES = {
    "sm_75": (68, 2, 0.5),
    "sm_80": (108, 2, 1.0),
    "sm_86": (82, 4, 0.5),
    "sm_89": (128, 4, 0.5),
    "sm_90": (132, 4, 2.0),
}


@dataclass(frozen=True, eq=False)
class KernelCost:
    """What a kernel costs: cycles in all, and what they consist of, per block unless said otherwise."""

    kernel: GpuKernel
    resident: Node
    issued: Node  # instructions of warps
    computed: Node  # of these, arithmetic
    tensor: Node  # cycles of tensor cores, at the pace of sm_80
    turns: Node  # of shared memory
    sectors: Node  # of global memory
    asked: Node  # bytes that threads ask of global memory
    cycles: Node  # of the launch


def device(target: CudaTarget) -> tuple[int, int, float]:
    """Multiprocessors, warps of arithmetic that one completes in a cycle, and the pace of its tensor cores."""
    return _DEVICES.get(target.arch, _DEVICES["sm_80"])


def kernel_costs(nest: Nest, target: CudaTarget) -> tuple[KernelCost, ...]:
    """The costs of all kernels of a program."""
    return nest.made(("gpu costs", target), lambda: tuple(_cost(k, target) for k in gpu_kernels(nest)))


def modelled_cycles(program: Program, target: Target) -> float:
    """The modelled cost of a program without symbols."""
    if not isinstance(target, CudaTarget):
        raise TargetError(f"{target.name}: costs are modelled for NVIDIA GPUs only")
    if program.symbols:
        raise TargetError(
            f"{program.name} has symbols ({', '.join(v.name for v in program.symbols)}): give them values"
        )
    return sum(c.cycles.constant or 0.0 for c in kernel_costs(Nest(program), target))


def _cost(kernel: GpuKernel, target: CudaTarget) -> KernelCost:
    g = kernel.graph
    computed, tensor, issued, turns, sectors, asked, waits = (g.zero,) * 7
    for s in kernel.statements:
        if s.called is not None:
            tensor = tensor + s.warps * s.tensor
            issued = issued + s.warps * s.own
        else:
            arithmetic = s.warps * s.own * max(s.statement.flops / 2, 1) / (1 if s.statement.flops else s.lanes)
            computed = computed + arithmetic
            issued = issued + arithmetic
        for access in s.accesses():
            issued = issued + s.warps * access.times
            if access.scope == "shared":
                turns = turns + s.warps * access.times * access.cost
            else:
                sectors = sectors + s.warps * access.times * access.cost
                asked = asked + s.warps * access.times * access.bytes
        waits = waits + _waits(s)
    # what does not fit registers is kept in memory: every use of it is a load and a store
    share = (1 - g.const(target.registers_per_thread) / kernel.registers.most(1)).most(0)
    spilled = share * (computed + tensor) * 2
    issued, turns = issued + spilled, turns + spilled
    multiprocessors, rate, pace = device(target)
    fits = kernel.resident(target)
    present = fits.least((kernel.blocks + (multiprocessors - 1)) // multiprocessors)
    uses = (computed / rate, tensor / pace, issued / _SCHEDULERS, turns, sectors / _SECTORS)
    longest = g.largest(uses)
    enough = (present * kernel.warps / _ENOUGH_WARPS).least(1)
    busy = (longest + (g.total(uses) - longest) * _NOT_OVERLAPPED) / enough.most(1 / _ENOUGH_WARPS)
    # the last blocks of many wait for no others, so only the first ones are counted whole
    each = (kernel.blocks / multiprocessors).most(1)
    cycles = (busy * each).most(busy + waits) + _START
    return KernelCost(kernel, fits, issued, computed, tensor, turns, sectors, asked, cycles)


def _waits(s: GpuStatement) -> Node:
    """Cycles that a warp waits by itself: for memory, once for all that it asks for in a row, and at barriers."""
    g = s.nest.graph
    serial = g.product(1 + (lp.extent - 1) * lp.kinds["serial"] for lp in s.statement.loops)
    scopes = [access.scope for access in s.accesses()]
    if "global" in scopes:
        return serial * (_CACHED if s.statement.block.reduces or s.ahead else _LATENCY)
    return serial * (_BARRIER if scopes else 0.0)
