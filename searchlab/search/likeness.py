"""Likeness: the points of a space whose programs are most like a given one, by their features.

This needs no knowledge of the space.  Points are drawn, those most like the program are improved step by step, and what
counts as a large difference follows from how much the features of the drawn points differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from searchlab.analysis import extractor
from searchlab.defaults import default_schedule
from searchlab.ir.program import Program
from searchlab.search.knob import Floats, hash_text
from searchlab.search.points import Points
from searchlab.search.space import Space
from searchlab.search.task import Task

MOST = 8
_DRAWS = 2048
_SKETCHES = 32  # the most structures that are looked at: the features of each must be compiled
_CLIMBS = 16  # steps from each of the points found
_LARGEST = 8.0  # differences beyond this do not count more
_VIEW = "summary"


def like_default(task: Task, space: Space) -> Points:
    """The points most like the default schedule of a task; none if its sizes or programs are not known."""
    if task.workload.sizes or any(s.program is None for s in space.sketches[:1]):
        return Points.empty(space.width)
    program = default_schedule(task.program, task.target, task.weights)
    return like(space, program, MOST, np.random.default_rng(hash_text(task.workload.key)))


def like(space: Space, program: Program, most: int, rng: np.random.Generator) -> Points:
    """The points whose features differ least from those of a program, nearest first.

    The nearest point of every structure precedes others, since features cannot tell all that matters about structures.
    """
    every = len(space.sketches)
    some = space if every <= _SKETCHES else space.within(np.linspace(0, every - 1, _SKETCHES).astype(int).tolist())
    drawn = some.sample(_DRAWS, rng)
    unit = np.subtract(*np.percentile(space.features(drawn, _VIEW), [84, 16], axis=0)) / 2
    wanted = extractor(program, _VIEW, space.target)({})[0]

    def distance(points: Points) -> Floats:
        apart = np.abs(space.features(points, _VIEW) - wanted) / np.where(unit > 0, unit, 1.0)
        mean: Floats = np.minimum(apart, _LARGEST).mean(axis=1, dtype=np.float64)
        return mean

    drawn = drawn[np.argsort(distance(drawn), kind="stable")]
    first = np.sort(np.unique(drawn.sketch, return_index=True)[1])[:most]
    climbed = Points.concat([_climb(space, point, distance) for point in drawn[first]])
    climbed = climbed[np.argsort(distance(climbed), kind="stable")]
    found = Points.concat([climbed, drawn])
    return found[np.sort(np.unique(space.key(found), return_index=True)[1])[:most]]


def _climb(space: Space, point: Points, distance: Callable[[Points], Floats]) -> Points:
    """A point improved by changes of one knob at a time, for as long as they help."""
    here = float(distance(point)[0])
    for _ in range(_CLIMBS):
        near = space.neighbours(point)
        if not len(near) or (apart := distance(near)).min() >= here:
            break
        point, here = near[int(apart.argmin())], float(apart.min())
    return point
