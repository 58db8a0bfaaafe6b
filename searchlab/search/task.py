"""Task: the workload to optimise, and the machine to optimise it for."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.defaults import default_schedule
from searchlab.ir.program import Program
from searchlab.targets import Target
from searchlab.workloads import Workload


@dataclass(frozen=True)
class Task:
    """A workload on a target, for which a space is generated."""

    workload: Workload
    target: Target

    @property
    def program(self) -> Program:
        """The plain computation, before any schedule."""
        return self.workload.program

    @property
    def weights(self) -> tuple[str, ...]:
        """Inputs that may be stored in another layout ahead of time."""
        return self.workload.weights

    @property
    def default(self) -> Program:
        """The default schedule, which needs no search and which searches are compared with."""
        weights = self.weights if self.workload.default_packs else ()
        return default_schedule(self.program, self.target, weights)

    def __str__(self) -> str:
        return f"{self.workload.label} on {self.target.name}"
