"""`compile`: from a graph to a model in this process.

passes -> memory plan -> byte code -> kernels -> model
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from searchlab.errors import GraphError
from searchlab.graph.functions import GraphModule
from searchlab.graph.model.compiled_model import CompiledModel
from searchlab.graph.model.kernels import ConstantTable, Tuned, build_kernels, sites_of, tasks_of, workspace_of
from searchlab.graph.model.model_parts import ModelParts
from searchlab.graph.model.options import CompileOptions
from searchlab.graph.model.pipeline import lowered
from searchlab.graph.model.scheduling import scheduled
from searchlab.graph.passes.memory_plan import MemoryPlan, Policy, plan_memory
from searchlab.graph.passes.pass_listing import Watch
from searchlab.graph.passes.workspaces import lift_workspaces
from searchlab.graph.vm.bytecode import Reference
from searchlab.graph.vm.lowering import LoweredFunction, lower_function
from searchlab.targets import CpuTarget, Target, cpu_of, detect

LARGEST_ARENA = 1 << 30  # bytes: bounds that nobody means as sizes would ask for more memory than there is


def compile(
    module: GraphModule,
    target: Target | None = None,
    tuned: Tuned | None = None,
    options: CompileOptions | dict[str, Any] | None = None,
    *,
    functions: Sequence[str] | None = None,
    observe: Watch | None = None,
) -> CompiledModel:
    """Compiles functions of a module, by default all that no other calls, for this machine unless a target is given.

    `tuned` gives scheduled programs for plain ones, by a size where there are several; what it has none for gets the
    default schedule.  `observe` sees the module before and after every pass.
    """
    chosen = CompileOptions.of(options)
    cpu = cpu_of(target or detect())
    if chosen.threads is not None:
        cpu = cpu.with_threads(chosen.threads)
    names = _entries(module, functions)
    return CompiledModel(*parts_of(module, names, cpu, tuned, chosen, observe))


def parts_of(
    module: GraphModule,
    names: Sequence[str],
    target: CpuTarget,
    tuned: Tuned | None,
    options: CompileOptions,
    observe: Watch | None,
) -> tuple[ModelParts, GraphModule]:
    """Everything that a model consists of, as data, and the module that it was made of after all passes."""
    made = lowered(module, options, observe, target)
    needed = _reachable(made, names)
    kernels = {
        key: build_kernels(task, target, scheduled(made, task, target, tuned, options.fuse == "after"))
        for key, task in tasks_of(made, [made[name] for name in needed]).items()
    }
    made = lift_workspaces(made, workspace_of(made, kernels, target.threads))
    constants = ConstantTable(made)
    plans = {name: planned(made, name, options.memory) for name in needed}
    sites = {name: sites_of(made, made[name], kernels, constants) for name in needed}
    functions = {name: lower_function(made, name, plans, sites) for name in names}
    built = {kernel.entry: kernel for table in kernels.values() for kernel in table.entries}
    return ModelParts(target, functions, built, _needed(functions, constants)), replace(made, constants={})


def planned(module: GraphModule, name: str, policy: Policy) -> MemoryPlan:
    """The memory of a function; an arena that upper bounds make too large is replaced by storages of equal sizes."""
    plan = plan_memory(module, name, policy)
    return plan if (plan.arena or 0) <= LARGEST_ARENA else plan_memory(module, name, "symbolic")


def _reachable(module: GraphModule, names: Sequence[str]) -> list[str]:
    """These functions and all that they call."""
    found = list(names)
    for name in found:  # grows
        found += [f for c in module[name].calls.values() for f in c.functions() if f not in found]
    return found


def _needed(functions: dict[str, LoweredFunction], constants: ConstantTable) -> dict[str, Any]:
    """The arrays that byte code refers to."""
    for function in functions.values():
        for word in function.code.registers:
            if isinstance(word, Reference) and word.kind == "constant" and word.name not in constants.arrays:
                constants.plain(word.name)
    return constants.arrays


def _entries(module: GraphModule, functions: Sequence[str] | None) -> list[str]:
    """The functions to compile: those asked for, or those that no other one calls."""
    if functions is not None:
        return [module[name].name for name in functions]
    called = {name for f in module for c in f.calls.values() for name in c.functions()}
    found = [f.name for f in module if f.name not in called]
    if not found:
        raise GraphError("the module has no function to compile")
    return found
