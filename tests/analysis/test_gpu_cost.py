"""Features of kernels for GPUs: what blocks use, how warps access memory, and a modelled cost."""

import numpy as np
import pytest

from searchlab.analysis import extractor, schema
from searchlab.analysis.gpu_cost import kernel_costs, modelled_cycles
from searchlab.analysis.gpu_kernels import gpu_kernels
from searchlab.analysis.nest import Nest
from searchlab.backend import backend_of
from searchlab.defaults import default_schedule
from searchlab.errors import TargetError
from searchlab.ir.expr import knob
from searchlab.ir.program import Program
from searchlab.schedule import Schedule
from searchlab.tactics import ThreadTiles, WarpTiles, bind_elements, tile_for_threads, tile_for_warps
from searchlab.targets import CudaTarget, parse
from searchlab.workloads import parse as workload

TARGET = parse("cuda:arch=sm_80")
assert isinstance(TARGET, CudaTarget)


TILES = ThreadTiles()


def product(tiles: ThreadTiles = TILES, spec: str = "matmul:m=64,n=64,k=64") -> Program:
    s = Schedule(workload(spec).program)
    tile_for_threads(s, "C", tiles)
    return s.program


def columns(program: Program) -> dict[str, float]:
    values = np.exp2(extractor(program, "summary", TARGET)({})[0]) - 1
    return dict(zip(schema("summary").columns, values, strict=True))


def test_blocks_threads_and_shared_memory_are_those_of_the_kernel() -> None:
    program = product(ThreadTiles((8, 16), (4, 2), 8))
    found, (kernel,) = columns(program), backend_of(TARGET).build(program, TARGET).kernels  # type: ignore[attr-defined]
    assert round(found["gpu_threads"]) == 128 == int(np.prod(kernel.block))
    assert round(found["gpu_blocks"]) == 4 == int(np.prod(kernel.grid))
    assert round(found["gpu_shared_bytes"]) == 2 * 32 * 8 * 4


