"""Random schedules written down: as a trace, as JSON, as a pickle, and with knobs in place of their numbers."""

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from random_schedules import WORKLOADS, random_schedule

from searchlab.backend import compile
from searchlab.errors import ScheduleError
from searchlab.ir import from_json, knob, to_json, verify
from searchlab.ir.expr import Like
from searchlab.ir.program import Program
from searchlab.ir.walk import variables
from searchlab.schedule import PRIMITIVES, Step, replay, trace_json
from searchlab.targets import detect
from searchlab.workloads import parse


@pytest.mark.parametrize("spec", WORKLOADS)
def test_a_trace_makes_the_program_again(spec):
    plain = parse(spec).program
    for seed in range(4):
        made = random_schedule(plain, np.random.default_rng([seed, len(spec)]), 8)
        verify(made)
        again = replay(plain, trace_json(made))
        assert again.hash == made.hash and again == made
        assert trace_json(again) == trace_json(made)
        assert replay(made, "[]") is made
        for copy in (from_json(to_json(made)), pickle.loads(pickle.dumps(made))):
            assert copy == made and str(copy) == str(made)


def again(program: Program, step: Step, put: Callable[[int], Like]) -> Program:
    arguments = dict(step.arguments)
    if step.name == "split":
        arguments["factors"] = tuple(put(f) if isinstance(f, int) else f for f in arguments["factors"])
    many = arguments.pop("loops", ())
    return PRIMITIVES[step.name](program, *many, **arguments)


def with_knobs(program: Program, trace: tuple[Step, ...]) -> tuple[Program, dict[str, int]]:
    """The steps of a trace with a knob in place of every split factor, and the factors."""
    values: dict[str, int] = {}

    def put(factor: int) -> Like:
        values[f"t{len(values)}"] = factor
        return knob(f"t{len(values) - 1}")

    for step in trace:
        program = again(program, step, put)
    used = {*program.knobs, *(v.name for a in program.assumptions for v in variables(a))}
    return program, {k: v for k, v in values.items() if k in used}


def test_knobs_given_their_numbers_make_the_program_with_the_numbers():
    same = total = 0
    for number, spec in enumerate(WORKLOADS * 3):
        w = parse(spec)
        rng = np.random.default_rng([7, number])
        early = random_schedule(w.program, rng, int(rng.integers(2, 8)))
        try:
            symbolic, values = with_knobs(w.program, early.trace)
        except ScheduleError:  # what cannot be shown for all numbers may hold for some
            continue
        if not values:
            continue
        late = symbolic.substitute(values)
        verify(late)
        total += 1
        # a split that stands on the numbers of an earlier one may simplify less
        same += late.hash == early.substitute({}).hash
        inputs = w.inputs(number)
        wrong = w.check(compile(late, detect(1))(*(inputs[n] for n in late.inputs)), inputs)
        assert wrong is None, f"{wrong} with {values}\n{symbolic}\n{late}"
    assert total > 40 and same >= 0.9 * total
