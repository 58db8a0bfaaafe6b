"""What kernels need of a multiprocessor: registers, spills, shared memory, occupancy; refuses what cannot run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from searchlab.cuda.ptx_module import PtxKernel
from searchlab.cuda.ptxas import assemble, find_ptxas
from searchlab.errors import ConstraintError
from searchlab.targets import CudaTarget


@dataclass(frozen=True)
class KernelUse:
    """One kernel: registers and spilled bytes of a thread, bytes of shared memory of a block, share of warps in use.

    None: nobody has been asked, as there is no assembler.
    """

    shared: int
    registers: int | None = None
    spills: int | None = None
    occupancy: float | None = None


def assembled_use(kernel: PtxKernel, target: CudaTarget) -> KernelUse:
    """What a kernel needs, by ptxas where it is found; raises ConstraintError if no block of it can run."""
    if find_ptxas() is None:
        return KernelUse(kernel.shared)
    made = assemble(kernel.text, target.arch)
    return checked_use(kernel, target, made.registers, made.spills)


def checked_use(kernel: PtxKernel, target: CudaTarget, registers: int, spills: int) -> KernelUse:
    """What a kernel with so many registers needs; raises ConstraintError if no block of it can run."""
    threads = prod(kernel.block)
    occupancy = target.occupancy(threads, registers, kernel.shared)
    if occupancy == 0.0:
        raise ConstraintError(
            f"{kernel.entry}: a block of {threads} threads with {registers} registers each and {kernel.shared} bytes of"
            f" shared memory does not fit on a multiprocessor of {target.name}"
        )
    return KernelUse(kernel.shared, registers, spills, occupancy)


def use_notes(uses: Sequence[KernelUse]) -> dict[str, str]:
    """The needs of all kernels of a program, in their order, for the notes of records."""
    if not uses:
        return {}
    told = {"shared memory": [f"{u.shared} bytes" for u in uses]}
    if all(u.registers is not None for u in uses):
        told["registers"] = [str(u.registers) for u in uses]
        told["spills"] = [f"{u.spills} bytes" for u in uses]
        told["occupancy"] = [f"{u.occupancy:.0%}" for u in uses]
    return {name: ", ".join(values) for name, values in told.items()}
