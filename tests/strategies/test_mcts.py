"""Monte-Carlo tree search: how a tree grows, and what it finds."""

import itertools

import numpy as np
import pytest

from searchlab.measure.recorded.tables import load
from searchlab.search import Points, Sketch, Space, menu
from searchlab.search.knob import Floats
from searchlab.strategies import Mcts, Random
from searchlab.strategies.mcts import ChoiceTree, Growth
from searchlab.testing import small_space

GROWTH = Growth(exploration=2.0, widening=1.5, backup="best")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def wide() -> Space:
    return Space([Sketch(f"s{n}", tuple(menu(f"m{k}", range(1, 17)) for k in range(5))) for n in range(3)], "wide")


def valley(points: Points) -> Floats:
    """Slow, but for points that begin with the last sketch and a large first knob, and go on small."""
    first, rest = points.options[:, 0], points.options[:, 1:].sum(axis=1)
    return np.asarray(30.0 - 5.0 * points.sketch - first + 0.5 * rest)


def grown(how: Growth = GROWTH, waves: int = 40) -> ChoiceTree:
    space = wide()
    strategy = Mcts(space, rng(1))
    start = space.sample(10, rng(2))
    tree = ChoiceTree(space, rng(3), how, valley(start))
    tree.add(start, valley(start))
    for _ in range(waves):
        paths = [tree.select() for _ in range(8)]
        points, valid = strategy.completed(paths)
        assert valid.all() and all(row[: len(p)] == p for p, row in zip(paths, points.rows(), strict=True))
        tree.settle(paths, valid)
        tree.add(points, valley(points))
    return tree


def test_every_sketch_is_tried_first() -> None:
    tree = ChoiceTree(wide(), rng(), GROWTH, np.ones(1))
    assert all(len(tree.select()) == 1 for _ in range(5))
    tree.add(Points.of([[0, 0, 0, 0, 0, 0], [2, 1, 1, 1, 1, 1]]), np.array([1.0, 2.0]))
    assert {tuple(tree.select()) for _ in range(9)} == {(1,)}


def test_a_point_adds_one_node_and_counts_on_its_way() -> None:
    tree = ChoiceTree(wide(), rng(), GROWTH, np.ones(1))
    tree.add(Points.of([[0, 3, 0, 0, 0, 0], [0, 3, 1, 0, 0, 0], [0, 4, 0, 0, 0, 0]]), np.array([5.0, 2.0, 7.0]))
    root = tree._root
    assert (root.visits, root.total, root.best) == (3, 14.0, 2.0)
    assert list(root.children) == [0] and list(root.children[0].children) == [3, 4]
    assert not root.children[0].children[3].children  # the first point made the sketch's node, the second one this


def test_visits_are_settled_and_widening_is_bounded() -> None:
    nodes = [grown()._root]
    assert nodes[0].visits == 10 + 40 * 8
    for node in nodes:  # grows while it is walked
        assert node.waiting == 0
        if node is not nodes[0]:
            # a wave selects before it adds, so it may exceed the bound by itself
            assert len(node.children) <= GROWTH.widening * np.sqrt(node.visits + 8) + 8
        nodes += node.children.values()


def test_good_beginnings_are_visited_most() -> None:
    for how in (GROWTH, GROWTH._replace(backup="mean", exploration=0.5)):
        root = grown(how)._root
        visits = [root.children[s].visits for s in range(3)]
        assert visits[2] == max(visits) and visits[2] > 0.5 * sum(visits)
    even = grown(GROWTH._replace(exploration=100.0))._root
    assert min(c.visits for c in even.children.values()) > 0.8 * max(c.visits for c in even.children.values())


def test_what_leads_to_no_point_is_left() -> None:
    tree = ChoiceTree(wide(), rng(), GROWTH, np.ones(1))
    tree.add(Points.of([[s, 0, 0, 0, 0, 0] for s in range(3)]), np.ones(3))
    dead = set()
    for _ in range(60):
        path = tree.select()
        assert tuple(path) not in dead
        tree.settle([path], np.array([False]))
        dead |= {tuple(path)} if len(path) == 2 else set()
    assert {len(p) for p in dead} == {2}


def test_it_finds_more_than_random_points_do() -> None:
    space = wide()
    for draws, options in itertools.product(range(3), ({}, {"backup": "mean"})):
        found = Mcts(space, rng(draws), simulations=1024, epsilon=0.0, breadth=0.0, **options).ask(8, valley)  # type: ignore[arg-type]
        assert valley(found).max() < np.sort(valley(space.sample(1300, rng(draws))))[7] - 2


def test_it_learns_from_measurements() -> None:
    """On a recorded table, without a model."""
    table = load("matmul-256")
    best = []
    for cls in (Mcts, Random):
        ends = []
        for seed in range(6):
            strategy = cls(table.space, rng(seed))
            for _ in range(10):
                points = strategy.ask(6)
                strategy.tell(points, table.seconds[table.space.row(points)])
            ends.append(float(np.sort(strategy.seconds)[:6].mean()))
        best.append(np.mean(ends))
    assert best[0] < best[1]


def test_the_scale_may_be_flat() -> None:
    strategy = Mcts(small_space(), rng(), simulations=64, population=16)
    for _ in range(3):
        batch = strategy.ask(8, lambda p: np.zeros(len(p)))
        assert len(batch) == 8
        strategy.tell(batch, np.ones(8))
    assert len(strategy.ask(8)) == 8
    with pytest.raises(TypeError):
        Mcts(small_space(), rng(), waves=3)  # type: ignore[call-arg]
