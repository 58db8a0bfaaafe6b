"""Plans of memory: what may share memory under each policy and what may not, and what the log of a series says."""

from collections.abc import Callable

import numpy as np
import pytest

from searchlab.errors import GraphError
from searchlab.graph import (
    GraphBuilder,
    GraphModule,
    GraphValue,
    ShapeType,
    TensorType,
    TupleType,
    library,
    tensor,
    verify_graph,
)
from searchlab.graph.passes.memory_plan import ARENA, POLICIES, MemoryPlan, plan_memory
from searchlab.graph.passes.memory_pool import AllocationEvent, MemoryPool, allocation_log
from searchlab.ir import size
from searchlab.ir.expr import Const

n, m = size("n"), size("m")


def planned(write: Callable[[GraphBuilder, GraphValue], GraphValue], policy="symbolic", ranges=None) -> MemoryPlan:
    """The plan of a function that `write` writes on an input of shape (n, 4)."""
    b = GraphBuilder("main", ranges=ranges or {})
    module = b.build(write(b, b.input("x", (n, 4))))
    verify_graph(module)
    return plan_memory(module, "main", policy)


def chain(b: GraphBuilder, x: GraphValue, count: int = 4) -> GraphValue:
    for i in range(count):
        x = b.op("relu", x, name=f"v{i}")
    return x


def lives(plan: MemoryPlan) -> dict[str, tuple[int, int]]:
    return {v.name: (v.first, v.last) for v in plan.values}


def share(plan: MemoryPlan, a: str, b: str) -> bool:
    """Whether two values begin at the same byte of the same storage."""
    assert plan.storage_of(a) is not None and plan.storage_of(b) is not None
    return (plan.storage_of(a), plan.offset_of(a)) == (plan.storage_of(b), plan.offset_of(b))


# --- policies ---------------------------------------------------------------------------------------------------------


def test_without_planning_every_value_has_memory_until_the_end() -> None:
    plan = planned(chain, "none")
    assert [(s.name, str(s.size), s.first, s.last) for s in plan.storages] == [
        ("v0", "n*16", 0, 4), ("v1", "n*16", 1, 4), ("v2", "n*16", 2, 4),
    ]  # fmt: skip


def test_a_pool_gets_blocks_back_after_the_last_use() -> None:
    plan = planned(chain, "pool")
    assert [(s.name, s.first, s.last) for s in plan.storages] == [("v0", 0, 1), ("v1", 1, 2), ("v2", 2, 3)]


def test_equal_sizes_take_turns() -> None:
    plan = planned(lambda b, x: chain(b, x, 7))
    assert plan.places == {f"v{i}": f"storage_{i % 2}" for i in range(6)}
    assert [(s.first, s.last) for s in plan.storages] == [(0, 5), (1, 6)]


def test_bounds_make_one_arena_of_constant_size() -> None:
    plan = planned(lambda b, x: chain(b, x, 7), "bounds", {n: (1, 10)})
    assert [(s.name, s.size, s.first, s.last) for s in plan.storages] == [(ARENA, Const(2 * 192), 0, 7)]  # 160 bytes
    assert plan.arena == 384 and {plan.offset_of(f"v{i}") for i in range(6)} == {0, 192}


def test_the_last_value_belongs_to_the_caller() -> None:
    for policy in POLICIES:
        plan = planned(chain, policy, {n: (1, 8)})
        assert set(plan.places) == {"v0", "v1", "v2"} and [v.name for v in plan.outside] == ["v3"]


def test_parameters_and_constants_have_no_place() -> None:
    plan = planned(lambda b, x: b.relu(b.add(x, b.constant("c", np.ones(4, "float32")), name="sum")))
    assert set(plan.places) == {"sum"} and plan.storage_of("x") is plan.storage_of("c") is None


def test_a_value_that_nobody_uses_is_free_at_once() -> None:
    def write(b: GraphBuilder, x: GraphValue) -> GraphValue:
        b.op("exp", x, name="unused")
        return chain(b, x)

    plan = planned(write)
    assert lives(plan)["unused"] == (0, 0) and share(plan, "unused", "v0")


def test_a_policy_has_to_be_known() -> None:
    with pytest.raises(GraphError, match="no memory policy 'bound'; did you mean 'bounds'"):
        planned(chain, "bound")


# --- aliases ----------------------------------------------------------------------------------------------------------


