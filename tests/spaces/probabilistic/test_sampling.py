"""The distributions, against lists of all outcomes, and the repair of decisions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from scipy import stats

from searchlab.search import Space, Task
from searchlab.targets import detect
from searchlab.workloads import workload
from spaces.probabilistic import ProbabilisticSchedule, ProbabilisticSpace, replay, sampling


def all_tiles(extent: int, parts: int, cap: int) -> set[tuple[int, ...]]:
    """Ordered factorisations, found by trying all."""
    if parts == 1:
        return {(extent,)} if extent <= cap else set()
    return {
        (f, *rest) for f in range(1, extent + 1) if extent % f == 0 for rest in all_tiles(extent // f, parts - 1, cap)
    }


def is_uniform(drawn: Iterable[tuple[int, ...]], outcomes: set[tuple[int, ...]]) -> bool:
    counts = Counter(drawn)
    assert counts.keys() <= outcomes
    return bool(stats.chisquare([counts[o] for o in sorted(outcomes)]).pvalue > 1e-3)


def three_tiles(s: ProbabilisticSchedule) -> None:
    i, j, _ = s.loops("C")
    s.split(i, s.sample_perfect_tile(i, 3, max_innermost=4))
    s.vectorize(j)


TASK = Task(workload("matmul", m=24, n=8, k=2), detect())
TILES = all_tiles(24, 3, 4)


def test_the_list_of_tiles() -> None:
    assert {tuple(t) for t in sampling.tiles(24, 3, 4).options.tolist()} == TILES
    assert len(all_tiles(24, 3, 24)) == 30 and len(TILES) == 22


def test_perfect_tiles_through_replay() -> None:
    rng = np.random.default_rng(0)
    s = ProbabilisticSchedule(TASK.program)
    three_tiles(s)
    drawn = [replay(TASK.program, s.trace, rng).trace.decisions["i"].value for _ in range(3000)]
    assert is_uniform(drawn, TILES)  # type: ignore[arg-type]


def test_perfect_tiles_through_the_space() -> None:
    space = ProbabilisticSpace(program=three_tiles).space(TASK)
    points = space.sample(20_000, np.random.default_rng(0))
    values = space.values(points)
    assert is_uniform(zip(*(values[f"i{n}"].tolist() for n in range(3)), strict=True), TILES)


def test_options_follow_their_probabilities() -> None:
    rng = np.random.default_rng(0)
    counts = Counter(sampling.draw_option([0.5, 0.25, 0.25], rng) for _ in range(4000))
    assert stats.chisquare([counts[n] for n in range(3)], [2000, 1000, 1000]).pvalue > 1e-3


def test_another_option_is_another_with_the_remaining_probabilities() -> None:
    rng = np.random.default_rng(0)
    counts = Counter(sampling.draw_other([0.5, 0.3, 0.2], 0, rng) for _ in range(4000))
    assert counts.keys() == {1, 2}
    assert stats.chisquare([counts[1], counts[2]], [2400, 1600]).pvalue > 1e-3
    assert sampling.draw_other([1.0], 0, rng) is None


@pytest.mark.parametrize(
    ("old", "extent", "repaired"),
    [
        ((4, 3, 2), 24, (4, 3, 2)),
        ((4, 3, 2), 12, (2, 3, 2)),  # the outermost takes what is left
        ((4, 3, 2), 10, (1, 5, 2)),  # 3 does not divide 5
        ((4, 3, 2), 9, (1, 1, 9)),  # 2 does not divide 9: all of it, whatever the limit
        ((4, 3, 2), 1, (1, 1, 1)),
        ((-1, 1, 1), 24, (24, 1, 1)),
    ],
)
def test_stale_tiles(old: tuple[int, ...], extent: int, repaired: tuple[int, ...]) -> None:
    assert sampling.repair_tile(old, extent, 3) == repaired
    assert math.prod(repaired) == extent


@pytest.mark.parametrize(
    ("old", "legal", "repaired"),
    [
        (2, [-1, 0, 2], 2),
        (2, [-2, -1, 0, 1, 3], 1),  # the nearest earlier one
        (2, [-2, -1, 3], -1),
        (-2, [-1, 0], -1),  # no longer inline: the root
        (5, [-2, -1], -1),
    ],
)
def test_stale_places(old: int, legal: list[int], repaired: int) -> None:
    assert sampling.repair_place(old, legal) == repaired


def test_probabilities() -> None:
    assert sampling.log_tile((6, 2, 2), 4) == pytest.approx(-math.log(22))
    assert sampling.log_tile((3, 1, 8), 4) == -math.inf
    assert sampling.log_tile((-1, 1, 1), 4) == 0
    assert sampling.log_option(1, [0.5, 0.25, 0.25]) == pytest.approx(math.log(0.25))
    assert sampling.log_option(0, [0.0, 1.0]) == -math.inf


def test_a_space_is_a_space() -> None:
    assert isinstance(ProbabilisticSpace(program=three_tiles).space(TASK), Space)
