"""Replay: the instructions of a trace on a fresh program, with old decisions reused, repaired or drawn anew."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from searchlab.errors import ConstraintError, IRError, ScheduleError, SpaceError, TraceError
from searchlab.ir.expr import FALSE, Const, Expr, Var, value_of
from searchlab.ir.program import Program
from searchlab.ir.walk import substitute, variables
from searchlab.schedule import PRIMITIVES, loops_around
from spaces.probabilistic import knobs, sampling
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
from spaces.probabilistic.places import legal_places, place
from spaces.probabilistic.schedule import ProbabilisticSchedule
from spaces.probabilistic.trace import Trace

_KEPT = 512  # structures that are not run again
_MISFITS = (KeyError, TypeError, ValueError, AttributeError, IRError)
_performed: dict[Any, ProbabilisticSchedule] = {}


@dataclass(frozen=True)
class Replayed:
    """A concrete program and the trace that leads to it, every draw decided."""

    program: Program
    trace: Trace


def replay(program: Program, trace: Trace, rng: np.random.Generator | None = None) -> Replayed:
    """Runs a trace on the program it was made for or on one like it; draws without a decision need `rng`.

    Raises ScheduleError (or its ConstraintError) where the trace does not fit: such a candidate is rejected.
    """
    s = perform(program, trace, rng)
    decided, values = decide(s, trace, rng)
    for c in s.constraints:
        if substitute(c, {v: Const(values[v.name]) for v in variables(c)}) == FALSE:
            raise ConstraintError(f"{program.name}: the drawn values break '{c}'")
    used = {v.name for v in s.program.symbols} | {v.name for a in s.program.assumptions for v in variables(a)}
    return Replayed(s.program.substitute({n: v for n, v in values.items() if n in used}), decided)


def perform(program: Program, trace: Trace, rng: np.random.Generator | None = None) -> ProbabilisticSchedule:
    """The schedule in the state after a trace, numbers still symbols; structures are run once and kept."""
    known = all(i.name in trace.decisions for i in trace.draws() if i.structural)
    key = (program.hash, *trace.structure)
    if known and key in _performed:
        return _performed[key].copy()
    s = _Run(program, trace, rng).schedule()
    if known:
        if len(_performed) >= _KEPT:
            _performed.pop(next(iter(_performed)))
        _performed[key] = s.copy()
    return s


def decide(s: ProbabilisticSchedule, trace: Trace, rng: np.random.Generator | None) -> tuple[Trace, dict[str, int]]:
    """The trace with all its draws decided, and the values of its symbols."""
    decisions, values = {**trace.decisions, **s.decisions}, dict[str, int]()
    for i in trace.draws():
        if i.structural:
            continue
        old = trace.decisions[i.name].value if i.name in trace.decisions else None
        if i.tiles:
            decided = _tile(i, s.extents[i.name], values, old, rng)
            given = decided.value
        else:
            decided = Decision(_option(i, old, rng))
            given = (i.arguments["candidates"][decided.value],)
        decisions[i.name] = decided
        values.update({v.name: x for v, x in zip(i.outputs, given, strict=False)})  # type: ignore[arg-type, union-attr]
    return Trace(trace.instructions, decisions), values


def _tile(i: Instruction, extent: Expr, values: dict[str, int], old: Any, rng: np.random.Generator | None) -> Decision:
    parts, cap = i.arguments["n"], i.arguments["max_innermost"]
    mapping = {v: Const(values[v.name]) for v in variables(extent) if v.name in values}
    known = value_of(substitute(extent, mapping) if mapping else extent)
    if known is None:
        return Decision(sampling.untiled(parts))
    rounded = i.rounds_up and not mapping and sampling.tiles(known, parts, cap, True).covers is not None
    if not isinstance(old, tuple):
        found = sampling.draw_tile(known, parts, cap, _needed(rng, i), rounded)
    elif rounded:
        found = sampling.repair_rounded(old, known, parts, cap)
    else:
        found = sampling.repair_tile(old, known, parts)
    return Decision(found, (known,) if rounded else ())


def _option(i: Instruction, old: Any, rng: np.random.Generator | None) -> int:
    probs = i.arguments["probs"]
    if old is None:
        return sampling.draw_option(probs, _needed(rng, i))
    if not isinstance(old, int) or not 0 <= old < len(probs):
        raise TraceError(f"{i.kind}: decision {old!r} is not in 0..{len(probs) - 1}")
    return old


def _needed(rng: np.random.Generator | None, i: Instruction) -> np.random.Generator:
    if rng is None:
        raise SpaceError(f"{i.kind} has no decision, and replay was given no random generator to draw one")
    return rng


class _Run:
    """One run of a trace: which names its handles stand for at the moment."""

    def __init__(self, program: Program, trace: Trace, rng: np.random.Generator | None) -> None:
        self.s = ProbabilisticSchedule(program)
        self.trace, self.rng = trace, rng
        self.names: dict[Handle, str] = {}
        self.kinds: dict[str, Callable[[Instruction], None]] = {
            GET_BLOCK: self.get_block, GET_LOOPS: self.get_loops, TILE: self.tile, ROUNDED_TILE: self.tile,
            CATEGORICAL: self.categorical, LOCATION: self.location, NOTE: self.note, REQUIRE: self.require,
            "compute_at": self.compute_at, POSTPROCESS: lambda i: None,
        }  # fmt: skip

    def schedule(self) -> ProbabilisticSchedule:
        for n, i in enumerate(self.trace.instructions):
            if i.kind not in self.kinds and i.kind not in PRIMITIVES:
                raise TraceError(f"instruction {n}: unknown kind '{i.kind}'")
            try:
                self.kinds.get(i.kind, self.primitive)(i)
            except (ScheduleError, SpaceError):
                raise
            except _MISFITS as e:  # a trace may come from anywhere, and hold anything
                raise TraceError(f"instruction {n}: {i.kind} does not fit the program: {e}") from e
        there = {*self.s.program.loops, *self.s.program.blocks, *self.s.program.buffers}
        self.s.resume(self.trace, {name: h for h, name in self.names.items() if name in there})
        return self.s

    def name(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self.name(v) for v in value)
        return self.names[value] if isinstance(value, Handle) else value

    def arguments(self, i: Instruction) -> dict[str, Any]:
        return {k: self.name(v) for k, v in i.arguments.items()}

    def give(self, i: Instruction, names: list[str] | tuple[str, ...]) -> None:
        if len(names) != len(i.outputs):
            raise ScheduleError(f"{i.kind}: {len(names)} results where the trace had {len(i.outputs)}")
        self.names.update(zip(i.outputs, names, strict=True))  # type: ignore[arg-type]

    def get_block(self, i: Instruction) -> None:
        if i.arguments["name"] not in self.s.program.blocks:
            raise ScheduleError(f"get_block: there is no block '{i.arguments['name']}'")
        self.give(i, (i.arguments["name"],))

    def get_loops(self, i: Instruction) -> None:
        self.give(i, [lp.name for lp in loops_around(self.s.program, self.arguments(i)["block"])])

    def tile(self, i: Instruction) -> None:
        extent = self.s.program.loops[self.arguments(i)["loop"]].extent
        self.s.extents[i.name] = extent
        symbols = [v for v in i.outputs if isinstance(v, Var)]
        if not symbols or any(v.role != "knob" for v in variables(extent)):
            return
        drawn = list(self.s.knobs.values())
        cap = i.arguments["max_innermost"]
        self.s.knobs[i.name] = knobs.tile(i.name, extent, len(symbols), cap, drawn, i.rounds_up)
        self.s.constraints += knobs.product_conditions(extent, symbols)

    def categorical(self, i: Instruction) -> None:
        if i.structural:
            if i.name not in self.trace.decisions:
                raise SpaceError(f"draw '{i.name}' decided which instructions follow, but its decision is gone")
            self.s.decisions[i.name] = self.trace.decisions[i.name]
            return
        (symbol,) = i.outputs
        assert isinstance(symbol, Var)
        self.s.knobs[i.name] = knobs.options(symbol.name, i.arguments["candidates"])

    def location(self, i: Instruction) -> None:
        given = self.arguments(i)
        legal = legal_places(self.s.program, given["block"], given["loops"], given["inline"])
        if i.name in self.trace.decisions:
            old = self.trace.decisions[i.name].value
            chosen = sampling.repair_place(old if isinstance(old, int) else sampling.ROOT, list(legal))
        else:
            chosen = list(legal)[int(_needed(self.rng, i).integers(len(legal)))]
        self.s.decisions[i.name] = Decision(chosen, tuple(legal))
        self.give(i, (legal[chosen],))

    def compute_at(self, i: Instruction) -> None:
        given = self.arguments(i)
        self.s.program = place(self.s.program, given["block"], given["loop"])

    def note(self, i: Instruction) -> None:
        given = self.arguments(i)
        self.s.notes.setdefault(given["block"], {})[given["key"]] = given["value"]

    def require(self, i: Instruction) -> None:
        self.s.constraints.append(i.arguments["condition"])

    def primitive(self, i: Instruction) -> None:
        given = self.arguments(i)
        parameters = inspect.signature(PRIMITIVES[i.kind]).parameters.values()
        many = [x for p in parameters if p.kind is p.VAR_POSITIONAL for x in given.pop(p.name, ())]
        self.s.program = PRIMITIVES[i.kind](self.s.program, *many, **given)
        self.give(i, self.s.program.trace[-1].made)
