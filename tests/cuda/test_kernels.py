"""Programs for GPUs: both oracles compute what numpy does, and kernels have the barriers that they need."""

import numpy as np
import pytest
from cuda_oracles import CUDA, TARGET, is_right
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from searchlab.cuda.ptx_memory import PtxFault
from searchlab.cuda.ptx_module import PIPELINE, kernel_ir
from searchlab.cuda.spmd import launches
from searchlab.defaults import default_schedule
from searchlab.errors import BuildError
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Barrier
from searchlab.llvm import jit
from searchlab.schedule import Schedule
from searchlab.tactics import ThreadTiles, bind_elements, sum_with_threads, tile_for_threads
from searchlab.targets import parse
from searchlab.workloads import Workload
from searchlab.workloads import parse as workload


def ptx_of(program: Program) -> str:
    return CUDA.listing(program, TARGET, "PTX")


def barriers(program: Program) -> int:
    return sum(isinstance(s, Barrier) for k in launches(program, TARGET).kernels for s in statements(k.body))


def product(spec: str, tiles: ThreadTiles | None = None) -> tuple[Workload, Program]:
    w = workload(spec)
    s = Schedule(w.program)
    tile_for_threads(s, "C", tiles or ThreadTiles())
    return w, s.program


def elements(spec: str, threads: int = 32) -> tuple[Workload, Program]:
    w = workload(spec)
    s = Schedule(w.program)
    for name in list(w.program.blocks):
        bind_elements(s, name, threads)
    return w, s.program


@pytest.mark.parametrize(
    "spec",
    [
        "elementwise:rows=13,cols=37,ops=relu",
        "elementwise:rows=5,cols=41,ops=tanh",
        "elementwise:rows=5,cols=41,ops=gelu",
        "elementwise:rows=7,cols=11,ops=sigmoid,dtype=float64",
        "elementwise:rows=3,cols=50,ops=relu,dtype=float16",
        "elementwise:rows=3,cols=50,ops=relu,dtype=bfloat16",
        "matmul:m=7,n=11,k=13",
        "softmax:rows=5,cols=37",
        "layer_norm:rows=4,cols=19",
        "conv2d:ci=3,co=4,h=7,w=7,k=3,padding=1",
    ],
)
def test_an_element_for_every_thread(spec: str) -> None:
    assert is_right(*elements(spec))


@pytest.mark.parametrize("spec", ["matmul:m=64,n=32,k=16", "matmul:m=37,n=61,k=23", "matmul:m=1,n=97,k=3"])
def test_products_by_way_of_shared_memory(spec: str) -> None:
    w, program = product(spec)
    assert is_right(w, program)
    assert barriers(program) == 2  # operands are there; nobody reads them any more
    text = ptx_of(program)
    assert text.count("bar.sync") == 2 and "fma.rn.f32" in text and ".shared .align 16 .b8" in text


def test_contiguous_copies_are_vectors() -> None:
    text = ptx_of(product("matmul:m=64,n=64,k=32")[1])
    assert "ld.global.v4.b32" in text and "st.shared.v4.b32" in text
    assert "st.local" not in text and "ld.local" not in text  # results stay in registers


@settings(max_examples=5, deadline=None, phases=(Phase.explicit, Phase.generate))
@example(sizes=(28, 27, 25), threads=(8, 8), each=(4, 1), depth=3)
@example(sizes=(1, 1, 4), threads=(2, 4), each=(1, 1), depth=3)
@given(
    sizes=st.tuples(*(st.integers(1, 40) for _ in range(3))),
    threads=st.tuples(st.sampled_from((1, 2, 4, 8)), st.sampled_from((2, 4, 8))),
    each=st.tuples(st.sampled_from((1, 2, 4)), st.sampled_from((1, 3, 4))),
    depth=st.sampled_from((1, 3, 8)),
)
def test_products_of_any_size_in_any_tiles(
    sizes: tuple[int, int, int], threads: tuple[int, int], each: tuple[int, int], depth: int
) -> None:
    m, n, k = sizes
    w, program = product(f"matmul:m={m},n={n},k={k}", ThreadTiles(threads, each, depth))
    assert is_right(w, program)  # the emulator finds no race in what was accepted


