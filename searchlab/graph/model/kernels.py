"""The kernels of a graph: one for each distinct program with the set of its inputs that are constants."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.dtype import DTYPES
from searchlab.errors import GraphError, SearchLabError
from searchlab.graph.calls import Operand, ProgramCall, Scalar
from searchlab.graph.functions import GraphFunction, GraphModule
from searchlab.graph.passes.workspaces import workspace_bytes
from searchlab.graph.size_table import SizeTable
from searchlab.graph.vm.call_sites import KernelSite
from searchlab.graph.vm.lowering import KernelSites
from searchlab.ir.bfloat16 import stored
from searchlab.ir.expr import ZERO, Expr, maximum, value_of
from searchlab.ir.program import Program
from searchlab.llvm import abi, jit
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.runtime.kernel import CpuArtifact, pack
from searchlab.targets import CpuTarget

Array = npt.NDArray[Any]
Programs = SizeTable[Program]  # the scheduled programs of one plain program, by one of its sizes
# Scheduled programs for a plain one whose inputs of these names are constants; None: the default schedule.
Tuned = Callable[[Program, frozenset[str]], Program | Programs | None]


@dataclass(frozen=True)
class KernelTask:
    """A program of a graph, and the inputs that are constants in all calls that share its kernel.

    `name` is that of the program in the module, and of the function that it computes, if there is one.
    """

    symbol: str
    program: Program
    weights: frozenset[str]
    name: str


TaskKey = tuple[str, frozenset[str]]  # the hash of a program, and its inputs that are constants


def tasks_of(module: GraphModule, functions: Iterable[GraphFunction]) -> dict[TaskKey, KernelTask]:
    """The distinct tasks of all calls, by the hash of the program and the inputs that are constants."""
    found: dict[TaskKey, KernelTask] = {}
    for function in functions:
        for call in function.calls.values():
            if isinstance(call, ProgramCall):
                program = module.program(call.program)
                key = program.hash, weights_of(module, program, call)
                if key not in found:
                    name = re.sub(r"\W", "_", program.name)
                    found[key] = KernelTask(f"kernel{len(found)}_{name}", program, key[1], call.program)
    return found


def weights_of(module: GraphModule, program: Program, call: ProgramCall) -> frozenset[str]:
    """The inputs of a program that a call passes constants for; those whose shape varies cannot be packed ahead."""
    passed = zip(program.inputs, call.args, strict=True)
    fixed = (name for name, operand in passed if isinstance(operand, str) and operand in module.constants)
    return frozenset(n for n in fixed if all(value_of(e) is not None for e in program.buffers[n].shape))


def build_kernels(task: KernelTask, target: CpuTarget, tuned: Programs | None = None) -> SizeTable[CpuArtifact]:
    """The kernels of a task: of its default schedule, or of given programs, each of which is compiled once."""
    if tuned is None:
        return SizeTable((build_kernel(task, target),))
    if tuned.last and tuned.size not in task.program.sizes:
        known = ", ".join(task.program.sizes) or "none"
        raise GraphError(f"the program {task.program.name}: '{tuned.size}' is none of its sizes ({known})")
    built: dict[str, CpuArtifact] = {}
    for program in tuned.entries:
        if program.hash not in built:
            symbol = f"{task.symbol}_{len(built)}" if built else task.symbol
            built[program.hash] = build_kernel(replace(task, symbol=symbol), target, program)
    return tuned.map(lambda program: built[program.hash])


def build_kernel(task: KernelTask, target: CpuTarget, tuned: Program | None = None) -> CpuArtifact:
    """Schedules a task, by rules unless a scheduled program is given, and compiles it."""
    from searchlab.defaults import default_schedule  # with all tactics, which loaded models do without

    try:
        program = default_schedule(task.program, target, sorted(task.weights)) if tuned is None else tuned
        code = generate(lower(program, target), target)
        made = jit.compile_ir(code.ir.replace(f"@{abi.ENTRY}(", f"@{task.symbol}("), target)
    except SearchLabError as e:
        raise GraphError(f"the program {task.program.name}: {e}") from e
    for la in program.layouts:
        if la.buffer not in task.weights:
            raise GraphError(f"the program {program.name} packs {la.buffer} ahead, which is no constant in this graph")
    return CpuArtifact(program, target, made, task.symbol, code.sizes, code.shared, code.private, code.parallel)


@dataclass
class ConstantTable:
    """The constants of a model, as kernels read them: each packed once for each layout that it is needed in."""

    module: GraphModule
    arrays: dict[str, Array] = field(default_factory=dict)

    def plain(self, name: str) -> str:
        """A constant as it is."""
        if name not in self.arrays:
            self.arrays[name] = self.module.constants[name].array
        return name

    def packed(self, name: str, kernel: CpuArtifact, buffer: str) -> str:
        """A constant in the layout of an input of a kernel."""
        layout = next((la for la in kernel.layouts if la.buffer == buffer), None)
        if layout is None:
            return self.plain(name)
        wanted = kernel.program.buffers[buffer]
        text = f"{layout.iters} {layout.source} {layout.predicate} {wanted.shape} {wanted.dtype}"
        key = f"{name}@{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        if key not in self.arrays:
            self.arrays[key] = pack(layout, wanted, self.module.constants[name].array)
        return key

    def number(self, scalar: Scalar) -> str:
        """A number as an array of rank 0."""
        if isinstance(scalar.value, Expr):
            raise GraphError(f"the operand {scalar.value} of a program is a size; programs read sizes themselves")
        key = f"{scalar.dtype}({scalar.value})"
        held = stored(np.asarray(scalar.value), scalar.dtype)
        self.arrays[key] = np.asarray(held, DTYPES[scalar.dtype].storage)
        return key


def kernel_site(
    call: ProgramCall, kernel: CpuArtifact, weights: frozenset[str], constants: ConstantTable
) -> KernelSite:
    """What a call of a kernel needs, with its constants packed."""

    def constant(buffer: str, operand: Operand) -> str | None:
        if isinstance(operand, Scalar):
            return constants.number(operand)
        if buffer in weights and isinstance(operand, str):
            return constants.packed(operand, kernel, buffer)
        return None

    inputs = zip(kernel.program.inputs, call.args, strict=True)
    passed = tuple(constant(buffer, operand) for buffer, operand in inputs)
    return KernelSite(kernel.entry, kernel.sizes, kernel.shared, kernel.private, passed)


def sites_of(
    module: GraphModule,
    function: GraphFunction,
    kernels: Mapping[TaskKey, SizeTable[CpuArtifact]],
    constants: ConstantTable,
) -> dict[str, KernelSites]:
    """The kernels of all calls of a function."""
    sites = {}
    for name, call in function.calls.items():
        if isinstance(call, ProgramCall):
            program = module.program(call.program)
            weights = weights_of(module, program, call)
            made = partial(kernel_site, call, weights=weights, constants=constants)
            sites[name] = kernels[program.hash, weights].map(made)
    return sites


def workspace_of(
    module: GraphModule, kernels: Mapping[TaskKey, SizeTable[CpuArtifact]], threads: int
) -> Callable[[ProgramCall], Expr]:
    """The scratch memory of the kernels of calls, so that it is planned with all other memory."""

    def found(call: ProgramCall) -> Expr:
        program = module.program(call.program)
        table = kernels.get((program.hash, weights_of(module, program, call)))
        if table is None:
            return ZERO
        most, *others = (workspace_bytes(kernel, threads) for kernel in table.entries)
        for other in others:
            most = maximum(most, other)
        return most

    return found
