"""Tensor cores: calls by warps compute what their descriptions say, under both oracles, with results in registers."""

from dataclasses import replace

import numpy as np
import pytest
from cuda_oracles import CUDA, TARGET

from searchlab.cuda.ptx_memory import PtxFault
from searchlab.cuda.ptxas import assemble, find_ptxas
from searchlab.cuda.serial import ThreadOrder, serial_kernel
from searchlab.cuda.spmd import launches
from searchlab.errors import BuildError
from searchlab.intrinsics import find_intrinsic
from searchlab.ir.bfloat16 import numbers, stored
from searchlab.ir.compute import Builder, total
from searchlab.ir.expr import cast
from searchlab.ir.program import Program
from searchlab.schedule import Schedule
from searchlab.tactics import WarpTiles, tile_for_warps
from searchlab.targets import parse

KINDS = [("f16", "float16", 16), ("bf16", "bfloat16", 16), ("tf32", "float32", 8), ("s8", "int8", 32)]


def product(dtype: str, m: int, n: int, k: int, *, rows: bool = True) -> Program:
    """A product with rows of B along the sum, or with columns."""
    out = "int32" if dtype == "int8" else "float32"
    b = Builder("product")
    left, right = b.input("A", (m, k), dtype), b.input("B", (n, k) if rows else (k, n), dtype)
    s = b.axis("k", k)
    value = lambda i, j: total(cast(left[i, s], out) * cast(right[(j, s) if rows else (s, j)], out), s)  # noqa: E731
    return b.program(b.compute("C", (m, n), value))


def scheduled(kind: tuple[str, str, int], program: Program, tiles: WarpTiles) -> Program:
    s = Schedule(program)
    tile_for_warps(s, "C", f"mma_{kind[0]}_16x8x{kind[2]}", tiles)
    return s.program


def is_right(kind: tuple[str, str, int], program: Program, *, rows: bool = True) -> None:
    name, dtype, depth = kind
    rng = np.random.default_rng(7)
    shapes = [tuple(int(str(e)) for e in program.buffers[n].shape) for n in program.inputs]
    if dtype == "int8":
        arrays = [rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes]
        a, b = (x.astype(np.int64) for x in arrays)
    else:
        arrays = [stored(rng.normal(size=shape), dtype) for shape in shapes]
        a, b = (numbers(x, dtype).astype(np.float64) for x in arrays)
    b = b if rows else b.T
    most = find_intrinsic(f"mma_{name}_16x8x{depth}").promise.tolerance * (np.abs(a) @ np.abs(b).T)
    artifact = CUDA.build(program, TARGET)
    assert (np.abs(CUDA.load(artifact)(*arrays) - a @ b.T) <= most).all()
    made = launches(program, TARGET)
    for order in ThreadOrder:
        found = serial_kernel(made, program, order, np.random.default_rng(0))(*arrays)
        assert (np.abs(found - a @ b.T) <= most).all(), order
    (kernel,) = artifact.kernels  # type: ignore[attr-defined]
    assert "local" not in kernel.text  # fragments are in registers
    if find_ptxas() is not None:
        for arch in ("sm_80", "sm_90"):
            text = CUDA.build(program, parse(f"cuda:arch={arch}")).kernels[0].text  # type: ignore[attr-defined]
            assert assemble(text, arch).spills == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
def test_products_of_every_type(kind: tuple[str, str, int]) -> None:
    program = scheduled(kind, product(kind[1], 64, 32, 6 * kind[2]), WarpTiles((2, 1), (2, 2), 2))
    is_right(kind, program)
    text = CUDA.listing(program, TARGET, "PTX")
    assert text.count("mma.sync.aligned") == 8
    assert text.count("ld.shared.b32") == 2 * (2 * 4 + 2 * 2)  # each word of a fragment is one access


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind[0])
def test_double_buffers(kind: tuple[str, str, int]) -> None:
    program = scheduled(kind, product(kind[1], 32, 16, 5 * kind[2]), WarpTiles((1, 1), (1, 2), 1, double_buffer=True))
    is_right(kind, program)
    assert "cp.async.cg" in CUDA.listing(program, TARGET, "PTX")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
def test_columns_of_b_are_gathered(kind: tuple[str, str, int]) -> None:
    program = scheduled(kind, product(kind[1], 16, 16, 2 * kind[2], rows=False), WarpTiles((1, 1)))
    is_right(kind, program, rows=False)


def test_what_warps_cannot_do() -> None:
    kind = KINDS[0]
    program = scheduled(kind, product("float16", 32, 16, 32), WarpTiles((2, 1)))
    with pytest.raises(
        BuildError, match="intrinsic 'mma_f16_16x8x16' needs the instructions of sm_80, which sm_75 lacks"
    ):
        CUDA.build(program, parse("cuda:arch=sm_75"))
    s = Schedule(product("float16", 32, 16, 32))
    i, j, k = s.loops("C")
    (io, ii), (jo, jj), (ko, kk) = s.split(i, [None, 16]), s.split(j, [None, 8]), s.split(k, [None, 16])
    s.reorder(io, jo, ko, ii, jj, kk)
    s.bind(io, "threadIdx.x")
    s.tensorize(ii, "mma_f16_16x8x16")
    with pytest.raises(BuildError, match="need 32 threads along threadIdx.x, not"):
        CUDA.build(s.program, TARGET)


def test_threads_that_store_what_others_hold() -> None:
    s = Schedule(product("float16", 32, 8, 16))
    store = s.cache_write("C", "C", "local")
    block = next(n for n, b in s.program.blocks.items() if b.reduces)
    i, j, k = s.loops(block)
    outer, inner = s.split(i, [None, 16])
    s.tensorize(inner, "mma_f16_16x8x16")
    s.bind(outer, "blockIdx.x")
    s.reverse_compute_at(store, outer)
    rows, columns = s.loops(store)[-2:]
    _, lane = s.split(s.fuse(rows, columns), [None, 32])
    s.bind(lane, "threadIdx.x")
    with pytest.raises(BuildError, match="'C_local' is held by a warp in fragments, but a thread accesses what lane"):
        CUDA.build(s.program, TARGET)


def test_a_warp_without_all_lanes() -> None:
    kind = KINDS[0]
    program = scheduled(kind, product("float16", 16, 16, 16), WarpTiles((1, 1)))
    artifact = CUDA.build(program, TARGET)
    (kernel,) = artifact.kernels  # type: ignore[attr-defined]
    smaller = replace(artifact, kernels=(replace(kernel, block=(16, 1, 1)),))  # type: ignore[call-arg]
    with pytest.raises(PtxFault, match="divergent product|uninitialised"):
        CUDA.load(smaller)(*(np.zeros((16, 16), np.float16) for _ in range(2)))
