"""Kernels as loops of a CPU: right in every order of threads, and wrong where a barrier is missing or threads race."""

from dataclasses import replace

import numpy as np
import pytest
from cuda_oracles import TARGET, in_order

from searchlab.cuda.serial import ThreadOrder, serial_kernel, serial_loops
from searchlab.cuda.spmd import GridKernel, Launches, launches
from searchlab.errors import BuildError
from searchlab.ir.expr import Load, Var, index
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.program import Program
from searchlab.ir.stmt import Alloc, Barrier, Buffer, Loop, Stmt, Store, kept, seq, statements
from searchlab.schedule import Schedule
from searchlab.tactics import ThreadTiles, sum_with_threads, tile_for_threads
from searchlab.workloads import Workload
from searchlab.workloads import parse as workload


def product() -> tuple[Workload, Program]:
    w = workload("matmul:m=32,n=32,k=24")
    s = Schedule(w.program)
    tile_for_threads(s, "C", ThreadTiles())
    return w, s.program


def shared_sum() -> tuple[Workload, Program]:
    w = workload("reduce:shape=5x167,axis=-1")
    s = Schedule(w.program)
    sum_with_threads(s, "Y", 64)
    return w, s.program


def without_barrier(made: Launches, number: int) -> Launches:
    (kernel,) = made.kernels
    found = [s for s in statements(kernel.body) if isinstance(s, Barrier)]
    marks = iter(range(len(found)))

    def visit(s: Stmt) -> Stmt | None:
        if isinstance(s, Barrier):
            return None if next(marks) == number else s
        return s.map_children(visit)

    return replace(made, kernels=(replace(kernel, body=kept(visit(kernel.body))),))


@pytest.mark.parametrize("make", [product, shared_sum])
def test_every_barrier_is_needed(make) -> None:  # type: ignore[no-untyped-def]
    w, program = make()
    made = launches(program, TARGET)
    count = sum(isinstance(s, Barrier) for s in statements(made.kernels[0].body))
    assert count >= 1
    assert all(in_order(w, made, program, order) is None for order in ThreadOrder)
    for number in range(count):
        broken = without_barrier(made, number)
        assert any(in_order(w, broken, program, order) for order in ThreadOrder), f"barrier {number} is not missed"


def by_hand(body: Stmt) -> tuple[Launches, Program]:
    """A kernel of one block of 8 threads, t, from X to Y."""
    program = workload("elementwise:rows=1,cols=8,ops=relu").program
    arrays = tuple(program.buffers[n] for n in (*program.inputs, *program.outputs))
    kernel = GridKernel("by hand", ((LoopKind.THREAD_X, 8),), Loop(T, index(8), body, LoopKind.THREAD_X))
    return Launches("by hand", (kernel,), arrays, ()), program


T = Var("threadIdx.x")
ZERO = index(0)


def test_a_race_shows_as_a_difference() -> None:
    shared = Buffer("s", (index(1),), "float32", "shared")
    write, read = (
        Store("s", (ZERO,), Load("X", (ZERO, T), "float32")),
        Store("Y", (ZERO, T), Load("s", (ZERO,), "float32")),
    )
    made, program = by_hand(Alloc(shared, seq(write, Barrier(), read)))
    given = np.arange(8, dtype=np.float32).reshape(1, 8)
    forward, reverse = (serial_kernel(made, program, order)(given) for order in list(ThreadOrder)[:2])
    assert (forward == 7).all() and (reverse == 0).all()


def test_threads_go_on_through_the_ends_of_loops() -> None:
    _, program = product()  # three steps of two barriers: the last segment of a step and the first of the next are one
    text = str(serial_loops(launches(program, TARGET), program, ThreadOrder.FORWARD))
    assert "barrier" not in text and text.count("for threadIdx.turn in 64:") == 5


def test_shuffled_orders_come_from_a_generator() -> None:
    _, program = product()
    made = launches(program, TARGET)
    one, same, other = (
        str(serial_loops(made, program, ThreadOrder.SHUFFLED, np.random.default_rng(seed))) for seed in (1, 1, 2)
    )
    assert one == same != other
    with pytest.raises(BuildError, match="shuffled threads need a random generator"):
        serial_loops(made, program, ThreadOrder.SHUFFLED)
