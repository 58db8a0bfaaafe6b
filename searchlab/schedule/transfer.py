"""Schedules found at one size, applied to the program whose size is known only at run time.

A schedule is the trace of its primitives, with knobs for the integers that a search chooses.  The steps that were taken
for `m = 128` are taken again on the program with the size symbol `m`: a split of a loop whose extent has become a
symbol rounds up and leaves a tail, all other steps are as they were.  Primitives prove what they rely on, so a step
that is right for one size only is refused, and so is a program that would assume anything of its sizes.
"""

from __future__ import annotations

import inspect
from typing import Any

from searchlab.errors import ScheduleError
from searchlab.ir.expr import value_of
from searchlab.ir.program import Program
from searchlab.ir.walk import variables
from searchlab.schedule.primitive import PRIMITIVES, Step


def transfer(scheduled: Program, plain: Program) -> Program:
    """The steps of one program applied to another, plain one, with the same knobs.

    Raises ScheduleError where a step cannot be taken, or the result would be right for some sizes only.
    """
    if not scheduled.trace:
        raise ScheduleError("it was not made by schedule primitives, so there are no steps to take")
    found = plain
    for number, step in enumerate(scheduled.trace):
        try:
            found = _applied(found, step)
        except ScheduleError as e:
            raise ScheduleError(f"step {number} of {len(scheduled.trace)} cannot be taken: {e}") from e
    relied = [a for a in found.assumptions if any(v.role == "size" for v in variables(a))]
    if relied:
        raise ScheduleError(f"the schedule would rely on '{relied[0]}', which is not so for all sizes")
    return found


def _applied(program: Program, step: Step) -> Program:
    given = dict(step.arguments)
    if step.name == "split":
        given = _split_of(program, given)
    rest = _variadic(step.name)
    new = PRIMITIVES[step.name](program, *(given.pop(rest, ()) if rest else ()), **given)
    made = new.trace[-1].made
    if made != step.made:  # later steps would speak of other loops
        raise ScheduleError(f"{step.name}: makes {', '.join(made) or 'nothing'}, not {', '.join(step.made)}")
    return new


def _split_of(program: Program, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a split; that of a loop with a run-time extent infers the outermost factor, with a tail."""
    loop = program.loops.get(given["loop"])
    if loop is None or value_of(loop.extent) is not None:
        return given
    factors = given["factors"]
    if None not in factors:
        factors = (None, *factors[1:])
    return {**given, "factors": factors, "tail": True}


def _variadic(primitive: str) -> str | None:
    """The name of the parameter that takes any number of arguments, which traces hold as a tuple."""
    parameters = inspect.signature(PRIMITIVES[primitive]).parameters.values()
    return next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
