"""Workspaces: scratch memory of kernels, stated by calls, placed by plans, shared between calls."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.graph_models import split_k
from searchlab.backend import backend_of, build
from searchlab.defaults import default_schedule
from searchlab.graph import (
    GraphBuilder,
    GraphModule,
    ProgramCall,
    graph_from_json,
    graph_to_json,
    legalise,
    verify_graph,
)
from searchlab.graph.passes.memory_plan import plan_memory
from searchlab.graph.passes.memory_pool import allocation_log
from searchlab.graph.passes.workspaces import lift_workspaces, workspace_bytes
from searchlab.ir import size
from searchlab.ir.evaluate import evaluate
from searchlab.llvm.abi import ScratchLayout
from searchlab.runtime.kernel import CpuArtifact
from searchlab.targets import offered, parse

n = size("n")
MACHINE = parse("x86-64-v3")
PARTS, COLUMNS = 8, 48  # of a sum, and of the results


def two_products(high: int | None = 64) -> GraphModule:
    b = GraphBuilder("main", ranges={n: (1, high)} if high else {})
    x = b.input("x", (n, 256))
    first = b.matmul(x, b.constant("w", np.ones((256, COLUMNS), "float32")), name="first")
    wide = b.concat(first, first, first, first, axis=1, name="wide")
    second = b.matmul(wide, b.constant("v", np.ones((4 * COLUMNS, COLUMNS), "float32")), name="second")
    return legalise(b.build(b.relu(second)))


def lifted(module: GraphModule, kernels: dict[str, CpuArtifact]) -> GraphModule:
    return lift_workspaces(module, lambda call: workspace_bytes(kernels[call.program], MACHINE.threads))


@pytest.fixture(scope="module")
def kernels() -> dict[str, CpuArtifact]:
    module = two_products()
    products = {name for name, p in module.programs.items() if "matmul" in name}
    return {
        name: build(split_k(p, PARTS) if name in products else default_schedule(p, MACHINE), MACHINE)
        for name, p in module.programs.items()
    }


def test_calls_state_the_scratch_memory_of_their_kernels(kernels: dict[str, CpuArtifact]) -> None:
    module = lifted(two_products(), kernels)
    verify_graph(module)
    calls = module["main"].calls
    assert isinstance(calls["first"], ProgramCall) and isinstance(calls["wide"], ProgramCall)
    assert str(calls["first"].workspace) == f"n*{PARTS * COLUMNS * 4}" and calls["wide"].workspace is None
    assert f"with n*{PARTS * COLUMNS * 4} bytes" in str(module)
    assert graph_from_json(graph_to_json(module), {k: c.array for k, c in module.constants.items()}) == module


def test_two_products_share_one_workspace(kernels: dict[str, CpuArtifact]) -> None:
    module = lifted(two_products(), kernels)
    one = PARTS * COLUMNS * 4 * 64
    for policy in ("symbolic", "bounds"):
        plan = plan_memory(module, "main", policy)
        at = [(plan.storage_of(f"{v}.workspace"), plan.offset_of(f"{v}.workspace")) for v in ("first", "second")]
        assert at[0] == at[1] and at[0][0] is not None
    apart, shared = (allocation_log(plan_memory(module, "main", p), {"n": 64}).peak for p in ("none", "bounds"))
    assert apart >= 2 * one and one <= shared < 2 * one


def test_workspaces_do_not_overlap_what_the_call_reads_and_writes(kernels: dict[str, CpuArtifact]) -> None:
    plan = plan_memory(lifted(two_products(), kernels))
    limits = {
        v.name: (plan.offset_of(v.name), plan.offset_of(v.name) + int(evaluate(v.size, {"n": 64}))) for v in plan.values
    }
    begin, end = limits["second.workspace"]
    for name in ("wide", "second"):
        assert limits[name][1] <= begin or end <= limits[name][0]


def test_a_workspace_without_bounds_is_shared_by_equal_size(kernels: dict[str, CpuArtifact]) -> None:
    plan = plan_memory(lifted(two_products(high=None), kernels))
    assert plan.storage_of("first.workspace") == plan.storage_of("second.workspace")


def test_sizes_of_a_workspace_are_those_of_the_call() -> None:
    """A kernel knows its sizes by its own names, which a call gives values."""
    rows = size("rows")
    program = legalise(_one_product(GraphBuilder(), rows)).programs["matmul"]
    kernel = build(split_k(program, PARTS), MACHINE)
    b = GraphBuilder()
    w = b.constant("w", np.ones((256, COLUMNS), "float32"))
    module = b.build(b.relu(b.call_program(program, b.input("x", (n * 2, 256)), w, name="y")))
    call = lift_workspaces(module, lambda call: workspace_bytes(kernel, 1))["main"].calls["y"]
    assert str(kernel.shared) == f"rows*{PARTS * COLUMNS * 4}"
    assert isinstance(call, ProgramCall) and str(call.workspace) == f"n*{2 * PARTS * COLUMNS * 4}"


def _one_product(b: GraphBuilder, rows: object) -> GraphModule:
    return b.build(b.matmul(b.input("x", (rows, 256)), b.constant("w", np.ones((256, COLUMNS), "float32"))))


@pytest.mark.parametrize("threads", [1, 3])
def test_bytes_are_those_of_the_layout(threads: int) -> None:
    machine = replace(MACHINE, cores=4, threads=threads)
    rows = size("rows")
    program = legalise(_one_product(GraphBuilder(), rows)).programs["matmul"]
    scheduled = split_k(program, PARTS, parallel=threads > 1)
    artifact = build(scheduled, machine)
    for value in (1, 7, 64):
        layout = ScratchLayout.of(artifact.shared, artifact.private, {"rows": value})
        assert int(evaluate(workspace_bytes(artifact, threads), {"rows": value})) == layout.total(threads)


def test_a_kernel_runs_in_a_workspace_of_the_plan(kernels: dict[str, CpuArtifact]) -> None:
    """The first product, with its scratch memory at its offset in an arena, and not a byte beyond."""
    if "x86-64-v3" not in offered():
        pytest.skip("this machine has no AVX2")
    module = lifted(two_products(), kernels)
    plan, call = plan_memory(module), module["main"].calls["first"]
    assert isinstance(call, ProgramCall) and plan.arena is not None
    rng = np.random.default_rng(0)
    x, w = rng.random((64, 256), "float32"), rng.random((256, COLUMNS), "float32")
    arena = np.full(plan.arena + 64, 0xAB, np.uint8)
    base = arena.ctypes.data + -arena.ctypes.data % 64
    begin = plan.offset_of("first.workspace")
    length = int(evaluate(call.workspace, {"n": 64}))  # type: ignore[arg-type]
    out = np.zeros((64, COLUMNS), "float32")
    kernel = backend_of(MACHINE).load(kernels[call.program])

    def allocate(wanted: int) -> tuple[int, object]:
        assert wanted == length
        return base + begin, arena

    kernel.ready({"A": x, "B": w}, {}, {"C": out}, allocate)()
    np.testing.assert_allclose(out, x @ w, rtol=1e-4)
    whole = (ctypes.c_uint8 * plan.arena).from_address(base)
    outside = np.concatenate([np.asarray(whole[:begin]), np.asarray(whole[begin + length :])])
    assert (outside == 0xAB).all() and (np.asarray(whole[begin : begin + length]) != 0xAB).any()
