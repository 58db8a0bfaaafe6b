"""Random legal schedules of every operator give the reference's result in compiled code."""

import numpy as np
import pytest
from checked_run import run_checked
from random_schedules import PROPOSALS, WORKLOADS, random_schedule

from searchlab.backend import compile
from searchlab.ir.program import Program
from searchlab.lower.passes import lower
from searchlab.schedule import PRIMITIVES, trace_json
from searchlab.targets import Target, detect, parse
from searchlab.workloads import Workload, operators
from searchlab.workloads import parse as workload

SEEDS = 12
SLOW_SEEDS = 150


def scheduled(spec: str, seed: int) -> tuple[Workload, Program]:
    w = workload(spec)
    rng = np.random.default_rng([WORKLOADS.index(spec), seed])
    return w, random_schedule(w.program, rng, steps=int(rng.integers(1, 13)))


def target(seed: int) -> Target:
    """Both numbers of threads, and now and then registers of another width."""
    if detect().arch == "x86_64" and seed % 8 in (3, 6):
        return parse("x86-64-v3" if seed % 8 == 3 and detect().vector_bits >= 256 else "x86-64-v2")
    return detect(min(1 + seed % 2, detect().cores))


def wrong(spec: str, seed: int, *, checked: bool) -> str | None:
    """What is wrong with the code for one schedule, with all that is needed to see it again."""
    w, program = scheduled(spec, seed)
    inputs, where = w.inputs(seed), target(seed)
    found = None
    try:
        if checked:
            found = w.check(run_checked(lower(program, where), program, inputs), inputs)
        found = found or w.check(compile(program, where)(*(inputs[n] for n in program.inputs)), inputs)
    except Exception as e:
        found = f"{type(e).__name__}: {e}"
    if found is None:
        return None
    return f"{found}\nseed {seed} of {spec} for {where}\n{trace_json(program)}\n{program}"


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("spec", WORKLOADS)
def test_random_schedule(spec, seed):
    message = wrong(spec, seed, checked=seed % 4 == 0)
    assert message is None, message


@pytest.mark.slow
@pytest.mark.parametrize("spec", WORKLOADS)
def test_many_random_schedules(spec):
    found = [m for seed in range(SEEDS, SEEDS + SLOW_SEEDS) if (m := wrong(spec, seed, checked=True))]
    assert not found, "\n\n".join(found)


def test_all_operators_are_scheduled():
    ours = {name for name, op in operators().items() if op.path.startswith("searchlab.")}
    assert ours == {spec.partition(":")[0] for spec in WORKLOADS}
    assert SEEDS * len(WORKLOADS) >= 500


def test_all_primitives_occur():
    assert set(PROPOSALS) == set(PRIMITIVES) - {"bind"}
    used = {step.name for spec in WORKLOADS for seed in range(4) for step in scheduled(spec, seed)[1].trace}
    assert used == set(PROPOSALS)