@pytest.mark.parametrize(("threads", "registers", "shared"), [(32, 40, 0), (256, 96, 12288), (1024, 64, 49152)])
def test_resident_blocks_are_those_of_the_target(threads: int, registers: int, shared: int) -> None:
    (kernel,) = gpu_kernels(Nest(product()))
    g = kernel.graph
    given = {"threads": threads, "warps": -(-threads // 32), "registers": registers, "shared": shared}
    kernel.__dict__.update({name: g.const(value) for name, value in given.items()})
    assert kernel.resident(TARGET).constant == max(1, TARGET.resident_blocks(threads, registers, shared))


def elementwise(axis: int) -> Program:
    """A copy whose neighbouring threads go along one axis of a matrix."""
    s = Schedule(workload("elementwise:rows=64,cols=64").program)
    for name in list(s.program.blocks)[:-1]:
        s.compute_inline(name)
    (last,) = s.program.blocks
    loops = s.loops(last)
    s.reorder(loops[1 - axis], loops[axis])
    s.bind(loops[1 - axis], "blockIdx.x")
    s.bind(loops[axis], "threadIdx.x")
    return s.program


def test_columns_of_a_matrix_are_not_coalesced() -> None:
    along, across = columns(elementwise(1)), columns(elementwise(0))
    assert across["gpu_sectors"] == pytest.approx(8 * along["gpu_sectors"])
    assert along["gpu_coalescing"] == pytest.approx(1.0) and across["gpu_coalescing"] == pytest.approx(1 / 8)
    assert modelled_cycles(elementwise(0), TARGET) > modelled_cycles(elementwise(1), TARGET)


def test_threads_that_read_words_of_one_bank_take_turns() -> None:
    """Threads along columns read words that are `each` apart: 16 threads, 32 banks."""
    for each, turns in ((1, 1), (4, 2), (8, 4)):
        program = product(ThreadTiles((2, 16), (1, each), 8, 1), "matmul:m=16,n=256,k=64")
        (cost,) = kernel_costs(Nest(program), TARGET)
        main = next(s for s in cost.kernel.statements if s.statement.block.reduces)
        second = [a.cost.constant for a in main.accesses() if a.scope == "shared"][-1]
        assert second == turns, each


def test_a_tile_for_every_thread_costs_less_than_an_element() -> None:
    s = Schedule(workload("matmul:m=512,n=512,k=512").program)
    bind_elements(s, "C")
    assert modelled_cycles(product(spec="matmul:m=512,n=512,k=512"), TARGET) < modelled_cycles(s.program, TARGET)


def test_symbols_give_what_numbers_give() -> None:
    from searchlab.tactics.block_tiling import AxisSplit, Digit, stage_for_block, tile_for_blocks

    s = Schedule(workload("matmul:m=64,n=64,k=64").program)
    staged = stage_for_block(s, "C")
    i, j, k = s.loops(staged.block)
    digits = (Digit("block", "y"), Digit("thread", "y"), Digit("own", rank=1))
    splits = [
        AxisSplit(i, [None, knob("a"), knob("b")], digits),
        AxisSplit(j, [None, 8, 2], (Digit("block", "x"), Digit("thread", "x"), Digit("own", rank=2))),
        AxisSplit(k, [None, 8], (Digit("step"), Digit("own"))),
    ]
    tile = tile_for_blocks(s, staged, splits)
    values = {"a": np.array([4, 8, 16]), "b": np.array([4, 2, 1])}
    whole = extractor(s.program, "summary", TARGET)(values)
    for n in range(3):
        own = s.program.substitute({name: int(v[n]) for name, v in values.items()})
        np.testing.assert_allclose(extractor(own, "summary", TARGET)({})[0], whole[n], 1e-5)
    assert [str(e) for e in tile.along] == ["1", "a", "8"]


def test_other_columns_of_cpus_are_unchanged_and_those_of_gpus_zero() -> None:
    program = default_schedule(workload("matmul:m=64,n=64,k=64").program, parse("x86-64-v3"))
    row = extractor(program, "summary", parse("x86-64-v3"))({})[0]
    gpu = [n for n, name in enumerate(schema("summary").columns) if name.startswith("gpu_")]
    assert not row[gpu].any() and row.any()
    assert gpu == list(range(len(row) - len(gpu), len(row)))


def test_costs_are_for_gpus_and_whole_programs() -> None:
    with pytest.raises(TargetError, match="modelled for NVIDIA GPUs only"):
        modelled_cycles(product(), parse("x86-64-v3"))


def test_tensor_cores_count_calls_and_words_of_fragments() -> None:
    """Of 64 x 64 x 64: four blocks of four warps, each with 1 x 2 calls along 64 / 16 steps."""
    w = workload("matmul:m=64,n=64,k=64,dtype=float16")
    s = Schedule(w.program)
    tile_for_warps(s, "S", "mma_f16_16x8x16", WarpTiles((2, 2), (1, 2), 2))
    (cost,) = kernel_costs(Nest(s.program), TARGET)
    calls = next(x for x in cost.kernel.statements if x.called is not None)
    assert (cost.kernel.blocks.constant, calls.warps.constant, calls.own.constant) == (4, 4, 8)
    assert cost.tensor.constant == 4 * 8 * 2
    a, b = sorted((x.times.constant or 0.0) for x in calls.accesses())
    assert (a, b) == (8 * 2, 8 * 4 / 2)  # words of B for every call, of A for every two
    assert all(x.cost.constant == 1 for x in calls.accesses())  # rows are apart
    (kernel,) = backend_of(TARGET).build(s.program, TARGET).kernels  # type: ignore[attr-defined]
    assert cost.kernel.shared.constant == kernel.shared == 2 * 32 * (64 + 16)
    plain = Schedule(w.program)
    tile_for_threads(plain, "S", TILES)
    assert modelled_cycles(s.program, TARGET) < modelled_cycles(plain.program, TARGET)
    assert columns(s.program)["all_calls"] == pytest.approx(64 * 64 * 64 / 2048)
