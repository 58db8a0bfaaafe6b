"""Both oracles for kernels of GPUs: their PTX in the emulator, and their threads as loops of a CPU in three orders."""

import numpy as np

from searchlab.backend import backend_of
from searchlab.cuda.serial import ThreadOrder, serial_kernel
from searchlab.cuda.spmd import Launches, launches
from searchlab.ir.program import Program
from searchlab.targets import CudaTarget, parse
from searchlab.workloads import Workload

TARGET = parse("cuda:arch=sm_80")
assert isinstance(TARGET, CudaTarget)
CUDA = backend_of(TARGET)


def is_right(w: Workload, program: Program) -> bool:
    """Whether both oracles compute what the workload's reference does; fails with what is wrong."""
    inputs = w.inputs(0)
    outputs = CUDA.load(CUDA.build(program, TARGET))(*inputs.values())
    wrong = w.check(outputs, inputs)
    assert wrong is None, f"{w.label}: {wrong}\n{program}"
    made = launches(program, TARGET)
    for order in ThreadOrder:
        wrong = in_order(w, made, program, order)
        assert wrong is None, f"{w.label}: threads {order}: {wrong}\n{program}"
    return True


def in_order(w: Workload, made: Launches, program: Program, order: ThreadOrder, seed: int = 0) -> str | None:
    """What is wrong with the results of kernels whose threads run one after the other, in an order."""
    inputs = w.inputs(0)
    outputs = serial_kernel(made, program, order, np.random.default_rng(seed))(*inputs.values())
    return w.check(outputs, inputs)