def test_a_view_keeps_its_memory_alive() -> None:
    def write(b: GraphBuilder, x: GraphValue) -> GraphValue:
        a = b.op("exp", x, name="a")
        view = b.reshape(a, shape=(-1,), name="view")
        flat = b.unsqueeze(b.squeeze(b.unsqueeze(view, axes=(0,)), axes=(0,)), axes=(1,), name="deep")
        y = chain(b, x)
        return b.add(b.squeeze(flat, axes=(1,)), b.reshape(y, shape=(-1,)))

    plan = planned(write)
    assert plan.aliases["view"] == plan.aliases["deep"] == "a" and plan.storage_of("deep") == plan.storage_of("a")
    assert all(not share(plan, "a", f"v{i}") for i in range(4))


def test_memory_under_a_returned_view_belongs_to_the_caller() -> None:
    plan = planned(lambda b, x: b.reshape(b.op("exp", x, name="a"), shape=(4, -1)))
    assert not plan.places and [v.name for v in plan.outside] == ["a"]


def test_a_returned_view_of_a_parameter_needs_no_memory() -> None:
    plan = planned(lambda b, x: b.reshape(x, shape=(-1,), name="view"), "bounds")
    assert not plan.storages and not plan.outside and plan.aliases == {"view": "x"}


def test_match_cast_keeps_its_memory_alive() -> None:
    def write(b: GraphBuilder, x: GraphValue) -> GraphValue:
        cast = b.match_cast(b.op("exp", x, name="a"), (m, 4), name="cast")
        y = b.sum(chain(b, x), axes=(0,))
        return b.add(b.sum(cast, axes=(0,)), y)

    plan = planned(write)
    assert plan.aliases["cast"] == "a" and not any(share(plan, "a", f"v{i}") for i in range(4))


def test_a_tuple_keeps_its_parts_alive() -> None:
    def write(b: GraphBuilder, x: GraphValue) -> GraphValue:
        pair = b.tuple(b.op("exp", x, name="a"), b.op("neg", x, name="c"))
        return b.add(chain(b, x), pair[1])

    plan = planned(write)
    assert lives(plan)["a"] == (0, 7) and lives(plan)["c"] == (1, 8)  # item 1 is taken at 7, and used at 8
    assert plan.aliases["getitem"] == "c" and not {"a", "c"} & {plan.aliases.get("tuple")}


def test_returned_tuples_belong_to_the_caller_with_all_parts() -> None:
    def write(b: GraphBuilder, x: GraphValue) -> GraphValue:
        a = b.op("exp", x, name="a")
        return b.tuple(b.tuple(a, x), b.reshape(b.op("neg", a, name="c"), shape=(-1,)), b.op("abs", a, name="d"))

    plan = planned(write)
    assert not plan.places and [v.name for v in plan.outside] == ["a", "c", "d"]


def test_outputs_of_one_call_live_apart() -> None:
    def write(b: GraphBuilder, x: GraphValue) -> GraphValue:
        parts = b.split(x, axis=1, lengths=(1, 3), name="parts")
        first = b.item(parts, 0, name="first")
        return b.add(chain(b, x), first)

    plan = planned(write)
    assert [(v.name, str(v.size)) for v in plan.values[:2]] == [("parts.0", "n*4"), ("parts.1", "n*12")]
    assert plan.aliases["first"] == "parts.0" and lives(plan)["parts.0"] == (0, 6) and lives(plan)["parts.1"] == (0, 1)


# --- nested calls and libraries ---------------------------------------------------------------------------------------


def nested(body: Callable[[GraphBuilder, GraphValue, GraphValue], GraphValue], policy="symbolic") -> MemoryPlan:
    """main(x) = inner(a, c) with a = exp x, c = neg x; then three values; then the sum of the result and the last."""
    inner = GraphBuilder("inner")
    module = inner.build(body(inner, inner.input("p", (n, 4)), inner.input("q", (n, 4))))
    b = GraphBuilder("main", module)
    x = b.input("x", (n, 4))
    found = b.call("inner", b.op("exp", x, name="a"), b.op("neg", x, name="c"), name="found")
    if isinstance(found.annotation, TupleType):
        found = b.item(found, 0, name="item")
    module = b.build(b.add(found, chain(b, x)))
    verify_graph(module)
    return plan_memory(module, "main", policy)


