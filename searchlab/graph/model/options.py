"""What a caller decides about the compilation of a model."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from searchlab.errors import GraphError
from searchlab.graph.passes.memory_plan import Policy
from searchlab.registry import Component, nearest

Fusion = Literal["before", "after", "never"]
_CHOICES = {"fuse": get_args(Fusion), "memory": get_args(Policy)}


@dataclass(frozen=True)
class CompileOptions:
    """How a graph becomes a model.

    `fuse`: whether operators are fused before or after they become programs, or never.  `memory`: the policy by which
    memory is planned.  `libraries`: which libraries are preferred to kernels.  `layouts`: whether channels
    of images lie in blocks of a vector from one operator to the next, in functions with more convolutions than places
    where images would be converted; `winograd`: whether 3x3 convolutions among these are computed by Winograd's
    algorithm where that takes less time.  `threads`: how many threads kernels use, by
    default those of the target.
    """

    fuse: Fusion = "before"
    memory: Policy = "bounds"
    libraries: tuple[Component, ...] = ()
    layouts: bool = True
    winograd: bool = True
    threads: int | None = None

    def __post_init__(self) -> None:
        for name, accepted in _CHOICES.items():
            if getattr(self, name) not in accepted:
                raise GraphError(f"{name} = {getattr(self, name)!r}: expected one of {', '.join(accepted)}")
        if self.threads is not None and (not isinstance(self.threads, int) or self.threads < 1):
            raise GraphError(f"threads = {self.threads!r}: expected a number of at least 1")

    @staticmethod
    def of(options: CompileOptions | dict[str, Any] | None) -> CompileOptions:
        """Options as they are, or from a dictionary of those that differ from the defaults."""
        if isinstance(options, CompileOptions):
            return options
        known = [f.name for f in fields(CompileOptions)]
        for name in options or {}:
            if name not in known:
                raise GraphError(f"there is no option '{name}'{nearest(name, known)}")
        return replace(CompileOptions(), **(options or {}))
