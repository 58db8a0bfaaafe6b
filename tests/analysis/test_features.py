"""Every feature of every view equals what enumerating the concrete program gives."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.analysis import NODE_KINDS, Extractor, extractor, schema
from searchlab.search import Points, Space

from .programs import MAIN, SKETCHES
from .reference import Reference

VIEWS = ("statements", "loops", "curves", "tree", "summary", "estimate")


@cache
def space(name: str) -> Space:
    return Space([SKETCHES[name]()])


@cache
def made(name: str, view: str) -> Extractor:
    return extractor(space(name).sketches[0].program, view)  # type: ignore[arg-type]


def expected(reference: Reference, view: str) -> Any:
    """The rows of a view by definition, each a dictionary."""
    if view == "statements":
        return reference.statements()
    if view == "loops":
        rows = reference.loop_rows()
        return [{f"loop{n}_{k}": v for n, row in enumerate(rows) for k, v in row.items()}]
    if view == "curves":
        return [reference.curves()]
    if view == "tree":
        return [row for _, _, row in reference.tree()]
    return [reference.summary() if view == "summary" else reference.estimate()]


def in_columns(rows: list[dict[str, float]], view: str) -> Any:
    columns = schema(view).columns
    assert {k for row in rows for k in row} <= set(columns)
    found = np.array([[row.get(c, 0.0) for c in columns] for row in rows])
    plain = np.array([view == "loops" and c.endswith("_level") for c in columns])
    return np.where(plain, found, np.log2(1 + found))


def assert_same(got: Any, wanted: Any, view: str) -> None:
    columns = schema(view).columns
    wrong = ~np.isclose(got, wanted, rtol=1e-9, atol=1e-9)
    where = [(int(r), columns[c], got[r, c], wanted[r, c]) for r, c in np.argwhere(wrong)]
    assert not where, where[:8]


def compare(name: str, view: str, points: Points) -> None:
    s = space(name)
    sketch = s.sketches[0]
    found = made(name, view)(sketch.values(points.options), dtype=np.float64)
    for n, point in enumerate(points):
        reference = Reference(s.program(point), main=MAIN[name])
        got = found.features[n] if view == "tree" else np.atleast_2d(found[n])
        assert_same(got, in_columns(expected(reference, view), view), view)
        if view == "tree":
            nodes = reference.tree()
            assert [NODE_KINDS[k] for k in found.kinds] == [kind for kind, _, _ in nodes]
            assert found.parents.tolist() == [parent for _, parent, _ in nodes]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", SKETCHES)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_features_are_what_enumeration_gives(name: str, view: str, seed: int) -> None:
    compare(name, view, space(name).sample(2, np.random.default_rng(seed)))