def test_arguments_of_a_nested_call_are_free_after_it() -> None:
    plan = nested(lambda b, p, q: b.add(p, q))
    assert lives(plan)["a"] == (0, 2) and lives(plan)["c"] == (1, 2) and plan.storage_of("found") is None
    assert share(plan, "a", "v0")


def test_an_argument_that_is_returned_lives_as_long_as_the_result() -> None:
    plan = nested(lambda b, p, q: b.match_cast(p, (n, 4)))
    assert lives(plan)["a"] == (0, 7) and lives(plan)["c"] == (1, 2)


def test_a_view_of_an_argument_that_is_returned_counts_too() -> None:
    plan = nested(lambda b, p, q: b.reshape(b.reshape(q, shape=(-1,)), shape=(n, 4)))
    assert lives(plan)["a"] == (0, 2) and lives(plan)["c"] == (1, 7)


def test_an_argument_inside_a_returned_tuple_counts_too() -> None:
    plan = nested(lambda b, p, q: b.tuple(b.add(p, q), q))
    assert lives(plan)["c"] == (1, 8) and lives(plan)["a"] == (0, 2)


def test_values_are_kept_across_a_nested_call() -> None:
    inner = GraphBuilder("inner")
    module = inner.build(inner.relu(inner.input("p", (n, 4))))
    b = GraphBuilder("main", module)
    x = b.input("x", (n, 4))
    kept = b.op("exp", x, name="kept")
    module = b.build(b.add(b.call("inner", b.op("neg", x, name="passed")), kept))
    for policy in POLICIES[1:]:
        plan = plan_memory(module, "main", policy)
        assert lives(plan) == {"kept": (0, 3), "passed": (1, 2)} and not share(plan, "kept", "passed")


_kept: list[np.ndarray] = []


@library("test_borrows")
def _borrows(x: np.ndarray, out: np.ndarray) -> None:
    out[...] = x


@library("test_retains", retains=True)
def _retains(x: np.ndarray, out: np.ndarray) -> None:
    out[...] = x
    _kept.append(x)


def test_library_functions_may_retain_arrays() -> None:
    def write(name: str) -> Callable[[GraphBuilder, GraphValue], GraphValue]:
        def body(b: GraphBuilder, x: GraphValue) -> GraphValue:
            a = b.reshape(b.op("exp", x, name="a"), shape=(-1,))
            c = b.call_library(name, a, out=tensor((n * 4,)), name="c")
            return b.add(chain(b, x), b.reshape(c, shape=(n, 4)))

        return body

    plan = planned(write("test_borrows"))
    assert share(plan, "a", "v0") and "c" in plan.places
    plan = planned(write("test_retains"))
    assert not {"a", "c"} & set(plan.places) and {v.name for v in plan.outside} >= {"a", "c"}


def test_what_a_nested_call_retains_is_never_used_again() -> None:
    def body(b: GraphBuilder, p: GraphValue, q: GraphValue) -> GraphValue:
        b.call_library("test_retains", p, out=tensor((n, 4)))
        return b.relu(q)

    assert "a" in {v.name for v in nested(body).outside} and "c" in nested(body).places


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_sizes_are_compared_by_proof() -> None:
    """n + n and 2*n, and a flattened (n, 4) and n*4, are one size."""

    def write(b: GraphBuilder, x: GraphValue) -> GraphValue:
        double = b.concat(x, x, axis=0, name="double")  # (n + n, 4)
        small = b.sum(double, axes=(0,))
        wide = b.concat(x, x, axis=1, name="wide")  # (n, 8)
        return b.add(b.sum(b.reshape(wide, shape=(-1, 4)), axes=(0,)), small)

    assert share(planned(write), "double", "wide")


def test_sizes_that_are_equal_by_chance_are_not_shared() -> None:
    b = GraphBuilder("main")
    x, y = b.input("x", (n, 4)), b.input("y", (m, 4))
    first = b.sum(b.op("exp", x, name="a"), axes=(0,))
    module = b.build(b.add(first, b.sum(b.op("exp", y, name="c"), axes=(0,))))
    plan = plan_memory(module, "main", "symbolic")
    assert not share(plan, "a", "c")
    events = allocation_log(plan, {"n": 8, "m": 8}).events
    assert [e.event for e in events if e.storage == plan.storage_of("c")][0] == "reuse"  # by the pool, at this size