@pytest.mark.parametrize(
    ("spec", "threads", "waits"),
    [
        ("reduce:shape=13x101,axis=-1", 16, 0),
        ("reduce:shape=3x5x67,axis=1,op=max", 16, 0),
        ("reduce:shape=3x300,axis=-1", 64, 1),  # warps exchange their parts
        ("reduce:shape=3x300,axis=-1,op=max", 48, 1),  # rows of sixteen lanes
        ("reduce:shape=3x50,axis=-1", 5, 1),  # no two lanes
        ("reduce:shape=3x50,axis=-1,dtype=float64", 8, 0),
    ],
)
def test_sums_by_several_threads(spec: str, threads: int, waits: int) -> None:
    w = workload(spec)
    s = Schedule(w.program)
    sum_with_threads(s, "Y", threads)
    assert is_right(w, s.program)
    assert barriers(s.program) == waits
    assert ("shfl.sync.bfly" in ptx_of(s.program)) == (threads % 2 == 0)


def test_a_sum_bound_to_threads() -> None:
    w = workload("matmul:m=4,n=4,k=8")
    s = Schedule(w.program)
    i, j, k = s.loops("C")
    s.bind(i, "blockIdx.x")
    s.bind(k, "threadIdx.x")
    assert is_right(w, s.program)


@pytest.mark.parametrize(
    "spec", ["matmul:m=40,n=48,k=20", "softmax:rows=3,cols=130", "dense:m=4,n=8,k=6", "l2_norm:batch=2,rows=9,cols=11"]
)
def test_default_schedules(spec: str) -> None:
    w = workload(spec)
    program = default_schedule(w.program, TARGET, w.weights)
    assert is_right(w, program)
    assert all(k.block != (1, 1, 1) for k in launches(program, TARGET).kernels)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_every_architecture_has_code(arch: str) -> None:
    text = CUDA.listing(product("matmul:m=33,n=17,k=9")[1], parse(f"cuda:arch={arch}"), "PTX")
    assert f".target {arch}" in text


# --- what is refused --------------------------------------------------------------------------------------------------


def schedule(spec: str) -> tuple[Schedule, list[str]]:
    s = Schedule(workload(spec).program)
    return s, s.loops(next(iter(s.program.blocks)))


def refused(s: Schedule, words: str) -> None:
    with pytest.raises(BuildError, match=words):
        CUDA.build(s.program, TARGET)


def test_threads_that_add_to_one_element() -> None:
    s, (i, j, k) = schedule("matmul:m=4,n=4,k=8")
    s.bind(i, "blockIdx.x")
    s.bind(k, "threadIdx.y")
    refused(s, "one thread may write what another accesses in the same statement")


def test_several_kernels_with_blocks_of_one_thread() -> None:
    s = Schedule(workload("softmax:rows=4,cols=8").program)
    *_, last = s.program.blocks
    outer = s.loops(last)[0]
    s.bind(outer, "blockIdx.x")
    s.bind(s.loops(last)[1], "blockIdx.y")
    assert is_right(workload("softmax:rows=4,cols=8"), s.program)


def test_two_loops_of_one_axis_inside_each_other() -> None:
    s, (i, j) = schedule("elementwise:rows=4,cols=8,ops=relu")
    s.bind(i, "threadIdx.x")
    s.bind(j, "threadIdx.x")
    refused(s, "two loops are bound to threadIdx.x")


def test_blocks_inside_of_loops() -> None:
    s, (i, j) = schedule("elementwise:rows=4,cols=8,ops=relu")
    s.bind(j, "blockIdx.x")
    refused(s, "bound to blockIdx.x, but it is not outermost")


def test_blocks_of_too_many_threads() -> None:
    s, (i, j) = schedule("elementwise:rows=2,cols=1025,ops=relu")
    s.bind(j, "threadIdx.x")
    refused(s, "1025 threads; sm_80 allows 1024")


def test_too_much_shared_memory() -> None:
    _, program = product("matmul:m=64,n=256,k=1024", ThreadTiles((8, 8), (4, 4), 1024))
    with pytest.raises(BuildError, match="262144 bytes of shared memory; a block on sm_80 can have 166912"):
        CUDA.build(program, TARGET)


def test_shared_memory_that_is_asked_for_at_launch() -> None:
    w, program = product("matmul:m=32,n=64,k=256", ThreadTiles((8, 8), (4, 4), 256))
    (kernel,) = CUDA.build(program, TARGET).kernels  # type: ignore[attr-defined]
    assert kernel.dynamic == kernel.shared == 65536 and ".extern .shared .align 16 .b8 dynamic[]" in kernel.text
    assert is_right(w, program)
    (small,) = CUDA.build(product("matmul:m=32,n=64,k=64")[1], TARGET).kernels  # type: ignore[attr-defined]
    assert small.dynamic == 0


