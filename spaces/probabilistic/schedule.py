"""ProbabilisticSchedule: a schedule whose tile sizes, options and places are drawn, and which records every step.

A number that is drawn is a symbol, so the primitives run once for all its values.  A draw that decides the structure
gives one value per run; `branching.branches` runs the program once for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from searchlab.dtype import BOOL
from searchlab.errors import ScheduleError, SpaceError
from searchlab.ir.expr import ONE, Expr, Var, knob, value_of
from searchlab.ir.program import Program
from searchlab.ir.walk import variables
from searchlab.schedule import Schedule, loops_around
from searchlab.schedule.primitive import find_block, find_loop, leaves_in
from searchlab.search import Knob, Tails, Task, tile_knob
from searchlab.search.rounding import vector_tails
from searchlab.tactics import Panel, Tiles
from spaces.common import Intrinsics
from spaces.probabilistic import knobs
from spaces.probabilistic.instruction import (
    CATEGORICAL,
    GET_BLOCK,
    GET_LOOPS,
    LOCATION,
    NOTE,
    POSTPROCESS,
    REQUIRE,
    ROUNDED_TILE,
    TILE,
    Decision,
    Handle,
    Instruction,
)
from spaces.probabilistic.places import legal_places, numbered_places, place
from spaces.probabilistic.sampling import ROOT
from spaces.probabilistic.stages import Drawn, DrawnLocation, Stages
from spaces.probabilistic.trace import Trace

Choose = Callable[[int], int]  # the number of options -> the one to take
_NAMED = ("loop", "loops", "block", "buffer", "target")  # arguments of primitives that name a part of the program


class ProbabilisticSchedule(Schedule):
    """A Schedule with draws; `trace` holds all that was done, `steps` and `choices` name the structure for people.

    `tails` says where the tiles that tactics ask for may round extents up, `intrinsics` which products rules tile
    around calls of instructions.
    """

    def __init__(
        self,
        program: Program,
        choose: Choose = lambda options: 0,
        task: Task | None = None,
        tails: Tails = "never",
        intrinsics: Intrinsics = "never",
    ) -> None:
        super().__init__(program)
        self.choose = choose
        self._task = task
        self.tails: Tails = tails
        self.intrinsics: Intrinsics = intrinsics
        self.instructions: list[Instruction] = []
        self.decisions: dict[str, Decision] = {}
        self.knobs: dict[str, Knob] = {}
        self.extents: dict[str, Expr] = {}
        self.notes: dict[str, dict[str, Any]] = {}
        self.constraints: list[Expr] = []
        self.steps: list[str] = []
        self.choices: list[str] = []
        self.stages = Stages()
        self.names: dict[str, Handle] = {}
        self._handles = 0

    def copy(self) -> ProbabilisticSchedule:
        """A schedule in the same state that goes its own way."""
        new = type(self)(self.program, self.choose, self._task, self.tails, self.intrinsics)
        new.instructions, new.steps, new.choices = list(self.instructions), list(self.steps), list(self.choices)
        new.constraints = list(self.constraints)
        new.decisions, new.knobs, new.extents = dict(self.decisions), dict(self.knobs), dict(self.extents)
        new.notes = {b: dict(notes) for b, notes in self.notes.items()}
        new.stages = self.stages
        new.names, new._handles = dict(self.names), self._handles
        return new

    @property
    def task(self) -> Task:
        """The task: the workload that is scheduled, and the machine."""
        if self._task is None:
            raise SpaceError("the schedule was made without a task; pass task=... to ProbabilisticSchedule")
        return self._task

    @property
    def trace(self) -> Trace:
        """All steps so far, with decisions about structure."""
        return Trace(tuple(self.instructions), dict(self.decisions))

    # --- draws --------------------------------------------------------------------------------------------------------

    def sample_perfect_tile(
        self, loop: str, n: int, max_innermost: int | None = 64, name: str | None = None
    ) -> list[Expr | None]:
        """n factors of a loop's extent, outermost first, all factorisations equally likely.

        The factors are symbols named after the loop.  An extent that is not constant is not tiled: (None, 1, .., 1).
        """
        return self._sample_tile(TILE, loop, n, max_innermost, name)

    def sample_rounded_tile(
        self, loop: str, n: int, max_innermost: int | None = 64, name: str | None = None
    ) -> list[Expr | None]:
        """The same, with splits among them that round the extent up; `split` gives the loop a tail then.

        Only a constant extent is rounded up.
        """
        return self._sample_tile(ROUNDED_TILE, loop, n, max_innermost, name)

    def _sample_tile(
        self, kind: str, loop: str, n: int, max_innermost: int | None, name: str | None
    ) -> list[Expr | None]:
        extent = find_loop(self.program, loop).extent
        (around,) = self._inputs(("loop", loop))
        name = self._fresh(name or loop, n)
        self.extents[name] = extent
        attributes = (("n", n), ("max_innermost", max_innermost), ("name", name))
        if any(v.role != "knob" for v in variables(extent)):
            self._record(kind, (around,), attributes)
            return [None, *[ONE] * (n - 1)]
        symbols = tuple(knob(f"{name}{d}") for d in range(n))
        drawn = list(self.knobs.values())
        self.knobs[name] = knobs.tile(name, extent, n, max_innermost, drawn, kind == ROUNDED_TILE)
        self.constraints += knobs.product_conditions(extent, symbols)
        self._record(kind, (around,), attributes, symbols)
        return list(symbols)

    def sample_categorical(
        self,
        candidates: Sequence[Any],
        probs: Sequence[float] | None = None,
        name: str = "choice",
        structural: bool | None = None,
    ) -> Any:
        """One of several values: integers give a symbol, anything else (or `structural`) a value per run.

        Use a structural draw where Python must know the value, in an `if` or as a name.
        """
        shares = knobs.checked_shares(name, candidates, probs)
        whole = all(isinstance(c, int) and not isinstance(c, bool) for c in candidates)
        name = self._fresh(name, 0)
        attributes = (("candidates", tuple(candidates)), ("probs", shares), ("name", name))
        if structural or (structural is None and not whole):
            chosen = self.choose(len(candidates))
            self.decisions[name] = Decision(chosen)
            self._record(CATEGORICAL, (), attributes)
            self.choices.append(f"{name}={candidates[chosen]}")
            return candidates[chosen]
        if not whole:
            raise SpaceError(f"sample_categorical '{name}': a symbol stands for integers, not for {list(candidates)}")
        symbol = knob(name)
        self.knobs[name] = knobs.options(name, candidates)
        self._record(CATEGORICAL, (), attributes, (symbol,))
        return symbol

    def sample_compute_location(
        self, block: str, loops: Sequence[str] | None = None, inline: bool = True, name: str | None = None
    ) -> DrawnLocation:
        """Where to compute a stage: inline, at the root or in a loop of its reader, all legal ones equally likely.

        `loops` restricts the loops; without it, those are left out in which the same work would be done repeatedly.
        """
        find_block(self.program, block)
        among = None if loops is None else tuple(loops)
        legal = legal_places(self.program, block, among, inline)
        return self._located(block, among, inline, legal, list(legal)[self.choose(len(legal))], name)

    def each_location(
        self, block: str, loops: Sequence[str], inline: bool
    ) -> Iterator[tuple[ProbabilisticSchedule, DrawnLocation]]:
        """A copy for every location that `sample_compute_location` could give, with it; all are known to be legal."""
        legal = numbered_places(self.program, block, loops, inline)
        for chosen in legal:
            s = self.copy()
            yield s, s._located(block, tuple(loops), inline, legal, chosen, None)

    def _located(
        self,
        block: str,
        loops: tuple[str, ...] | None,
        inline: bool,
        legal: dict[int, str],
        chosen: int,
        name: str | None,
    ) -> DrawnLocation:
        inputs = self._inputs(("block", block), ("loops", loops))
        name = self._fresh(name or f"{block}_place", 0)
        self.decisions[name] = Decision(chosen, tuple(legal))
        found = DrawnLocation(legal[chosen])
        found.handle = self._new_handle()
        self._record(LOCATION, inputs, (("inline", inline), ("name", name)), (found.handle,))
        if chosen != ROOT:
            self.choices.append(f"{block}@{found.strip('<>')}")
        return found

    # --- other instructions -------------------------------------------------------------------------------------------

    def compute_at(self, block: str, loop: str) -> None:
        """The primitive of that name; a drawn location may also be inline or the root."""
        if not isinstance(loop, DrawnLocation):
            return super().compute_at(block, loop)
        (stage,) = self._inputs(("block", block))
        self.program = place(self.program, block, str(loop))
        self._record("compute_at", (stage, ("loop", loop.handle)), ())
        self._forget()

    def split(
        self, loop: str, factors: Sequence[Any], names: Sequence[str] | None = None, tail: bool = False
    ) -> list[str]:
        """The primitive of that name; the outermost factor of a draw for this loop is worked out from the others."""
        if isinstance(factors, Drawn):
            sample = self.sample_rounded_tile if self._rounds_up(loop, factors) else self.sample_perfect_tile
            factors = sample(loop, factors.parts, factors.max_innermost, factors.name)
        own = [i for i in self.instructions if i.tiles and i.outputs == tuple(factors)]
        if own and self.extents[own[0].name] == find_loop(self.program, loop).extent:
            factors = [None, *factors[1:]]
            tail = tail or self.knobs[own[0].name].covers is not None
        return super().split(loop, factors, names, tail)

    def _rounds_up(self, loop: str, wanted: Drawn) -> bool:
        """Whether a draw for the tactics rounds a loop's extent up."""
        known = value_of(find_loop(self.program, loop).extent)
        if wanted.exact or known is None:
            return False
        width = self.task.target.lanes("float32")
        tails = vector_tails(known, width, self.tails) if wanted.vectors else self.tails
        return tile_knob("tile", known, wanted.parts, wanted.max_innermost, tails).covers is not None

    def note(self, block: str, key: str, value: Any) -> None:
        """Leaves a wish for a post-processor with a block; the program does not change."""
        inputs = self._inputs(("block", block))
        where: tuple[tuple[str, Any], ...] = (("value", value),)
        plain = not isinstance(value, Expr)
        self._record(NOTE, inputs if plain else (*inputs, *where), (("key", key), *(where if plain else ())))
        self.notes.setdefault(block, {})[key] = value

    def tiled(self, tiles: Tiles, reader: str | None = None, packed: Sequence[tuple[str, Panel | None]] = ()) -> None:
        """Records the tiles of a stage, which is finished with them, its reader on each tile, and its packed copies."""
        done = self.stages
        fused = done.fused if reader is None else (*done.fused, (reader, tiles))
        self.stages = replace(done, tiled=(*done.tiled, tiles), fused=fused, packed=(*done.packed, *packed))
        self.finished(tiles.block, *([] if reader is None else [reader]))
        if tiles.call is not None:
            self.keep(tiles.call)

    def finished(self, *blocks: str) -> None:
        """No further rule looks at these stages; post-processors still give them threads and vectors."""
        self.stages = replace(self.stages, done=self.stages.done | set(blocks))

    def keep(self, *blocks: str) -> None:
        """Neither rules nor post-processors change these stages any more."""
        self.finished(*blocks)
        self.stages = replace(self.stages, kept=self.stages.kept | set(blocks))

    def require(self, condition: Expr) -> None:
        """Rejects values of symbols for which a condition does not hold."""
        if condition.dtype != BOOL:
            raise SpaceError(f"require: '{condition}' is not a condition")
        self._record(REQUIRE, (("condition", condition),), ())
        self.constraints.append(condition)

    def enter_postprocessing(self) -> None:
        """Begins the tail of instructions that `Trace.simplified` cuts off."""
        self._record(POSTPROCESS, (), ())

    def resume(self, trace: Trace, names: dict[str, Handle]) -> None:
        """Goes on after a trace whose steps have been carried out on the program."""
        self.instructions, self.names = list(trace.instructions), names
        made = (h.number for i in self.instructions for h in i.outputs if isinstance(h, Handle))
        self._handles = max(made, default=-1) + 1

    # --- recording ----------------------------------------------------------------------------------------------------

    def _do(self, primitive: str, /, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        before = self.program
        made = super()._do(primitive, *args, **kwargs)
        after, self.program = self.program, before
        arguments = after.trace[-1].arguments
        inputs = self._inputs(*((k, v) for k, v in arguments if k in _NAMED))
        inputs += tuple((k, v) for k, v in arguments if k not in _NAMED and _symbolic(v))
        attributes = tuple((k, v) for k, v in arguments if k not in _NAMED and not _symbolic(v))
        self.program = after
        self._record(primitive, inputs, attributes, tuple(self._new_handle() for _ in made))
        self._forget()
        self.names.update(zip(made, self.instructions[-1].outputs, strict=True))  # type: ignore[arg-type]
        return made

    def _record(
        self,
        kind: str,
        inputs: tuple[tuple[str, Any], ...],
        attributes: tuple[tuple[str, Any], ...],
        outputs: tuple[Handle | Var, ...] = (),
    ) -> None:
        self.instructions.append(Instruction(kind, inputs, attributes, outputs))

    def _inputs(self, *named: tuple[str, Any]) -> tuple[tuple[str, Any], ...]:
        """Arguments with handles in place of names."""
        return tuple((k, self._refer(v)) for k, v in named)

    def _refer(self, name: Any) -> Any:
        if isinstance(name, tuple):
            return tuple(self._refer(n) for n in name)
        if name not in self.names:
            if name in self.program.blocks:
                self._record(GET_BLOCK, (), (("name", name),), (self._named(name),))
            elif name in self.program.loops:
                self._get_loops(name)
        return self.names.get(name, name)  # an input of the program has the same name in every run

    def _get_loops(self, loop: str) -> None:
        """Looks a loop up by its place around the first block inside it, which holds when names change."""
        block = next(leaves_in(self.program.loops[loop])).name
        stage = self._inputs(("block", block))
        around = loops_around(self.program, block)
        self._record(GET_LOOPS, stage, (), tuple(self._named(lp.name) for lp in around))

    def _named(self, name: str) -> Handle:
        self.names[name] = self._new_handle()
        return self.names[name]

    def _new_handle(self) -> Handle:
        self._handles += 1
        return Handle(self._handles - 1)

    def _forget(self) -> None:
        """Names that are gone may come back for something else."""
        there = {*self.program.loops, *self.program.blocks, *self.program.buffers}
        self.names = {n: h for n, h in self.names.items() if n in there}

    def _fresh(self, wanted: str, parts: int) -> str:
        """A name for a draw whose symbols are all new."""
        if not wanted.isidentifier():
            raise ScheduleError(f"a draw cannot be called '{wanted}'")
        taken = {*self.extents, *self.decisions, *(s for k in self.knobs.values() for s in (k.name, *k.symbols))}
        name, number = wanted, 1
        while taken & {name, *(f"{name}{d}" for d in range(parts))}:
            number += 1
            name = f"{wanted}_{number}_" if parts else f"{wanted}_{number}"
        return name


def _symbolic(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_symbolic(v) for v in value)
    return isinstance(value, Expr) and any(v.role == "knob" for v in variables(value))
