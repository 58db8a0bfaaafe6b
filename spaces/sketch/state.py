"""State of a derivation: a partly scheduled program, the stages still to be visited, and what was decided so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from searchlab.ir.program import Program
from searchlab.schedule import Schedule
from searchlab.search import Knob, Task
from searchlab.tactics import Panel, Tiles
from spaces.common import KnobFactors


@dataclass(frozen=True)
class DerivationSettings:
    """The inputs of a derivation: the task, and the options of the space."""

    task: Task
    structure: str
    max_inner: int


@dataclass(frozen=True)
class Fused:
    """A reader that runs on each tile of a stage."""

    block: str
    tiles: Tiles


@dataclass(frozen=True)
class State:
    """A program on its way to a sketch.

    Stages are visited from output to input; `todo` holds those that are left, the next one first.  `steps` name what
    was done, `knobs` what was left open; `tiled`, `fused` and `packed` are the stages that annotation finds placed.
    """

    settings: DerivationSettings
    program: Program
    todo: tuple[str, ...]
    steps: tuple[str, ...] = ()
    knobs: tuple[Knob, ...] = ()
    tiled: tuple[Tiles, ...] = ()
    fused: tuple[Fused, ...] = ()
    packed: tuple[tuple[str, Panel], ...] = ()

    @staticmethod
    def start(settings: DerivationSettings) -> State:
        """The state in which no stage has been visited."""
        program = settings.task.program
        return State(settings, program, tuple(reversed(program.blocks)))

    @property
    def task(self) -> Task:
        """The task that is scheduled."""
        return self.settings.task

    @property
    def name(self) -> str:
        """The steps so far, for people; `plain` without any."""
        return "-".join(self.steps) or "plain"

    def factors(self) -> KnobFactors:
        """A source of tile factors that goes on from the knobs of this state."""
        return KnobFactors(self.settings.max_inner, self.knobs)

    def advance(
        self, s: Schedule, *steps: str, knobs: Sequence[Knob] | None = None, tiles: Tiles | None = None
    ) -> State:
        """The state after a rule has dealt with the next stage; `tiles` are the loops it gave the stage, if any."""
        tiled = self.tiled if tiles is None else (*self.tiled, tiles)
        return replace(self.stay(s, *steps, knobs=knobs), todo=self.todo[1:], tiled=tiled)

    def stay(self, s: Schedule, *steps: str, knobs: Sequence[Knob] | None = None) -> State:
        """The state after a rule has changed the program, but wants the same stage to be visited again."""
        made = self.knobs if knobs is None else tuple(knobs)
        return replace(self, program=s.program, steps=(*self.steps, *steps), knobs=made)
