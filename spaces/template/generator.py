"""TemplateSpace: a template is run once per structure, and each run gives a sketch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from searchlab.errors import ScheduleError, SpaceError
from searchlab.schedule import Schedule
from searchlab.search import Points, Sketch, Space, SpaceGenerator, Task
from searchlab.search.wishes import nearest
from spaces.template.config import Config, Decisions, Unsuitable
from spaces.template.registry import CALLS, Template, find, templates
from spaces.template.wishes import wishes

Intrinsics = Literal["auto", "never"]
MOST_STRUCTURES = 256
MOST_SEEDS = 8


class TemplateSpace(SpaceGenerator):
    """Hand-written templates whose knobs span the space, as in AutoTVM.

    `template` is the name of one of the operator's templates or "module:function"; None takes all of them.
    `structures` limits how many structures a template may have.  `intrinsics` says whether templates that call tensor
    intrinsics are among all: "auto" where the target has one for the products of the operator, or "never".
    """

    name = "template"
    version = "1"

    def __init__(
        self, template: str | None = None, structures: int = MOST_STRUCTURES, intrinsics: Intrinsics = "auto"
    ) -> None:
        if intrinsics not in get_args(Intrinsics):
            raise SpaceError(f"intrinsics = {intrinsics!r}: accepted are {', '.join(get_args(Intrinsics))}")
        self.template = template
        self.structures = structures
        self.intrinsics: Intrinsics = intrinsics

    def sketches(self, task: Task) -> Iterator[Sketch]:
        """One sketch for every structure of every template of the operator."""
        reasons: list[str] = []
        found = False
        for made in self._templates(task):
            for sketch in structures(made, task, self.structures, reasons):
                found = True
                yield sketch
        if not found:
            raise SpaceError(f"no template suits {task.workload.label}: {'; '.join(reasons)}")

    def seeds(self, task: Task, space: Space) -> Points:
        """What a person would pick from the known templates; for others, what is most like the default schedule."""
        found = nearest(space, wishes(task), MOST_SEEDS)
        return found if len(found) else super().seeds(task, space)

    def _templates(self, task: Task) -> list[Template]:
        operator = task.workload.name
        if self.template is not None:
            return [find(operator, self.template)]
        known = {n: x for n, x in templates(operator).items() if n != CALLS or self.intrinsics == "auto"}
        if not known:
            raise SpaceError(f"operator '{operator}' has no template; write one with @template(name, '{operator}')")
        return list(known.values())


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
