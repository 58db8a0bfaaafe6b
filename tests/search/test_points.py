"""Points: a batch is a matrix, a part of it is a batch."""

import numpy as np
import pytest

from searchlab.search import Points, SpaceError

ROWS = [[0, 1, 2, 3], [1, 4, 5], [0, 0, 0, 0], [1, 9, 9]]


def test_rows_and_back() -> None:
    points = Points.of(ROWS)
    assert len(points) == 4
    assert points.width == 3
    assert points.rows() == ROWS
    assert points.options[1].tolist() == [4, 5, -1]
    assert Points.of(points.rows()) == points


def test_parts() -> None:
    points = Points.of(ROWS)
    assert points[1:3].rows() == ROWS[1:3]
    assert points[-1].rows() == [ROWS[3]]
    assert points[[3, 0]].rows() == [ROWS[3], ROWS[0]]
    assert points[points.sketch == 1].rows() == [ROWS[1], ROWS[3]]
    assert [p.rows()[0] for p in points] == ROWS
    with pytest.raises(IndexError):
        points[4]


def test_equality_and_concatenation() -> None:
    points = Points.of(ROWS)
    assert Points.concat([points[:1], points[1:]]) == points
    assert points[1:2] == Points.of([ROWS[1]])  # padding does not count
    assert points[:2] != points[2:]
    assert points[:2] != points[:1]
    assert len(Points.concat([Points.empty(2), Points.empty(3)])) == 0


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SpaceError, match="2,"):
        Points(np.zeros(2, np.int32), np.zeros((3, 1), np.int32))


def test_either_of_two_batches() -> None:
    points = Points.of(ROWS)
    other = points[[3, 2, 1, 0]]
    mixed = Points.where(np.array([True, False, True, False]), points, other)
    assert mixed.rows() == [ROWS[0], ROWS[2], ROWS[2], ROWS[0]]
