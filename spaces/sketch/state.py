"""State of a derivation: a partly scheduled program, the stages still to be visited, and the decisions so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from searchlab.ir.expr import Expr
from searchlab.ir.program import Program
from searchlab.schedule import Schedule
from searchlab.search import Knob, Tails, Task
from searchlab.tactics import Factors, Panel, Tiles
from spaces.common import Intrinsics, KnobFactors


@dataclass(frozen=True)
class DerivationSettings:
    """The inputs of a derivation: the task, and the options of the space."""

    task: Task
    structure: str
    max_inner: int
    tails: Tails = "never"
    intrinsics: Intrinsics = "auto"


@dataclass(frozen=True)
class Fused:
    """A consumer that is computed on each tile of a stage."""

    block: str
    tiles: Tiles


@dataclass(frozen=True)
class State:
    """A program that is being turned into a sketch.

    Stages are visited from output to input; `todo` holds the remaining ones, the next one first.  `steps` names the
    rules applied, `knobs` the open choices and `conditions` what these must satisfy; `tiled`, `fused` and `packed` are
    the stages already placed.  A packed operand has a panel, unless it is laid out for calls of an intrinsic.
    """

    settings: DerivationSettings
    program: Program
    todo: tuple[str, ...]
    steps: tuple[str, ...] = ()
    knobs: tuple[Knob, ...] = ()
    conditions: tuple[Expr, ...] = ()
    tiled: tuple[Tiles, ...] = ()
    fused: tuple[Fused, ...] = ()
    packed: tuple[tuple[str, Panel | None], ...] = ()

    @staticmethod
    def start(settings: DerivationSettings) -> State:
        """The state in which no stage has been visited."""
        program = settings.task.program
        return State(settings, program, tuple(reversed(program.blocks)))

    @property
    def task(self) -> Task:
        """The task being scheduled."""
        return self.settings.task

    @property
    def done(self) -> set[str]:
        """The blocks of stages that rules have scheduled."""
        return {x for t in self.tiled for x in (t.block, t.call) if x is not None} | {f.block for f in self.fused}

    @property
    def name(self) -> str:
        """The steps so far in readable form; `plain` if there are none."""
        return "-".join(self.steps) or "plain"

    def factors(self) -> KnobFactors:
        """A source of tile factors that adds to the knobs of this state."""
        width = self.task.target.lanes("float32")
        return KnobFactors(self.settings.max_inner, self.knobs, self.settings.tails, width)

    def vector_factors(self, factors: KnobFactors) -> Factors:
        """The source of vectors for stages that no rule has tiled: programs of such stages alone are little else."""
        return factors if self.tiled else factors.lanes

    def advance(
        self, s: Schedule, *steps: str, knobs: Sequence[Knob] | None = None, tiles: Tiles | None = None
    ) -> State:
        """The state after a rule has scheduled the next stage; `tiles` are the stage's loops if it was tiled."""
        tiled = self.tiled if tiles is None else (*self.tiled, tiles)
        return replace(self.stay(s, *steps, knobs=knobs), todo=self.todo[1:], tiled=tiled)

    def stay(self, s: Schedule, *steps: str, knobs: Sequence[Knob] | None = None) -> State:
        """The state after a rule has changed the program such that the same stage is visited again."""
        made = self.knobs if knobs is None else tuple(knobs)
        return replace(self, program=s.program, steps=(*self.steps, *steps), knobs=made)
