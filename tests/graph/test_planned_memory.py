"""Random graphs that run in the memory that plans give them: results are right, and logs are what naive counting says.

Memory is filled with what is recognisable whenever it is acquired and when it is released, so a value whose memory is
taken too early spoils the result.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import RandomGraph, m, n, random_arrays

from benchmarks.graph_models import transformer_layers
from searchlab.dtype import DTYPES
from searchlab.graph import (
    Extents,
    FunctionCall,
    GraphBuilder,
    GraphModule,
    ItemCall,
    MatchCast,
    OperatorCall,
    TensorType,
    TupleCall,
    TupleType,
    evaluate_graph,
)
from searchlab.graph.passes.arena import ArenaBlock, most_live, packed
from searchlab.graph.passes.memory_plan import POLICIES, MemoryPlan, Policy, plan_memory
from searchlab.graph.passes.memory_pool import MemoryPool, allocation_log
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import Const, Expr


class PlannedRun:
    """Runs a function of operators by its references, with every value in the bytes that the plan says."""

    def __init__(self, module: GraphModule, name: str, policy: Policy, sizes: dict[str, int]) -> None:
        self.module, self.function, self.policy, self.sizes = module, module[name], policy, sizes
        self.plan = plan_memory(module, name, policy)
        self.memory: dict[str, np.ndarray] = {}
        self.values: dict[str, Any] = {}

    def number(self, e: Expr) -> int:
        return int(evaluate(e, self.sizes))

    def run(self, *args: Any) -> Any:
        self.values = {p.name: a for p, a in zip(self.function.parameters, args, strict=True)}
        for at, b in enumerate(self.function.bindings):
            for s in self.plan.acquired_before(at):
                self.memory[s.name] = np.full(self.number(s.size), 0xFF, np.uint8)
            self.values[b.name] = self.computed(b.name, b.call)
            self.release(at)
        self.release(self.plan.length)
        assert not self.memory
        return self.value(self.function.result)

    def release(self, at: int) -> None:
        for s in self.plan.released_after(at):
            self.memory.pop(s.name)[:] = 0xFE

    def value(self, operand: Any) -> Any:
        if isinstance(operand, str):
            return self.values[operand] if operand in self.values else self.module.constants[operand].array
        assert not isinstance(operand, Extents)
        value = self.number(operand.value) if isinstance(operand.value, Expr) else operand.value
        return np.asarray(value, DTYPES[operand.dtype].storage)

    def computed(self, name: str, call: Any) -> Any:
        args = [self.value(o) for o in call.operands()]
        if isinstance(call, MatchCast):
            return args[0]
        if isinstance(call, TupleCall):
            return tuple(args)
        if isinstance(call, ItemCall):
            return args[0][call.index]
        if isinstance(call, FunctionCall):
            return PlannedRun(self.module, call.function, self.policy, self.sizes).run(*args)
        assert isinstance(call, OperatorCall)
        operator = call.operator.map_dims(lambda e: Const(self.number(e)))
        with np.errstate(all="ignore"):
            found = operator.reference(*(a.astype("float64") if a.dtype.kind == "f" else a for a in args))
        annotation = self.function.annotations[name]
        if call.operator.is_view:
            return args[0].reshape(np.shape(found))
        if isinstance(annotation, TupleType):
            parts = zip(found, annotation.parts, strict=True)
            return tuple(self.held(f"{name}.{i}", np.asarray(y, a.dtype)) for i, (y, a) in enumerate(parts))
        return self.held(name, np.asarray(found, annotation.dtype))

    def held(self, name: str, array: np.ndarray) -> np.ndarray:
        """A copy of an array, in the place of a value."""
        storage = self.plan.places.get(name)
        if storage is None:
            return array.copy()
        begin = self.plan.offset_of(name)
        place = self.memory[storage][begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
        place[...] = array
        return place


@st.composite
def graphs(draw, calls: int = 24) -> GraphModule:
    """Random graphs, which may call a random function with values in use before and after it."""
    choose = lambda low, high: draw(st.integers(low, high))  # noqa: E731
    inner = RandomGraph(choose, True)
    inner.b.name = "inner"
    inner.module(draw(st.integers(1, 4)))
    argument = inner.pick(inner.values[:3])  # returned as it is, or as a view
    returned = inner.pick([argument, inner.b.unsqueeze(argument, axes=(0,)), inner.values[-2]])
    module = inner.b.build(returned, inner.values[-1])
    outer = RandomGraph(choose, True)
    # upper bounds for both symbols, or for one of them
    outer.b = GraphBuilder("main", module, ranges={n: (1, 8), m: (2, draw(st.sampled_from([None, 8])))})
    outer.b.input("rows", (n,)), outer.b.input("columns", (m,))
    outer.values = [outer.b.input(f"x{i}", s) for i, s in enumerate([(n, m), (n, 6), (2, n, m)])]
    given = [outer.b.known(p) for p in ("rows", "columns")]
    for _ in range(draw(st.integers(0, 2))):
        outer.module(draw(st.integers(1, calls // 4)))
        parts = outer.b.call("inner", *given, *(outer.b.relu(x) for x in outer.values[:3]))
        outer.values += [outer.b.item(parts, i) for i in range(2)]
    return outer.module(draw(st.integers(1, calls // 2)))


def plans_are_right(module: GraphModule) -> None:
    for sizes in ({"n": 3, "m": 4}, {"n": 8, "m": 2}):
        arrays = random_arrays(module, 0, **sizes)
        wanted = evaluate_graph(module, *arrays)
        for policy in POLICIES:
            found = PlannedRun(module, "main", policy, sizes).run(*arrays)
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=policy)


@settings(max_examples=40)
@given(graphs())
def test_results_are_right_in_planned_memory(module: GraphModule) -> None:
    plans_are_right(module)


@pytest.mark.slow
@settings(max_examples=1000)
@given(graphs())
def test_many_results_are_right_in_planned_memory(module: GraphModule) -> None:
    plans_are_right(module)


def test_memory_that_is_taken_too_early_would_be_seen() -> None:
    b = GraphBuilder("main")
    x = b.input("x", (n, 4))
    kept = b.op("exp", x, name="kept")
    view = b.reshape(kept, shape=(-1,), name="view")
    module = b.build(b.add(b.reshape(b.neg(x, name="other"), shape=(-1,)), view))
    run = PlannedRun(module, "main", "symbolic", {"n": 2})
    array = np.ones((2, 4), "float32")
    np.testing.assert_array_equal(run.run(array), evaluate_graph(module, array))
    run.plan.places["other"] = run.plan.places["kept"]  # type: ignore[index]
    assert not np.array_equal(run.run(array), evaluate_graph(module, array))


# --- the log ----------------------------------------------------------------------------------------------------------


def naive_log(plan: MemoryPlan, series: list[dict[str, int]], slack: float) -> tuple[list[tuple[str, str, int]], int]:
    """Events and the peak, by searching lists."""
    events, free, held, peak = [], [], 0, 0
    for sizes in series:
        current: dict[str, int] = {}
        for at in range(plan.length + 1):
            for s in plan.storages:
                if s.first == at and at < plan.length:
                    exact = int(evaluate(s.size, sizes))
                    size = exact if exact % 64 == 0 else exact + 64 - exact % 64
                    fitting = sorted(f for f in free if size <= f <= slack * size)
                    if plan.policy != "none" and fitting:
                        free.remove(fitting[0])
                        current[s.name] = fitting[0]
                        events.append(("reuse", s.name, fitting[0]))
                    else:
                        current[s.name] = size
                        held += size
                        events.append(("allocate", s.name, size))
                    peak = max(peak, held)
            for s in plan.storages:
                if s.last == at:
                    size = current.pop(s.name)
                    if plan.policy == "none":
                        held -= size
                    else:
                        free.append(size)
                    events.append(("free" if plan.policy == "none" else "release", s.name, size))
        assert not current
    return events, peak


@settings(max_examples=40)
@given(graphs(), st.lists(st.tuples(st.integers(1, 8), st.integers(2, 8)), min_size=1, max_size=5), st.integers(1, 20))
def test_logs_are_what_naive_counting_says(module: GraphModule, series: list[tuple[int, int]], slack: int) -> None:
    sizes = [{"n": a, "m": b} for a, b in series]
    for policy in POLICIES:
        plan = plan_memory(module, "main", policy)
        log = allocation_log(plan, sizes, MemoryPool(slack))
        events, peak = naive_log(plan, sizes, slack)
        assert [(e.event, e.storage, e.bytes) for e in log.events] == events
        assert log.peak == peak and log.total == sum(size for event, _, size in events if event == "allocate")


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=24))
def test_offsets_in_an_arena_do_not_overlap(drawn: list[tuple[int, int, int]]) -> None:
    blocks = [ArenaBlock(str(i), size, first, first + length) for i, (size, first, length) in enumerate(drawn)]
    offsets, size = packed(blocks)
    for a in blocks:
        assert offsets[a.name] % 64 == 0 and offsets[a.name] + a.size <= size
        for b in blocks:
            meet = a.first <= b.last and b.first <= a.last and a.name != b.name
            assert (
                not meet or offsets[a.name] + a.size <= offsets[b.name] or offsets[b.name] + b.size <= offsets[a.name]
            )
    live = [sum(-(-b.size // 64) * 64 for b in blocks if b.first <= at <= b.last) for at in range(19)]
    assert most_live(blocks) == max(live) <= size <= sum(-(-b.size // 64) * 64 for b in blocks)


# --- series of lengths ------------------------------------------------------------------------------------------------

UP = [128, 256, 512, 1024]
SERIES = {
    "up": UP,
    "shuffled": [512, 128, 1024, 256],
    "random": [int(v) for v in np.random.default_rng(0).integers(64, 1025, 24)],
}


@pytest.mark.parametrize("width", [128, 256])
@pytest.mark.parametrize("name", SERIES)
def test_bounds_against_a_pool_of_equal_sizes(width: int, name: str) -> None:
    """The pool of Relax's virtual machine reuses blocks of one size; the arena takes at most 0.7 of its memory."""
    module = transformer_layers(width)
    series = [{"n": length} for length in SERIES[name]]
    pool = allocation_log(plan_memory(module, "main", "pool"), series, MemoryPool(slack=1))
    bounds = allocation_log(plan_memory(module, "main", "bounds"), series)
    none = allocation_log(plan_memory(module, "main", "none"), series)
    assert bounds.peak <= 0.7 * pool.peak and bounds.peak < none.peak
    assert bounds.total == bounds.peak and bounds.allocations == 1


def test_totals_of_bounds_do_not_depend_on_the_order(transformer: GraphModule) -> None:
    plans = {policy: plan_memory(transformer, "main", policy) for policy in POLICIES}
    orders = [UP, UP[::-1], SERIES["shuffled"]]
    totals = {p: {allocation_log(plan, [{"n": v} for v in s]).total for s in orders} for p, plan in plans.items()}
    assert len(totals["bounds"]) == 1 and len(totals["pool"]) > 1


def test_bounds_lose_where_all_lengths_are_far_below(transformer: GraphModule) -> None:
    pool, bounds = (allocation_log(plan_memory(transformer, "main", p), [{"n": 64}] * 4) for p in ("pool", "bounds"))
    assert bounds.peak > 20 * pool.peak


def test_unknown_dimensions_leave_nothing_to_share(transformer: GraphModule) -> None:
    b = GraphBuilder("main")
    x = b.input("x", TensorType(dtype="float32", rank=2))
    for _ in range(6):
        x = b.tanh(b.relu(x) + x)
    unknown = plan_memory(b.build(x), "main", "symbolic")
    assert not unknown.places and len(unknown.outside) == 18
    known = plan_memory(transformer, "main", "symbolic")
    assert len(known.storages) <= len(known.places) / 5
