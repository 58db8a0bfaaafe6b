"""The GPU matmul space: its counts follow from its limits."""

import pytest

from searchlab.ir.expr import value_of
from searchlab.testing import check_moves
from spaces.task_mapping.simt import MultiprocessorLimits, SimtMatmul


@pytest.mark.parametrize(
    ("limits", "count"), [(MultiprocessorLimits(), 177), (MultiprocessorLimits(shared_memory=100 << 10), 268)]
)
def test_counts(limits: MultiprocessorLimits, count: int) -> None:
    space = SimtMatmul(limits).space
    assert (space.size.cartesian, space.size.valid, space.size.exact) == (324, count, True)
    assert len(space.enumerate()) == count


def test_limits_are_part_of_the_space() -> None:
    assert SimtMatmul().space.hash == SimtMatmul(MultiprocessorLimits()).space.hash
    assert SimtMatmul().space.hash != SimtMatmul(MultiprocessorLimits(shared_memory=100 << 10)).space.hash
    assert SimtMatmul(MultiprocessorLimits(thread_registers=96)).space.size.valid < 177


def test_every_point_has_a_mapping_of_whole_warps() -> None:
    simt = SimtMatmul()
    check_moves(simt.space)
    for point in simt.space.enumerate():
        mapping = simt.mapping(point)
        workers = value_of(mapping.num_workers) or 0
        tasks = [value_of(e) or 0 for e in mapping.task_shape]
        assert workers % 32 == 0 and tasks[0] * tasks[1] == workers * len(mapping(0))
