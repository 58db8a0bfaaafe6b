"""Both oracles for kernels of GPUs: their PTX in the emulator, and their threads as loops of a CPU in three orders."""

import numpy as np

from searchlab.backend import backend_of
from searchlab.cuda.ptxas import assemble, find_ptxas
from searchlab.cuda.serial import ThreadOrder, serial_kernel
from searchlab.cuda.spmd import Launches, launches
from searchlab.ir.program import Program
from searchlab.targets import CudaTarget, parse
from searchlab.workloads import Workload

_FOUND = parse("cuda:arch=sm_80")
assert isinstance(_FOUND, CudaTarget)
TARGET: CudaTarget = _FOUND
CUDA = backend_of(TARGET)


def is_right(w: Workload, program: Program, target: CudaTarget = TARGET) -> bool:
    """Whether both oracles compute what the workload's reference does; fails with what is wrong.

    Where there is an assembler, it must accept the code.
    """
    inputs = w.inputs(0)
    artifact = CUDA.build(program, target)
    outputs = CUDA.load(artifact)(*inputs.values())
    wrong = w.check(outputs, inputs)
    assert wrong is None, f"{w.label}: {wrong}\n{program}"
    if find_ptxas() is not None:
        for kernel in artifact.kernels:  # type: ignore[attr-defined]
            assert assemble(kernel.text, target.arch).cubin
    made = launches(program, target)
    for order in ThreadOrder:
        wrong = in_order(w, made, program, order)
        assert wrong is None, f"{w.label}: threads {order}: {wrong}\n{program}"
    return True


def in_order(w: Workload, made: Launches, program: Program, order: ThreadOrder, seed: int = 0) -> str | None:
    """What is wrong with the results of kernels whose threads run one after the other, in an order."""
    inputs = w.inputs(0)
    outputs = serial_kernel(made, program, order, np.random.default_rng(seed))(*inputs.values())
    return w.check(outputs, inputs)
