"""tune_family: a family from its text to one callable for all of its sizes.

tuned = searchlab.tune_family("matmul:m=dyn(1..512),n=768,k=768", trials=256)
print(tuned.table.regret, tuned.table.intervals)
tuned.kernel(a, b)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from searchlab.backend import Array, Kernel, compile
from searchlab.errors import KernelError
from searchlab.ir.expr import Var
from searchlab.ir.program import Program
from searchlab.lab.auto import AUTO
from searchlab.lab.study.family_study import FamilyStudy
from searchlab.lab.study.ledger import Ledger
from searchlab.lab.study.scheduler import Policy
from searchlab.lab.study.size_dispatch import FamilyTable
from searchlab.lab.study.study import Study, StudyOptions
from searchlab.measure import LocalMeasurer
from searchlab.registry import Component
from searchlab.search import CostModel, SpaceGenerator, Task
from searchlab.targets import Target, detect
from searchlab.workloads import Family, read_family


class FamilyKernel:
    """The compiled programs of a table as one function, which runs the one that is meant for the size of its inputs."""

    def __init__(self, family: Family, table: FamilyTable, kernels: Sequence[Kernel], bound: frozenset[str]) -> None:
        self.family, self.table = family, table
        self._kernels, self._bound = tuple(kernels), bound
        plain = family.workload.program
        self._inputs = tuple(name for name in plain.inputs if name not in bound)
        self._at = [
            (n, axis)
            for n, name in enumerate(self._inputs)
            for axis, extent in enumerate(plain.buffers[name].shape)
            if isinstance(extent, Var) and extent.name == family.size
        ]

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """The outputs: one array, or a tuple of several."""
        return self.kernel_for(self.size_of(arrays))(*arrays, out=out)

    def kernel_for(self, size: int) -> Kernel:
        """The kernel that is run for a size."""
        return self._kernels[self.table.program_for(size)]

    def size_of(self, arrays: Sequence[Any]) -> int:
        """The run-time size, from the shapes of the inputs."""
        if len(arrays) != len(self._inputs):
            names = ", ".join(self._inputs)
            raise KernelError(f"{self.family.label} takes {len(self._inputs)} inputs ({names}), got {len(arrays)}")
        for n, axis in self._at:
            shape = np.shape(arrays[n])
            if axis < len(shape):
                return int(shape[axis])
        raise KernelError(f"{self.family.label}: no input has the size {self.family.size}")

    def bind(self, **constants: Any) -> FamilyKernel:
        """The function with constant inputs fixed: they are packed now, for each of the programs."""
        bound = [kernel.bind(**constants) for kernel in self._kernels]
        return FamilyKernel(self.family, self.table, bound, self._bound | constants.keys())


@dataclass(frozen=True, eq=False)
class TunedFamily:
    """What tuning a family gives: the table with its times, and the programs in its order."""

    family: Family
    target: Target
    table: FamilyTable
    programs: tuple[Program, ...]

    @cached_property
    def kernel(self) -> FamilyKernel:
        """All programs compiled, as one function."""
        kernels = [compile(program, self.target) for program in self.programs]
        return FamilyKernel(self.family, self.table, kernels, frozenset())

    def check(self, size: int, seed: int = 0) -> str | None:
        """None if the result for random inputs of a size is what numpy computes, else what is wrong."""
        workload = self.family.at(size)
        inputs: Mapping[str, Array] = workload.inputs(seed)
        return workload.check(self.kernel(*(inputs[name] for name in workload.program.inputs)), inputs)


def tune_family(
    family: Family | str,
    target: Target | None = None,
    trials: int = 256,
    space: Component | SpaceGenerator = "sketch",
    model: Component | CostModel | None = AUTO,
    strategy: Component = AUTO,
    scheduler: Policy = "gradient",
    seconds: float = 1.0,
    **options: Unpack[StudyOptions],
) -> TunedFamily:
    """Searches a family at its representative sizes, with `trials` for each on average, and makes its table.

    `seconds` is the time of each of the final races, of which there are two for each of the sizes.  `options` are those
    of a study, such as `seed` and `batch`; with a `store` and a `cell`, tuning that was interrupted takes its earlier
    measurements from there.
    """
    made = read_family(family) if isinstance(family, str) else family
    machine = target or detect()
    given = options.get("measurer")
    measurer = LocalMeasurer() if given is None else given
    shared: StudyOptions = {**options, "measurer": measurer, "ledger": options.get("ledger") or Ledger()}
    try:
        tasks = [Task(made.at(size), machine) for size, _ in made.representatives]
        studies = [Study(task, space, model, strategy, **shared) for task in tasks]
        search = FamilyStudy(made, studies, scheduler, options.get("seed", 0))
        search.optimize(trials * len(studies))
        search.compare()
    finally:
        if given is None:
            measurer.close()  # the race needs its cores
    search.finish(seconds, 2.5 * seconds)
    return TunedFamily(made, machine, search.table, search.programs)
