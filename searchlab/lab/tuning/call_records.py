"""What a compiled model did in a run, call by call: times, what each call read, and the memory in use meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from searchlab.graph.calls import GraphCall, LibraryCall, ProgramCall
from searchlab.graph.functions import GraphModule
from searchlab.graph.model.compiled_model import CompiledModel
from searchlab.graph.model_source import ModelSource
from searchlab.graph.passes.memory_plan import MemoryPlan, Policy, plan_memory
from searchlab.graph.passes.memory_pool import allocation_log
from searchlab.ir.evaluate import evaluate
from searchlab.lab.tuning.model_result import CallKind, CallRecord


def call_records(
    model: CompiledModel, source: ModelSource, memory: Policy = "bounds"
) -> tuple[tuple[CallRecord, ...], int]:
    """The calls of a model's functions that compute something, in order, and the bytes that their plans hold.

    The bytes are those of one run of each on its example inputs, in which every intermediate result has its place.
    """
    made: list[CallRecord] = []
    held = 0
    for name, call in source.calls.items():
        profile = model[name].profile(*call.inputs)
        plan = plan_memory(model.lowered, name, memory)
        times = {one.name: one for one in profile.calls}
        live, reads = _live(plan, profile.sizes), dict(_reads(model.lowered, name))
        for at, binding in enumerate(model.lowered[name].bindings):
            if binding.name in reads and binding.name in times:
                timed = times[binding.name]
                read = tuple(source.called(name, n) for n in reads[binding.name])
                made.append(CallRecord(source.called(name, timed.name), timed.callee, _kind(binding.call),
                                       call.weight * timed.seconds, timed.flops, read, live[at]))  # fmt: skip
        held += allocation_log(plan, profile.sizes).peak
    return tuple(made), held


def _kind(call: GraphCall) -> CallKind:
    return "own" if isinstance(call, ProgramCall) else "library" if isinstance(call, LibraryCall) else "other"


def _live(plan: MemoryPlan, sizes: Mapping[str, int]) -> list[int]:
    """The bytes that are needed at every binding."""
    found = [0] * plan.length
    for value in plan.values:
        if value.size is not None:
            bytes_of = int(evaluate(value.size, sizes))
            for at in range(value.first, min(value.last, plan.length - 1) + 1):
                found[at] += bytes_of
    return found


def _reads(module: GraphModule, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The calls that compute something, each with those whose results it reads; what only renames is looked through."""
    sources: dict[str, tuple[str, ...]] = {}
    for binding in module[name].bindings:
        read = tuple(dict.fromkeys(source for n in binding.call.names() for source in sources.get(n, ())))
        if _is_alias(binding.call):
            sources[binding.name] = read
        else:
            sources[binding.name] = (binding.name,)
            yield binding.name, read


def _is_alias(call: GraphCall) -> bool:
    """Whether the result of a call is memory of its operands: a view, a cast of its annotation, tuples and items."""
    return not isinstance(call, ProgramCall | LibraryCall) and not tuple(call.functions())
