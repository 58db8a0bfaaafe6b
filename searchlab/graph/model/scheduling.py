"""The schedule of a kernel: what a search found for it; or its product scheduled alone, and fused afterwards."""

from __future__ import annotations

from dataclasses import replace

from searchlab.errors import SearchLabError
from searchlab.graph.annotations import TensorType
from searchlab.graph.functions import GraphModule
from searchlab.graph.model.kernels import KernelTask, Programs, Tuned
from searchlab.graph.passes.post_fusion import schedule_then_fuse
from searchlab.graph.size_table import SizeTable
from searchlab.ir.program import Program
from searchlab.ir.rename import Renaming, rename
from searchlab.targets import CpuTarget


def scheduled(
    module: GraphModule, task: KernelTask, target: CpuTarget, tuned: Tuned | None, after: bool
) -> Programs | None:
    """The scheduled programs of a task; None: the default schedule of the task as a whole.

    With `after`, a group that no search knows is fused after its product was scheduled, where that is possible.
    """
    found = _known(tuned, task.program, task.weights)
    if found is not None or not after or task.name not in module.functions:
        return found
    try:
        return _fused_after(module, task, target, tuned)
    except SearchLabError:  # its schedule has no place for the rest of the group
        return None


def _known(tuned: Tuned | None, program: Program, weights: frozenset[str]) -> Programs | None:
    found = tuned(program, weights) if tuned else None
    return SizeTable((found,)) if isinstance(found, Program) else found


def _fused_after(module: GraphModule, task: KernelTask, target: CpuTarget, tuned: Tuned | None) -> Programs:
    from searchlab.defaults import default_schedule  # with all tactics, which loaded models do without

    function = module[task.name]
    given = [p.name for p in function.parameters if isinstance(p.annotation, TensorType)]
    names = dict(zip(given, task.program.inputs, strict=True))

    def product_schedules(product: Program) -> Programs:
        weights = frozenset(n for n in product.inputs if names.get(n) in task.weights)
        return _known(tuned, product, weights) or SizeTable((default_schedule(product, target, sorted(weights)),))

    def renamed(whole: Program) -> Program:
        inner = set(whole.buffers) - set(given)
        apart = {n: f"{n}_inner" for n in inner & set(names.values())}
        return rename(whole, Renaming(buffers=names | apart))

    tables: list[Programs] = []
    made: list[Program] = []

    def schedule(product: Program) -> Program:
        if not tables:
            tables.append(product_schedules(product))
        return tables[0].entries[len(made)]

    while not tables or len(made) < len(tables[0].entries):
        made.append(renamed(schedule_then_fuse(module, function, schedule)))
    return replace(tables[0], entries=tuple(made))