def test_local_memory_that_threads_would_share() -> None:
    s, (i, j, k) = schedule("matmul:m=8,n=8,k=8")
    copy = s.cache_read("C", "A", "local")
    s.bind(i, "blockIdx.x")
    s.compute_at(copy, i)
    s.bind(j, "threadIdx.x")
    s.bind(s.loops(copy)[-1], "threadIdx.x")
    refused(s, "in local memory, but threads access each other's elements")


def test_barriers_inside_of_a_loop_of_other_threads() -> None:
    s, (i, j, k) = schedule("matmul:m=8,n=8,k=8")
    copy = s.cache_read("C", "A", "shared")
    s.bind(i, "threadIdx.y")
    s.compute_at(copy, i)
    s.bind(j, "threadIdx.x")
    s.bind(s.loops(copy)[-1], "threadIdx.x")
    assert barriers(s.program) == 1  # all threads run all of i, so they may wait inside it
    s, (i, j, k) = schedule("matmul:m=5,n=8,k=8")
    o, t = s.split(i, [None, 4], tail=True)
    copy = s.cache_read("C", "A", "shared")
    s.bind(o, "blockIdx.x")
    s.bind(t, "threadIdx.y")
    s.compute_at(copy, t)
    s.bind(j, "threadIdx.x")
    s.bind(s.loops(copy)[-1], "threadIdx.x")
    assert is_right(workload("matmul:m=5,n=8,k=8"), s.program)


# --- what the emulator finds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
def test_a_removed_barrier_is_a_race(which: int) -> None:
    from dataclasses import replace

    w, program = product("matmul:m=32,n=32,k=24")
    artifact = CUDA.build(program, TARGET)
    (kernel,) = artifact.kernels  # type: ignore[attr-defined]
    before, *after = kernel.text.split("bar.sync \t0;\n")
    assert len(after) == 2
    pieces = [before, after[0], after[1]]
    text = pieces[0] + pieces[1] + "bar.sync \t0;\n" + pieces[2] if which == 0 else (
        pieces[0] + "bar.sync \t0;\n" + pieces[1] + pieces[2]
    )  # fmt: skip
    broken = replace(artifact, kernels=(replace(kernel, text=text),))  # type: ignore[call-arg]
    with pytest.raises(PtxFault, match="race: .* shared memory"):
        CUDA.load(broken)(*w.inputs(0).values())


def test_results_do_not_depend_on_how_many_blocks_run_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    w, program = product("matmul:m=70,n=45,k=19")
    kernel, inputs = CUDA.load(CUDA.build(program, TARGET)), w.inputs(3)
    together = kernel(*inputs.values())
    monkeypatch.setattr("searchlab.cuda.ptx_machine.MOST_THREADS", 64)
    assert np.array_equal(kernel(*inputs.values()), together)


def test_code_has_no_jump_tables() -> None:
    """A choice among many stays a chain of branches in every kernel, as the emulator knows no jumps by a table."""
    w = workload("elementwise:rows=4,cols=8")
    made = launches(default_schedule(w.program, TARGET), TARGET)
    written, _ = kernel_ir(made, made.kernels[0], "kernel0", TARGET)
    cases = " ".join(f"i32 {n}, label %c{n}" for n in range(8))
    arms = "\n".join(f"c{n}:\n store volatile i{8 << n % 4} {n * n}, ptr %p\n br label %end" for n in range(8))
    choice = f"switch i32 %n, label %end [ {cases} ]\n{arms}\nend:\n ret void"
    other = f"\ndefine ptx_kernel void @chosen(ptr %p, i32 %n) #0 {{\n {choice}\n}}\n"
    with_tables = written.replace('"no-jump-tables"="true"', "")
    assert with_tables != written
    found = [jit.assembly(x + other, TARGET, pipeline=PIPELINE) for x in (written, with_tables)]
    assert ["brx.idx" in text for text in found] == [False, True]


def test_registers_that_decide_about_a_block_are_limited() -> None:
    """A step more would leave out a block; where it would not, nothing is said to the assembler."""
    _, program = product("matmul:m=64,n=64,k=64")
    loop = next(name for name, lp in program.loops.items() if str(lp.kind) == "blockIdx.x")

    def limited(registers: int) -> str:
        s = Schedule(program)
        s.annotate(loop, "thread_registers", registers)
        return ptx_of(s.program)

    assert f".minnctapersm {TARGET.resident_blocks(64, 48, 2048)}" in limited(48)
    assert TARGET.resident_blocks(64, 56, 2048) < TARGET.resident_blocks(64, 48, 2048)
    assert ".minnctapersm" not in limited(8) and ".minnctapersm" not in ptx_of(program)
