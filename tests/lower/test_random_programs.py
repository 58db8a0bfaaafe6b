"""Random programs under random schedules give, in compiled code, what the unscheduled program computes."""

import pytest
from random_runs import run

COUNT = 200
PIECE = 50
MANY = 20_000  # as `python tests/random_runs.py` runs, on all cores


@pytest.mark.parametrize("first", range(0, COUNT, PIECE))
def test_random_programs(first):
    faults, figures = run(range(first, first + PIECE))
    assert not faults, "\n\n".join(faults)
    assert figures["programs"] == PIECE and figures["accepted"] > 4 * PIECE


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", [2319, 39325])
def test_buffers_do_not_grow_without_end(seed):
    """These would have 63 and 23 dimensions, with more elements than can be visited."""
    faults, _ = run(range(seed, seed + 1))
    assert not faults, "\n\n".join(faults)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_random_programs():
    faults, _ = run(range(COUNT, MANY))
    assert not faults, "\n\n".join(faults)
