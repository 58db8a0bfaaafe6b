"""Example, a search space for searchlab: the programs that a search may choose from."""

from __future__ import annotations

from collections.abc import Iterator

from searchlab.ir import knob
from searchlab.ir.expr import value_of
from searchlab.schedule import Schedule
from searchlab.search import Sketch, SpaceGenerator, Task, menu, split_knob


class ExampleSpace(SpaceGenerator):
    """Tiles the last stage: parallel outer loops, then reductions, then a vectorised tile."""

    name = "example"
    version = "1"  # change it when the same values no longer give the same programs

    # Options are parameters with a default; experiments set them: {example: {largest: 16}}.
    def __init__(self, largest: int = 64) -> None:
        self.largest = largest

    def sketches(self, task: Task) -> Iterator[Sketch]:
        """The sketches with their knobs: primitives run once, here; searches only choose integers."""
        s = Schedule(task.program)
        *_, block = s.program.blocks.values()
        loops = s.loops(block.name)
        space = [name for name, it in zip(loops, block.iters, strict=True) if it.kind == "space"]
        knobs, outer, inner = [], [], []
        for name in space:
            knobs.append(split_knob(name, value_of(s.program.loops[name].extent) or 1, 2, self.largest))
            split = s.split(name, [None, knob(f"{name}1")])
            outer.append(split[0])
            inner.append(split[1])
        s.reorder(*outer, *(name for name in loops if name not in space), *inner)
        s.vectorize(inner[-1])
        s.parallel(outer[0])
        s.annotate(block.name, "unroll_up_to", knob("unroll"))
        yield Sketch("tiles", (*knobs, menu("unroll", [1, 16, 64, 256])), (), s.program)
