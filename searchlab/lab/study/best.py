"""Best: the incumbent of a study, ready to be used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from searchlab.backend import Kernel
from searchlab.ir.program import Program
from searchlab.lab.study.subject import SpaceSubject
from searchlab.search import Points


@dataclass(frozen=True, eq=False)
class Best:
    """The best point, its time, and on demand its program and kernel."""

    subject: SpaceSubject
    point: Points
    seconds: float

    def __str__(self) -> str:
        return f"{self.subject.space.text(self.point)}: {self.seconds * 1e3:.4g} ms"

    @cached_property
    def program(self) -> Program:
        """The scheduled program."""
        return self.subject.program(self.point)

    @cached_property
    def kernel(self) -> Kernel:
        """The compiled program, a callable on arrays."""
        return self.subject.kernel(self.point)
