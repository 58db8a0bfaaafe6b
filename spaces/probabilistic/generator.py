"""ProbabilisticSpace: the generator; its structures come from schedule rules or from a user's program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from searchlab.errors import SpaceError
from searchlab.named import Named
from searchlab.search import Points, Sketch, Space, SpaceGenerator, Tails, Task, check_tails
from searchlab.targets import CudaTarget
from spaces.common import Intrinsics, check_intrinsics
from spaces.common.gpu_seeding import gpu_seeds
from spaces.common.seeding import seeds_of
from spaces.probabilistic.branching import branches
from spaces.probabilistic.gpu_rules import GPU_RULES
from spaces.probabilistic.mutators import DEFAULT_MUTATORS, Mutator
from spaces.probabilistic.postprocess import DEFAULT_POSTPROCESSORS, Postprocessor
from spaces.probabilistic.rules import DEFAULT_RULES
from spaces.probabilistic.schedule import ProbabilisticSchedule
from spaces.probabilistic.schedule_rule import ScheduleRule
from spaces.probabilistic.space import TraceSpace
from spaces.probabilistic.structures import Structure, apply_rules, postprocessed, structures

UserProgram = Callable[[ProbabilisticSchedule], Any]
T = TypeVar("T")


class ProbabilisticSpace(SpaceGenerator):
    """A program that draws random variables: schedule rules by default, or your own.

    On GPUs the default rules bind tiles to blocks and threads.

    `rules`, `mutators` and `postprocessors` are objects or "module:Class" names; `program` is a function of a
    ProbabilisticSchedule, or its "module:function" name, that takes the place of the rules.  `most` is a limit on the
    number of structures, and `tails` says whether the tiles of rules may round extents up: "auto" where few sizes
    divide them, and in programs of rows where no whole number of vectors does, "always" or "never".  `intrinsics` says
    which products rules tile around calls of the target's instructions: "auto" those of bytes and bfloat16, which then
    have no structures of plain loops, "always" those of float32 too, beside their other structures, or "never".
    """

    name: ClassVar[str] = "probabilistic"
    version: ClassVar[str] = "2"
    earlier: ClassVar[Mapping[str, Mapping[str, Any]]] = {"1": {"intrinsics": "never"}}

    def __init__(
        self,
        rules: Sequence[ScheduleRule | str] = DEFAULT_RULES,
        mutators: Sequence[Mutator | str] = DEFAULT_MUTATORS,
        postprocessors: Sequence[Postprocessor | str] = DEFAULT_POSTPROCESSORS,
        program: UserProgram | str | None = None,
        most: int = 256,
        tails: Tails = "auto",
        intrinsics: Intrinsics = "auto",
    ) -> None:
        check_tails(tails)
        check_intrinsics(intrinsics)
        self.rules = _made(rules, ScheduleRule, "schedule rule")  # type: ignore[type-abstract]
        self.gpu_rules = GPU_RULES if rules is DEFAULT_RULES else self.rules
        self.mutators = _made(mutators, Mutator, "mutator")  # type: ignore[type-abstract]
        self.postprocessors = _made(postprocessors, Postprocessor, "post-processor")  # type: ignore[type-abstract]
        self.program: UserProgram | None = _program(program) if isinstance(program, str) else program
        self.most = most
        self.tails: Tails = tails
        self.intrinsics: Intrinsics = intrinsics

    def space(self, task: Task) -> TraceSpace:
        """The space of all structures, whose points are traces too."""
        return TraceSpace(task, self.structures(task), self.name, self.version, self.mutators)

    def seeds(self, task: Task, space: Space) -> Points:
        """Tiles and vectors that suit the target; for structures of a user's program, as for every space."""
        found = gpu_seeds(space) if isinstance(task.target, CudaTarget) else seeds_of(task, space)
        return found if len(found) else super().seeds(task, space)

    def sketches(self, task: Task) -> list[Sketch]:
        """The sketches of all structures."""
        return [s.sketch for s in self.structures(task)]

    def structures(self, task: Task) -> list[Structure]:
        """All structures of a task, in the order in which they were found."""
        found = structures(postprocessed(self.schedules(task), self.postprocessors))
        if not found:
            raise SpaceError(f"space '{self.name}': every structure of {task.workload.label} was rejected")
        return found

    def schedules(self, task: Task) -> list[ProbabilisticSchedule]:
        """The schedules of the rules or the user's program, before post-processing."""
        start = ProbabilisticSchedule(task.program, task=task, tails=self.tails, intrinsics=self.intrinsics)
        if self.program is not None:
            return self._run(start, self.program)
        if task.workload.sizes:
            label, sizes = task.workload.label, ", ".join(task.workload.sizes)
            raise SpaceError(f"space '{self.name}': {label} has run-time sizes ({sizes}); fix them with at()")
        rules = self.gpu_rules if isinstance(task.target, CudaTarget) else self.rules
        return apply_rules(start, rules, self.most)

    def _run(self, start: ProbabilisticSchedule, program: UserProgram) -> list[ProbabilisticSchedule]:
        def body(s: ProbabilisticSchedule) -> Iterable[ProbabilisticSchedule]:
            program(s)
            return [s]

        found, rejected = branches(start, body, self.most)
        if not found:
            raise SpaceError(f"space '{self.name}': every run of the program was rejected; the first: {rejected[0]}")
        return found


def _program(path: str) -> UserProgram:
    return Named(path, f"program '{path}'", SpaceError).function(ProbabilisticSchedule, takes=("s",))


def _made(given: Sequence[T | str], base: type[T], what: str) -> tuple[T, ...]:
    """Objects from objects or import paths; `what` calls them in messages."""
    made = [Named(g, f"{what} '{g}'", SpaceError).instance(base) if isinstance(g, str) else g for g in given]
    for m in made:
        if not isinstance(m, base):
            raise SpaceError(f"{m!r} is not a {what}; accepted: {base.__name__} objects and 'module:Class'")
    return tuple(made)
