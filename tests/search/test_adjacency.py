"""Steps to neighbouring options of several knobs at once."""

import numpy as np

from searchlab.search import category, menu, split_knob
from searchlab.search.adjacency import Adjacency

KNOBS = (menu("a", [1, 2, 4, 8]), menu("one", [3]), category("c", ["x", "y", "z"], "c"), split_knob("s", 12, 3))


def test_neighbours_are_those_of_the_knobs() -> None:
    table = Adjacency.of(KNOBS)
    for k, knob in enumerate(KNOBS):
        first, flat = knob.neighbours
        for option in range(len(knob)):
            at = int(table.base[k]) + option
            found = table.flat[table.first[at] : table.first[at] + table.degree[at]]
            assert found.tolist() == flat[first[option] : first[option + 1]].tolist()


def test_steps_reach_all_others_or_all_neighbours() -> None:
    table = Adjacency.of(KNOBS)
    draw = np.linspace(0, 1, 500, endpoint=False)
    for k, knob in enumerate(KNOBS):
        first, flat = knob.neighbours
        for option in range(len(knob)):
            where = np.full(len(draw), k), np.full(len(draw), option, np.int32)
            others = set(range(len(knob))) - {option} or {option}  # a knob of one option keeps it
            near = set(flat[first[option] : first[option + 1]].tolist()) or others
            assert set(table.step(*where, draw, np.zeros(len(draw), np.bool_)).tolist()) == others
            assert set(table.step(*where, draw, np.ones(len(draw), np.bool_)).tolist()) == near
