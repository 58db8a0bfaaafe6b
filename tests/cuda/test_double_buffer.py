"""Double buffers: right on every architecture with one barrier less, and found out if that one or a wait is missing."""

import re
from dataclasses import replace

import pytest
from cuda_oracles import CUDA, is_right

from searchlab.cuda.barriers import with_barriers
from searchlab.cuda.ptx_memory import PtxFault
from searchlab.cuda.ptx_module import PtxKernel
from searchlab.cuda.ptxas import assemble, find_ptxas
from searchlab.cuda.spmd import launches
from searchlab.errors import BuildError
from searchlab.ir.expr import Load, Var, index
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Alloc, Barrier, Buffer, Loop, Store, seq
from searchlab.ir.thread_stmt import AsyncCopy
from searchlab.schedule import Schedule
from searchlab.tactics import ThreadTiles, tile_for_threads
from searchlab.targets import CudaTarget, parse
from searchlab.workloads import Workload
from searchlab.workloads import parse as workload

BIG = ThreadTiles((16, 16), (8, 8), 8)


def target(arch: str) -> CudaTarget:
    found = parse(f"cuda:arch={arch}")
    assert isinstance(found, CudaTarget)
    return found


def product(spec: str, tiles: ThreadTiles | None = None) -> tuple[Workload, Program]:
    w = workload(spec)
    s = Schedule(w.program)
    tile_for_threads(s, "C", tiles or ThreadTiles())
    (block,) = (n for n, b in s.program.blocks.items() if b.reduces)
    s.annotate(next(lp for lp in s.loops(block) if lp.startswith("k")), "double_buffer", True)
    return w, s.program


@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
@pytest.mark.parametrize("spec", ["matmul:m=64,n=32,k=24", "matmul:m=37,n=61,k=23", "matmul:m=5,n=9,k=8"])
def test_both_ways(spec: str, arch: str) -> None:
    w, program = product(spec)
    assert is_right(w, program, target(arch))


def test_one_barrier_in_a_step() -> None:
    _, program = product("matmul:m=64,n=64,k=64")
    for arch in ("sm_75", "sm_80"):
        (kernel,) = launches(program, target(arch)).kernels
        (step,) = (s for s in statements(kernel.body) if isinstance(s, Loop) and s.name.startswith("k_0"))
        assert sum(isinstance(s, Barrier) for s in statements(step)) == 1
        assert any(isinstance(s, AsyncCopy) for s in statements(step)) == (arch == "sm_80")


def test_what_is_missing_is_found() -> None:
    w, program = product("matmul:m=32,n=32,k=32")
    artifact = CUDA.build(program, target("sm_80"))
    (kernel,) = artifact.kernels  # type: ignore[attr-defined]
    barrier, wait = "\tbar.sync \t0;\n", "\tcp.async.wait_all;\n"
    assert kernel.text.count(barrier) == kernel.text.count(wait) == 2
    for missing, words in ((wait, "uninitialised: a thread writes to C what comes of"), (barrier, "race: ")):
        before, _, after = kernel.text.rpartition(missing)
        broken = replace(artifact, kernels=(replace(kernel, text=before + after),))  # type: ignore[call-arg]
        with pytest.raises(PtxFault, match=words):
            CUDA.load(broken)(*w.inputs(0).values())


def test_numbers_of_threads_are_no_halves() -> None:
    t, zero = Var("threadIdx.x"), index(0)
    write = Store("s", (t % 2,), Load("X", (zero, t), "float32"))
    read = Store("Y", (zero, t), Load("s", ((t + 1) % 2,), "float32"))
    body = Loop(t, index(2), Alloc(Buffer("s", (index(2),), "float32", "shared"), seq(write, read)), "threadIdx.x")
    placed = with_barriers("by hand", body, {"s", "Y"}, {"Y"})
    assert any(isinstance(s, Barrier) for s in statements(placed))


def test_unsuitable_loops_are_refused() -> None:
    s = Schedule(workload("matmul:m=8,n=8,k=8").program)
    i, j, k = s.loops("C")
    s.bind(i, "blockIdx.x")
    s.bind(j, "threadIdx.x")
    s.annotate(k, "double_buffer", True)
    with pytest.raises(BuildError, match="loop 'k' is to be double-buffered, but copies nothing to shared memory"):
        CUDA.build(s.program, target("sm_80"))


# --- quality ----------------------------------------------------------------------------------------------------------


def loop_of(text: str) -> list[str]:
    """The names of the instructions in the longest loop of a kernel."""
    lines = [line.strip() for line in text.splitlines()]
    starts = {line.split(":")[0]: n for n, line in enumerate(lines) if line.startswith("$L")}
    ends = ((n, found[1]) for n, line in enumerate(lines) if (found := re.search(r"bra(?:.uni)?\s+(\$L\w+);", line)))
    begin, end = max(((starts[to], n) for n, to in ends if starts[to] < n), key=lambda pair: pair[1] - pair[0])
    return [line.split()[0] for line in lines[begin : end + 1] if line.endswith(";")]


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_the_loop_of_a_large_tile_is_products(arch: str) -> None:
    _, program = product("matmul:m=1024,n=1024,k=1024", BIG)
    (kernel,) = CUDA.build(program, target(arch)).kernels  # type: ignore[attr-defined]
    names = loop_of(kernel.text)
    assert names.count("fma.rn.f32") == 512 and 512 / len(names) >= 0.85
    fits(kernel, arch)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_large_tiles_with_edges_fit_registers(arch: str) -> None:
    _, program = product("matmul:m=1000,n=1003,k=1001", BIG)
    (kernel,) = CUDA.build(program, target(arch)).kernels  # type: ignore[attr-defined]
    fits(kernel, arch)


def fits(kernel: PtxKernel, arch: str) -> None:
    assert "local" not in kernel.text
    if find_ptxas() is not None:
        made = assemble(kernel.text, arch)
        assert made.spills == 0 and made.shared == kernel.shared == 16384


def test_tiles_inside_have_no_predicates() -> None:
    w = workload("matmul:m=100,n=72,k=44")
    s = Schedule(w.program)
    tile_for_threads(s, "C", ThreadTiles())
    text = CUDA.listing(s.program, target("sm_80"), "PTX")
    assert "ld.global.v4.b32" in text and "st.global.v4.b32" in text  # vectors, which predicates would take apart
    assert is_right(w, s.program)
