"""Structures: the finished schedules of a probabilistic program, each as a sketch and as a trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from searchlab.errors import ScheduleError, SpaceError
from searchlab.ir.expr import Expr
from searchlab.ir.program import Program
from searchlab.ir.walk import variables
from searchlab.search import Knob, Sketch, menu
from searchlab.search.knob import Floats
from spaces.probabilistic import sampling
from spaces.probabilistic.branching import branches
from spaces.probabilistic.instruction import Decision, Instruction
from spaces.probabilistic.postprocess import Postprocessor
from spaces.probabilistic.schedule import ProbabilisticSchedule
from spaces.probabilistic.schedule_rule import ScheduleRule
from spaces.probabilistic.trace import Trace


def apply_rules(start: ProbabilisticSchedule, rules: Sequence[ScheduleRule], most: int) -> list[ProbabilisticSchedule]:
    """The schedules that rules give: each goes over all stages of every schedule that the ones before it gave.

    Stages are visited from the output to the inputs.
    """
    states = [start]
    for rule in rules:
        states = [after for s in states for after in _over_stages(s, rule, most)]
        if len(states) > most:
            raise SpaceError(f"{start.program.name}: {type(rule).__name__} leads to more than {most} structures")
    return states


def _over_stages(s: ProbabilisticSchedule, rule: ScheduleRule, most: int) -> list[ProbabilisticSchedule]:
    stages = list(s.program.blocks)
    states = [s]
    for block in stages[-1:] if rule.once else reversed(stages):
        after: list[ProbabilisticSchedule] = []
        for state in states:
            if block in state.stages.done and not rule.once or block not in state.program.blocks:
                after.append(state)
                continue
            found, rejected = branches(state, lambda x, block=block: rule.apply(x, block), most)  # type: ignore[misc]
            if not found and rejected:
                raise SpaceError(f"{type(rule).__name__} on stage '{block}': {rejected[0]}")
            after += found
        states = after
    return states


def postprocessed(
    states: Iterable[ProbabilisticSchedule], postprocessors: Sequence[Postprocessor]
) -> Iterator[ProbabilisticSchedule]:
    """The schedules that no post-processor rejects, each program once."""
    seen: set[str] = set()
    for state in states:
        s = state.copy()
        s.enter_postprocessing()
        try:
            good = all(p.apply(s) for p in postprocessors)
        except ScheduleError:
            continue
        if good and s.program.hash not in seen:
            seen.add(s.program.hash)
            yield s


@dataclass(frozen=True, eq=False)
class Structure:
    """One structure: its sketch, its whole trace, and the schedule that made both.

    Draws that make no difference to the program have decisions in the trace.
    """

    sketch: Sketch
    trace: Trace
    schedule: ProbabilisticSchedule

    @staticmethod
    def of(s: ProbabilisticSchedule, name: str) -> Structure:
        """The structure of a finished schedule; a draw that the program does not depend on takes its first option."""
        trace = s.trace.live()
        drawn = [s.knobs[i.name] for i in trace.draws() if i.name in s.knobs]
        constraints = _constraints_on(drawn, s)
        needed = {v.name for v in s.program.symbols} | {v.name for c in constraints for v in variables(c)}
        free = tuple(k for k in drawn if needed & set(k.symbols))
        idle = [k for k in drawn if k not in free]
        sketch = Sketch(name, free or (menu("fixed", [1]),), constraints, _without(idle, s.program))
        return Structure(sketch, replace(trace, decisions={**trace.decisions, **_fixed(idle, trace)}), s)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Identifies the structure: equal to that of every trace that belongs to it, without its tail."""
        return self.trace.simplified().structure

    def decided(self, options: Sequence[int]) -> Trace:
        """The trace of a row of options."""
        pairs = zip(self.sketch.knobs, options, strict=True)
        drawn = {i.name: i for i in self.trace.draws()}
        given = {k.name: _decision(drawn[k.name], k, o) for k, o in pairs if k.name in drawn}
        return replace(self.trace, decisions={**self.trace.decisions, **given})

    @cached_property
    def log_priors(self) -> tuple[float, tuple[Floats, ...]]:
        """The prior of what the structure fixes, and of every option of every knob."""
        whole = self.decided([0] * len(self.sketch.knobs)).log_prior
        tables = tuple(self._log_prior(k) for k in self.sketch.knobs)
        return whole - sum(float(t[0]) for t in tables), tables

    def _log_prior(self, knob: Knob) -> Floats:
        found = [i for i in self.trace.draws() if i.name == knob.name]
        if not found:
            return np.zeros(len(knob))
        if knob.covers is not None:
            return np.full(len(knob), -np.log(len(knob)))
        if found[0].tiles:
            cap = found[0].arguments["max_innermost"]
            extents, at = np.unique(knob.options.prod(axis=1), return_inverse=True)
            counts = np.array([len(sampling.tiles(int(e), knob.options.shape[1], cap)) for e in extents])
            table: Floats = -np.log(counts.astype(np.float64))[at]
            return table
        with np.errstate(divide="ignore"):
            return np.log(np.array(found[0].arguments["probs"], dtype=np.float64))


def _constraints_on(drawn: Sequence[Knob], s: ProbabilisticSchedule) -> tuple[Expr, ...]:
    """The conditions of a schedule that speak of nothing but these knobs."""
    symbols = {n for k in drawn for n in k.symbols}
    return tuple(c for c in s.constraints if {v.name for v in variables(c)} <= symbols)


def _fixed(idle: Sequence[Knob], trace: Trace) -> dict[str, Decision]:
    """Decisions for draws that are left to no knob: idle ones, and tiles of extents that are not constant."""
    fixed = {k.name: _decision(trace.draw(k.name), k, 0) for k in idle}
    untiled = [i for i in trace.draws() if i.tiles and not i.outputs]
    return fixed | {i.name: Decision(sampling.untiled(i.arguments["n"])) for i in untiled}


def _without(idle: Sequence[Knob], program: Program) -> Program:
    """The program with the first options of idle knobs in place of the symbols that it only makes assumptions about."""
    known = {v.name for a in program.assumptions for v in variables(a)}
    values = {n: int(v) for k in idle for n, v in zip(k.symbols, k.options[0], strict=True) if n in known}
    return program.substitute(values) if values else program


def _decision(i: Instruction, knob: Knob, option: int) -> Decision:
    if not i.tiles:
        return Decision(option)
    return Decision(tuple(knob.options[option].tolist()), (knob.covers,) if knob.covers is not None else ())


def structures(states: Iterable[ProbabilisticSchedule]) -> list[Structure]:
    """One structure per schedule, named after its steps; those of the same name are told apart by a number."""
    taken: dict[str, int] = {}
    found = []
    for s in states:
        label = "/".join(["-".join(s.steps) or "plain", *s.choices])
        taken[label] = taken.get(label, 0) + 1
        found.append(Structure.of(s, label if taken[label] == 1 else f"{label}#{taken[label]}"))
    return found
