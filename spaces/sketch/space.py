"""SketchSpace: a space generator that derives sketches by rules and annotates them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from searchlab.errors import SpaceError
from searchlab.named import Named
from searchlab.search import Points, Sketch, Space, SpaceGenerator, Tails, Task, check_tails
from searchlab.targets import CudaTarget
from spaces.common import Intrinsics, check_intrinsics, check_structure
from spaces.common.gpu_seeding import gpu_seeds
from spaces.common.seeding import seeds_of
from spaces.sketch.annotate import annotate
from spaces.sketch.derive import derive
from spaces.sketch.gpu_rules import GPU_RULES, finish_for_gpu
from spaces.sketch.rule import Rule
from spaces.sketch.rules import DEFAULT_RULES
from spaces.sketch.state import DerivationSettings, State
from spaces.sketch.winograd_sketches import winograd_seeds, winograd_sketches

STRUCTURE = "SSRSRS"
GPU_STRUCTURE = "SSSRRSRS"


class SketchSpace(SpaceGenerator):
    """Structures from derivation rules; the search chooses tile sizes, unrolling and compute locations.

    On GPUs the rules bind tiles to blocks and threads, and the default structure is SSSRRSRS.
    `rules` are objects or "module:Class" names, tried in order on every stage; `more_rules` precede the default ones.
    Without `places` the search does not place stages: those that no rule has placed are computed at the root.
    `tails` says whether tiles may round extents up: "auto" where few sizes divide them, and in
    programs of rows where no whole number of vectors does, "always" or "never".
    `intrinsics` says which products call the instructions of the target: "auto" those of bytes and bfloat16, which then
    have no structures of plain loops, "always" those of float32 too, beside their other structures, or "never".
    """

    name: ClassVar[str] = "sketch"
    version: ClassVar[str] = "2"
    earlier: ClassVar[Mapping[str, Mapping[str, Any]]] = {"1": {"intrinsics": "never"}}

    def __init__(
        self,
        rules: Sequence[Rule | str] = DEFAULT_RULES,
        structure: str = STRUCTURE,
        max_inner: int = 64,
        more_rules: Sequence[Rule | str] = (),
        places: bool = True,
        tails: Tails = "auto",
        intrinsics: Intrinsics = "auto",
    ) -> None:
        check_structure(structure)
        check_tails(tails)
        check_intrinsics(intrinsics)
        if max_inner < 1:
            raise SpaceError(f"max_inner = {max_inner}: the largest innermost factor is at least 1")
        self.rules = tuple(_rule(r) for r in (*more_rules, *rules))
        own = tuple(_rule(r) for r in more_rules)
        self.gpu_rules = (*own, *GPU_RULES) if rules is DEFAULT_RULES else self.rules
        self.structure = structure
        self.max_inner = max_inner
        self.places = places
        self.tails: Tails = tails
        self.intrinsics: Intrinsics = intrinsics

    def derived(self, task: Task) -> list[State]:
        """The states derived by the rules, before compute locations are chosen: a handful for every program."""
        if task.workload.sizes:
            sizes = ", ".join(task.workload.sizes)
            raise SpaceError(f"space 'sketch': {task.workload.label} has run-time sizes ({sizes}); fix them with at()")
        gpu = isinstance(task.target, CudaTarget)
        structure = GPU_STRUCTURE if gpu and self.structure == STRUCTURE else self.structure
        if gpu and not structure.startswith("SSSR"):
            accepted = "SSSR (blocks, virtual threads, threads, steps of the sum) and further levels"
            raise SpaceError(f"space 'sketch': structure '{structure}' on a GPU; accepted: {accepted}")
        settings = DerivationSettings(task, structure, self.max_inner, self.tails, self.intrinsics)
        return derive(State.start(settings), self.gpu_rules if gpu else self.rules)

    def sketches(self, task: Task) -> Iterator[Sketch]:
        """The derived sketches, each with all compute locations of the stages that no rule has placed."""
        names: set[str] = set()
        gpu = isinstance(task.target, CudaTarget)
        whole = [] if gpu or self.rules != DEFAULT_RULES else list(winograd_sketches(task))
        yield from whole
        for state in () if whole else self.derived(task):
            for sketch in [finish_for_gpu(state)] if gpu else annotate(state, self.places):
                if sketch.name in names:
                    raise SpaceError(f"space 'sketch': two sketches are called '{sketch.name}'; rules name their steps")
                names.add(sketch.name)
                yield sketch

    def seeds(self, task: Task, space: Space) -> Points:
        """Tiles and vectors that suit the target; where rules made no known structure, as for every space."""
        if space.sketches[0].name.startswith("winograd"):
            return winograd_seeds(task, space)
        found = gpu_seeds(space) if isinstance(task.target, CudaTarget) else seeds_of(task, space)
        return found if len(found) else super().seeds(task, space)


def _rule(given: Rule | str) -> Rule:
    if isinstance(given, Rule):
        return given
    if not isinstance(given, str):
        raise SpaceError(f"rule {given!r} is a {type(given).__name__}; accepted: Rule objects and 'module:Class'")
    return Named(given, f"rule '{given}'", SpaceError).instance(Rule)  # type: ignore[type-abstract]
