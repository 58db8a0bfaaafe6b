"""TemplateSpace: a template is run once per structure, and each run gives a sketch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from searchlab.errors import ScheduleError, SpaceError
from searchlab.schedule import Schedule
from searchlab.search import Points, Sketch, Space, SpaceGenerator, Task
from searchlab.search.wishes import nearest
from searchlab.targets import CudaTarget
from spaces.common import Intrinsics, check_intrinsics
from spaces.common.gpu_seeding import gpu_seeds
from spaces.template.config import Config, Decisions, Unsuitable
from spaces.template.registry import CALLS, GPU_CALLS, KERNELS, Template, find, templates
from spaces.template.wishes import wishes

# templates that call intrinsics, by the values of the option that they need
TENSORIZED = {CALLS: ("auto", "always"), GPU_CALLS: ("auto", "always"), KERNELS: ("always",)}
INSTEAD = (CALLS, GPU_CALLS)  # of all others that come with this package: loops are no match for calls
MOST_STRUCTURES = 256
MOST_SEEDS = 8


class TemplateSpace(SpaceGenerator):
    """Hand-written templates whose knobs span the space, as in AutoTVM.

    `template` is the name of one of the operator's templates or "module:function"; None takes all of them.
    `structures` limits how many structures a template may have.  `intrinsics` says which products call the instructions
    of the target if all templates are taken: "auto" those of bytes and bfloat16 (on GPUs float16, too),
    which then have no loops without calls, "always" also those of float32, or "never" any.
    """

    name: ClassVar[str] = "template"
    version: ClassVar[str] = "2"
    earlier: ClassVar[Mapping[str, Mapping[str, Any]]] = {"1": {"intrinsics": "never"}}

    def __init__(
        self, template: str | None = None, structures: int = MOST_STRUCTURES, intrinsics: Intrinsics = "auto"
    ) -> None:
        check_intrinsics(intrinsics)
        self.template = template
        self.structures = structures
        self.intrinsics: Intrinsics = intrinsics

    def sketches(self, task: Task) -> Iterator[Sketch]:
        """One sketch for every structure of every template of the operator."""
        reasons: list[str] = []
        found, called = False, False
        for made in self._templates(task):
            if called and made.ours:
                continue
            for sketch in structures(made, task, self.structures, reasons):
                found, called = True, called or made.name in INSTEAD
                yield sketch
        if not found:
            raise SpaceError(f"no template suits {task.workload.label}: {'; '.join(reasons)}")

    def seeds(self, task: Task, space: Space) -> Points:
        """What a person would pick from the known templates; for others, what is most like the default schedule."""
        gpu = isinstance(task.target, CudaTarget)
        found = gpu_seeds(space) if gpu else nearest(space, wishes(task), MOST_SEEDS)
        return found if len(found) else super().seeds(task, space)

    def _templates(self, task: Task) -> list[Template]:
        operator = task.workload.name
        if self.template is not None:
            return [find(operator, self.template, task.target.kind)]
        wanted = templates(operator, task.target.kind).items()
        known = {n: x for n, x in wanted if self.intrinsics in TENSORIZED.get(n, (self.intrinsics,))}
        if not known:
            how = f"write one with @template(name, '{operator}', kind='{task.target.kind}')"
            raise SpaceError(f"operator '{operator}' has no template for {task.target.kind} targets; {how}")
        return sorted(known.values(), key=lambda x: x.name not in INSTEAD)


def structures(made: Template, task: Task, most: int, reasons: list[str]) -> Iterator[Sketch]:
    """A sketch for every combination of the structural choices that a template meets, depth first.

    Why structures were left out is added to `reasons`.
    """
    before: tuple[int, ...] | None = ()
    count = 0
    while before is not None:
        count += 1
        if count > most:
            raise SpaceError(
                f"template '{made.name}' has more than {most} structures for {task.workload.label}: "
                "make fewer choices, or pass a larger `structures`"
            )
        decisions = Decisions(before)
        try:
            yield _run(made, task, decisions)
        except Unsuitable as e:
            reasons.append(f"{_name(made, decisions)}: {e}")
        before = decisions.next()


def _run(made: Template, task: Task, decisions: Decisions) -> Sketch:
    s = Schedule(task.program)
    cfg = Config(s, decisions)
    try:
        made(cfg, s, task)
    except (ScheduleError, SpaceError) as e:
        raise SpaceError(f"template '{_name(made, decisions)}' on {task.workload.label}: {e}") from e
    if not cfg.knobs:
        raise SpaceError(f"template '{_name(made, decisions)}' defines no knob; add one with cfg.split or cfg.knob")
    return Sketch(_name(made, decisions), tuple(cfg.knobs), tuple(cfg.conditions), s.program)


def _name(made: Template, decisions: Decisions) -> str:
    return "/".join([made.name, *(f"{name}={label}" for name, _, _, label in decisions.made)])
