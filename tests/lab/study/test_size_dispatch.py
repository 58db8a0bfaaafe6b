"""Which programs a family takes home, and for which sizes: small covers, and intervals without gaps."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from searchlab.lab.study.size_dispatch import AnySizeProgram, FamilyTable, SizeInterval, SizeTimes, cover, intervals

TIMES = st.integers(1, 6).flatmap(
    lambda programs: st.integers(1, 4).flatmap(
        lambda sizes: arrays(
            np.float64, (programs, sizes), elements=st.sampled_from([1.0, 1.01, 1.2, 2.0, 3.0, np.inf])
        )
    )
)


@settings(deadline=None)
@given(TIMES, st.data())
def test_a_cover_is_small_and_as_fast_as_all(times: np.ndarray, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.floats(0.1, 1), min_size=times.shape[1], max_size=times.shape[1]))
    found = cover(times, weights, tie=0.03)
    usable = [n for n in range(len(times)) if np.isfinite(times[n]).all()]
    if not usable:
        assert found == []
        return
    best = times[usable].min(axis=0)
    taken = times[found, range(times.shape[1])]
    assert set(found) <= set(usable) and (taken <= best * 1.03).all()
    same = [c for c in combinations(usable, len(set(found))) if (times[list(c)].min(axis=0) <= best * 1.03).all()]
    assert float(taken @ weights) == pytest.approx(min(float(times[list(c)].min(axis=0) @ weights) for c in same))
    fewer = combinations(usable, len(set(found)) - 1)
    assert not any(c and (times[list(c)].min(axis=0) <= best * 1.03).all() for c in fewer)


def test_ties_go_to_fewer_programs() -> None:
    times = np.array([[1.0, 2.0], [2.0, 1.0], [1.02, 1.02]])
    assert cover(times, [0.5, 0.5]) == [2, 2]
    assert cover(times, [0.5, 0.5], tie=0.01) == [0, 1]


@settings(deadline=None)
@given(st.data())
def test_intervals_have_every_size_once(data: st.DataObject) -> None:
    low = data.draw(st.integers(1, 50))
    high = data.draw(st.integers(low + 1, low + 300))
    sizes = sorted(data.draw(st.sets(st.integers(low, high), min_size=1, max_size=6)))
    programs = data.draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes)))
    found = intervals(sizes, programs, low, high)
    covered = [n for i in found for n in range(i.low, i.high + 1)]
    assert covered == list(range(low, high + 1))
    assert all(a.program != b.program for a, b in zip(found, found[1:], strict=False))
    table = FamilyTable("m", (), found, ())
    assert [table.program_for(s) for s in sizes] == programs
    assert table.program_for(high + 9) == programs[-1]


def test_figures() -> None:
    table = FamilyTable(
        "m",
        (AnySizeProgram(1, "a"), AnySizeProgram(64, "b")),
        (SizeInterval(1, 8, 0), SizeInterval(9, 64, 1)),
        (SizeTimes(1, 0.75, 2.0, 1.0, 4.0), SizeTimes(64, 0.25, 11.0, 10.0, 20.0)),
    )
    assert (table.seconds, table.alone_s, table.default_s) == (4.25, 3.25, 8.0)
    assert table.regret == pytest.approx(0.75 * 1.0 + 0.25 * 0.1) and table.worst.size == 1
    assert table.factors == (2.0, 1.1) and [table.program_for(n) for n in (1, 8, 9, 64)] == [0, 0, 1, 1]