def test_bounds_share_between_symbols() -> None:
    b = GraphBuilder("main", ranges={n: (1, 8), m: (1, 9)})
    x, y = b.input("x", (n, 4)), b.input("y", (m, 4))
    first = b.sum(b.op("exp", x, name="a"), axes=(0,))
    plan = plan_memory(b.build(b.add(first, b.sum(b.op("exp", y, name="c"), axes=(0,)))))
    assert plan.arena == 192 + 64 + 64  # 144 bytes and two sums of 16, each rounded up to lines; never all three


def test_sizes_that_shrink_as_a_symbol_grows_are_bounded_at_its_lower_end() -> None:
    def write(b: GraphBuilder, x: GraphValue) -> GraphValue:
        rest = b.slice(b.constant("c", np.ones((100, 4), "float32")), axis=0, start=n, name="rest")  # 100 - n rows
        return b.add(b.sum(rest, axes=(0,)), b.sum(x, axes=(0,)))

    plan = planned(write, "bounds", {n: (20, 60)})
    assert plan.arena is not None and 80 * 16 <= plan.arena <= 80 * 16 + 2 * 64
    for at in (20, 60):
        assert allocation_log(plan, {"n": at}).peak == plan.arena


def test_what_has_no_bound_is_shared_by_equal_sizes_and_the_plan_says_so() -> None:
    def write(b: GraphBuilder, x: GraphValue) -> GraphValue:
        y = b.input("y", (m, 4))
        for i in range(4):
            y = b.op("relu", y, name=f"w{i}")
        return b.add(b.sum(chain(b, x), axes=(0,)), b.sum(y, axes=(0,)))

    plan = planned(write, "bounds", {n: (1, 16), m: (2, None)})
    assert {plan.places[f"v{i}"] for i in range(4)} == {ARENA}
    assert {plan.places[f"w{i}"] for i in range(4)} == {"storage_0", "storage_1"}
    assert any("m without an upper bound: w0, w1, w2, w3" in note for note in plan.notes)


def test_bounds_belong_to_symbols_of_one_function() -> None:
    """A symbol of the same name in another function has other bounds."""
    inner = GraphBuilder("inner", ranges={n: (1, 4)})
    module = inner.build(chain(inner, inner.input("p", (n, 4))))
    b = GraphBuilder("main", module, ranges={n: (1, 64)})
    module = b.build(chain(b, b.input("x", (n, 4))))
    assert plan_memory(module, "inner").arena == 2 * 64 and plan_memory(module, "main").arena == 2 * 1024
    b = GraphBuilder("third", module)
    module = b.build(chain(b, b.input("x", (n, 4))))
    assert plan_memory(module, "third").arena is None  # no bounds, though other functions bound an n


def test_a_symbol_that_is_bound_on_the_way_may_have_a_bound() -> None:
    b = GraphBuilder("main", ranges={m: (1, 32)})
    x = b.match_cast(b.input("x", TensorType(dtype="float32", rank=2)), (m, 4))
    assert plan_memory(b.build(chain(b, x))).arena == 2 * 512


def test_constant_sizes_use_larger_storages_and_make_them_larger() -> None:
    b = GraphBuilder("main")
    x = b.input("x", (256,))
    y = b.op("exp", x, name="large")
    y = b.slice(y, axis=0, stop=100, name="small")
    y = b.op("exp", y, name="small_too")  # large is free by now
    y = b.concat(y, y, y, y, y, axis=0, name="larger")  # so is small, which grows
    module = b.build(b.sum(y, axes=(0,), keepdims=True))
    plan = plan_memory(module, "main", "symbolic")
    assert share(plan, "large", "small_too") and share(plan, "small", "larger")
    assert [str(s.size) for s in plan.storages] == ["1024", "2000"]


def test_a_tiny_value_does_not_occupy_a_huge_storage() -> None:
    b = GraphBuilder("main")
    y = b.op("exp", b.input("x", (4096,)), name="huge")
    y = b.sum(y, axes=(0,), keepdims=True, name="tiny")
    plan = plan_memory(b.build(b.neg(b.op("exp", y, name="tiny_too"))), "main", "symbolic")
    assert not share(plan, "huge", "tiny_too")


def test_element_types_have_their_own_sizes() -> None:
    def write(b: GraphBuilder, x: GraphValue) -> GraphValue:
        positive = b.op("gt", x, 0.0, name="positive")
        half = b.cast(x, dtype="float16", name="half")
        whole = b.cast(positive, dtype="int64", name="whole")
        return b.add(b.cast(half, dtype="float32"), b.cast(whole, dtype="float32"))

    sizes = {v.name: str(v.size) for v in planned(write).values}
    assert (sizes["positive"], sizes["half"], sizes["whole"]) == ("n*4", "n*8", "n*32")


