"""The task-mapping space: which sketches a task gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from searchlab.errors import SpaceError
from searchlab.schedule import Schedule
from searchlab.search import Sketch, SpaceGenerator, Task
from spaces.task_mapping.anchor import anchor, views
from spaces.task_mapping.channels import channel_sketches
from spaces.task_mapping.gemm import Machine, Product, products
from spaces.task_mapping.rows import inline_cheap, row_sketches


class TaskMappingSpace(SpaceGenerator):
    """Hardware-centric: tiles follow from vectors, registers and caches; whatever does not divide is cut off."""

    name: ClassVar[str] = "task-mapping"
    version: ClassVar[str] = "1"

    def sketches(self, task: Task) -> Iterable[Sketch]:
        if task.workload.sizes:
            sizes = ", ".join(task.workload.sizes)
            raise SpaceError(f"space '{self.name}' needs fixed extents; fix {sizes} with workload.at({sizes}=...)")
        s = Schedule(task.program)
        inline_cheap(s)
        found = list(_contractions(task, s))
        return found or list(row_sketches(task, s))


def _contractions(task: Task, s: Schedule) -> Iterator[Sketch]:
    b = anchor(s.program)
    if b is None:
        return
    machine = Machine.of(task.target, s.program.buffers[b.store.buffer].dtype)
    found = views(b, machine.lanes)
    for view in [v for v in found if v.contiguous][:1]:
        yield from products(Product(task, s, view, machine))
    for view in [v for v in found if not v.contiguous and v.plain][:1]:
        if not found[0].contiguous or not found[0].plain:
            yield from channel_sketches(Product(task, s, view, machine))
