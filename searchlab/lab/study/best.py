"""Best: what a study gives its user to take home, ready to be used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from searchlab.backend import Kernel
from searchlab.ir.program import Program
from searchlab.lab.study.fallback import Origin
from searchlab.lab.study.subject import SpaceSubject
from searchlab.search import Points


@dataclass(frozen=True, eq=False)
class Best:
    """The best point of a search, and on demand its program and kernel.

    Where the final race was won by the default schedule (`origin`), the time, the program and the kernel are those of
    the default schedule.
    """

    subject: SpaceSubject
    point: Points
    seconds: float
    origin: Origin = "search"

    def __str__(self) -> str:
        what = self.subject.space.text(self.point) if self.origin == "search" else "default schedule"
        return f"{what}: {self.seconds * 1e3:.4g} ms"

    @cached_property
    def program(self) -> Program:
        """The scheduled program."""
        return self.subject.program(self.point) if self.origin == "search" else self.subject.default

    @cached_property
    def kernel(self) -> Kernel:
        """The compiled program, a callable on arrays."""
        return self.subject.kernel(self.program)