def test_unknown_shapes_have_no_place() -> None:
    b = GraphBuilder("main")
    y = chain(b, b.input("x", TensorType(dtype="float32", rank=2)))
    plan = plan_memory(b.build(y), "main", "symbolic")
    assert not plan.storages and [v.name for v in plan.outside] == ["v3", "v0", "v1", "v2"]
    assert "not known: v0, v1, v2" in plan.notes[0]


def test_a_shape_is_no_memory() -> None:
    b = GraphBuilder("main")
    sizes = b.input("sizes", ShapeType((n, m)))
    plan = plan_memory(b.build(b.tuple(sizes, b.full(shape=(n, m), value=1.0))), "main", "symbolic")
    assert not plan.places and [v.name for v in plan.outside] == ["full"]


def test_bounds_cost_no_more_than_what_is_live_at_once(transformer: GraphModule) -> None:
    plan = plan_memory(transformer)
    (note,) = plan.notes
    assert f"at most {plan.arena} bytes are needed at once" in note


def test_the_summary(golden) -> None:
    def write(b: GraphBuilder, x: GraphValue) -> GraphValue:
        return b.sum(b.matmul(chain(b, x), b.input("w", (4, m))), axes=(0,))

    ranges = {n: (1, 16)}
    golden("graph/memory.txt", "\n".join(planned(write, policy, ranges).summary() for policy in POLICIES))


# --- the pool and the log ---------------------------------------------------------------------------------------------


def test_a_pool_takes_the_smallest_block_that_is_large_enough() -> None:
    pool = MemoryPool(slack=4)
    blocks = [pool.acquire(size)[0] for size in (640, 100, 1000, 640)]
    assert [b.size for b in blocks] == [640, 128, 1024, 640] and pool.held == 2432
    for b in blocks:
        pool.release(b)
    assert pool.acquire(600) == (blocks[0], False) and pool.acquire(640) == (blocks[3], False)
    assert pool.acquire(600) == (blocks[2], False)
    block, new = pool.acquire(31)  # 128 bytes are not more than four times 64
    assert block is blocks[1] and not new
    pool.release(blocks[2])
    assert pool.acquire(10)[1]  # 1024 bytes are
    with pytest.raises(GraphError, match="block 2 of 1024 bytes is released twice"):
        pool.release(blocks[2])
    with pytest.raises(GraphError, match="at least 1 is accepted"):
        MemoryPool(0.5)


def test_a_pool_of_equal_sizes() -> None:
    pool = MemoryPool(slack=1)
    block, _ = pool.acquire(128)
    pool.release(block)
    assert pool.acquire(64)[1] and not pool.acquire(120)[1]


def test_the_log_of_a_series() -> None:
    plan = planned(lambda b, x: chain(b, x, 3), "pool")
    log = allocation_log(plan, [{"n": 4}, {"n": 16}])
    assert log.events == (
        AllocationEvent("allocate", "v0", 64), AllocationEvent("allocate", "v1", 64),
        AllocationEvent("release", "v0", 64), AllocationEvent("release", "v1", 64),
        AllocationEvent("allocate", "v0", 256), AllocationEvent("allocate", "v1", 256),
        AllocationEvent("release", "v0", 256), AllocationEvent("release", "v1", 256),
    )  # fmt: skip
    assert (log.peak, log.total, log.allocations) == (640, 640, 4)
    down = allocation_log(plan, [{"n": 16}, {"n": 8}])
    assert (down.peak, down.allocations) == (512, 2)
    without = allocation_log(planned(lambda b, x: chain(b, x, 3), "none"), [{"n": 4}, {"n": 16}])
    assert (without.peak, without.total) == (512, 640) and without.events[-1].event == "free"
    with pytest.raises(GraphError, match=r"the size of v0 is n\*16, and no value is given for n"):
        allocation_log(plan, {"m": 3})


def test_the_log_of_an_arena_does_not_depend_on_sizes() -> None:
    plan = planned(lambda b, x: chain(b, x, 5), "bounds", {n: (1, 64)})
    for series in ([1, 2, 64], [64, 1, 2]):
        log = allocation_log(plan, [{"n": v} for v in series])
        assert (log.peak, log.total, log.allocations) == (2048, 2048, 1)
