"""`compile`: from a graph to a model in this process.

passes -> memory plan -> byte code -> kernels -> model
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from searchlab.errors import GraphError
from searchlab.graph.calls import FunctionCall
from searchlab.graph.functions import GraphModule
from searchlab.graph.model.compiled_model import CompiledModel, ModelParts
from searchlab.graph.model.kernels import ConstantTable, Tuned, build_kernel, sites_of, tasks_of, with_workspaces
from searchlab.graph.model.options import CompileOptions
from searchlab.graph.model.pipeline import Observe, lowered
from searchlab.graph.passes.memory_plan import plan_memory
from searchlab.graph.vm.bytecode import Reference
from searchlab.graph.vm.lowering import LoweredFunction, lower_function
from searchlab.targets import CpuTarget, Target, cpu_of, detect


def compile(
    module: GraphModule,
    target: Target | None = None,
    tuned: Tuned | None = None,
    options: CompileOptions | dict[str, Any] | None = None,
    *,
    functions: Sequence[str] | None = None,
    observe: Observe | None = None,
) -> CompiledModel:
    """Compiles functions of a module, by default all that no other calls, for this machine unless a target is given.

    `tuned` gives scheduled programs for plain ones; what it has none for gets the default schedule.  `observe` sees the
    module before and after every pass.
    """
    chosen = CompileOptions.of(options)
    cpu = cpu_of(target or detect())
    if chosen.threads is not None:
        cpu = cpu.with_threads(chosen.threads)
    names = _entries(module, functions)
    return CompiledModel(parts_of(module, names, cpu, tuned, chosen, observe))


def parts_of(
    module: GraphModule,
    names: Sequence[str],
    target: CpuTarget,
    tuned: Tuned | None,
    options: CompileOptions,
    observe: Observe | None,
) -> ModelParts:
    """Everything that a model consists of, as data."""
    made = lowered(module, options, observe)
    tasks = tasks_of(made, [made[name] for name in names])
    kernels = {
        key: build_kernel(task, target, tuned(task.program, task.weights) if tuned else None)
        for key, task in tasks.items()
    }
    constants = ConstantTable(made)
    functions = {}
    for name in names:
        function = with_workspaces(made, made[name], kernels)
        plan = plan_memory(made.with_function(function), name, options.memory)
        functions[name] = lower_function(made, function, plan, sites_of(made, function, kernels, constants))
    return ModelParts(target, functions, {k.entry: k for k in kernels.values()}, _needed(functions, constants))


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
    called = {c.function for f in module for c in f.calls.values() if isinstance(c, FunctionCall)}
    found = [f.name for f in module if f.name not in called]
    if not found:
        raise GraphError("the module has no function to compile")
    return found
