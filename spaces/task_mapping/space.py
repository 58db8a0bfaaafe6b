"""The task-mapping space: which sketches a task gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, get_args

from searchlab.errors import SpaceError
from searchlab.ir.expr import knob
from searchlab.ir.stmt import Block
from searchlab.schedule import Schedule
from searchlab.search import Points, Sketch, Space, SpaceGenerator, Task, menu
from searchlab.search.wishes import nearest
from searchlab.tactics import inline_cheap
from searchlab.targets import CudaTarget
from spaces.common import Intrinsics, check_intrinsics, loops_compete, searched_views
from spaces.task_mapping.anchor import anchor, extent_of, views
from spaces.task_mapping.calls import MappedCalls, call_sketches
from spaces.task_mapping.channels import channel_sketches
from spaces.task_mapping.gemm import Machine, MappedProduct, panels_here, products
from spaces.task_mapping.grid import grid_sketches, grid_wishes
from spaces.task_mapping.parallel_k import cut_sum, cut_view, parts_by_rule, parts_to_try, sizes
from spaces.task_mapping.pixels import as_columns
from spaces.task_mapping.rows import row_sketches
from spaces.task_mapping.windows import window, window_sketches
from spaces.task_mapping.wishes import wishes

ParallelK = Literal["rule", "search", "off"]
MOST_SEEDS = 8


class TaskMappingSpace(SpaceGenerator):
    """Hardware-centric: tiles follow from vectors, registers and caches; whatever does not divide is cut off.

    `parallel_k` says when the sum of a matrix product is shared by cores: by the rule, in all ways, or never.
    `pack_ahead` lets weights be packed before the kernel runs, `unroll_taps` the taps of a convolution be written out.
    `intrinsics` says for which products the innermost atom is a call of an instruction of the target: "auto" those of
    bytes and bfloat16, which then have no loops without calls, "always" also those of float32, or "never" any.
    """

    name: ClassVar[str] = "task-mapping"
    version: ClassVar[str] = "3"
    earlier: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "1": {"unroll_taps": False, "intrinsics": "never"},
        "2": {},  # on CPUs
    }

    def __init__(
        self,
        parallel_k: ParallelK = "rule",
        pack_ahead: bool = True,
        unroll_taps: bool = True,
        intrinsics: Intrinsics = "auto",
    ) -> None:
        if parallel_k not in get_args(ParallelK):
            known = ", ".join(get_args(ParallelK))
            raise SpaceError(f"space '{self.name}': parallel_k = {parallel_k!r}; accepted: {known}")
        self.parallel_k = parallel_k
        self.pack_ahead = pack_ahead
        self.unroll_taps = unroll_taps
        check_intrinsics(intrinsics)
        self.intrinsics: Intrinsics = intrinsics

    def sketches(self, task: Task) -> Iterable[Sketch]:
        """Those of a matrix product, of windows, or of rows, whichever the task's program is."""
        if task.workload.sizes:
            sizes = ", ".join(f"{s}=..." for s in task.workload.sizes)
            raise SpaceError(f"space '{self.name}' needs fixed extents; write workload.at({sizes})")
        if isinstance(task.target, CudaTarget):
            return grid_sketches(task, task.target, self.parallel_k, self.intrinsics)
        s = Schedule(task.program)
        inline_cheap(s)
        product = anchor(s.program)
        if product is not None and (found := list(self._products(task, s, product))):
            return found
        b = window(s.program)
        return [*window_sketches(task, s, b), *row_sketches(task, s)] if b is not None else list(row_sketches(task, s))

    def seeds(self, task: Task, space: Space) -> Points:
        """First choices: tiles that fill the registers, in several sketches."""
        wished = grid_wishes(space) if isinstance(task.target, CudaTarget) else wishes(task)
        return nearest(space, wished, MOST_SEEDS)

    def _products(self, task: Task, s: Schedule, b: Block) -> Iterator[Sketch]:
        weights = task.weights if self.pack_ahead else ()
        calls = searched_views(s.program, b.name, task, self.intrinsics)
        for call in calls:
            yield from call_sketches(MappedCalls(task, weights, s, call))
        if not loops_compete(calls):
            return
        machine = Machine.of(task.target, s.program.buffers[b.store.buffer].dtype)
        product = partial(MappedProduct, task, weights, s, machine=machine)
        found = [v for v in views(b, machine.lanes) if extent_of(b, v.vector) > 1]  # one element needs no lanes
        for view in found[:1]:
            if view.contiguous:
                yield from products(product(view))
                yield from self._parallel_k(product(view))
        for view in [v for v in views(b, 0) if v.contiguous and not v.plain][:1]:
            yield from _columns(product(view))
        apart = [v for v in found if not v.contiguous and v.plain]
        if apart and not (found[0].contiguous and found[0].plain):
            yield from channel_sketches(product(apart[0]), self.unroll_taps)

    def _parallel_k(self, p: MappedProduct) -> Iterator[Sketch]:
        batch, m, n, k = sizes(p.start, p.view)
        cores = p.task.target.threads
        by_rule = parts_by_rule(batch, m, n, k, cores)
        parts = {"off": [], "rule": [by_rule], "search": parts_to_try(k)}[self.parallel_k]
        if cores == 1 or not p.view.plain or parts in ([], [1]):
            return
        s = Schedule(p.start.program)
        partial = cut_sum(s, p.view, knob("parts"))
        view = cut_view(s, p.view, partial)
        yield panels_here(replace(p, start=s, view=view), False, "parallel-k", [menu("parts", parts)])


def _columns(p: MappedProduct) -> Iterator[Sketch]:
    """A convolution as a product with packed columns of pixels."""
    found = as_columns(p.start.program, p.view)
    if found is not None:
        program, view = found
        made = panels_here(replace(p, start=Schedule(program), view=view, own_stage=True), False, "columns")
        assert made.program is not None
        # the trace would not lead from the task's program to this one: the columns were written, not scheduled
        yield replace(made, program=replace(made.program, trace=()))
