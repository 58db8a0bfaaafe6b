"""Validation of the values that components return; errors name the component and the expected form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from searchlab.errors import ComponentError
from searchlab.named import is_shipped
from searchlab.search.points import Points
from searchlab.search.sketch import Sketch

if TYPE_CHECKING:
    from searchlab.search.generator import SpaceGenerator
    from searchlab.search.knob import Floats
    from searchlab.search.model import CostModel
    from searchlab.search.space import Space
    from searchlab.search.strategy import Strategy


def proposed(strategy: Strategy, points: Any, count: int) -> Points:
    """Validates the points that a strategy proposed; those beyond `count` are dropped."""
    space = strategy.space
    wrong = ""
    if not isinstance(points, Points):
        wrong = _kind(points)
    elif not (good := space.valid(points)).all():
        first = int(np.flatnonzero(~good)[0])
        wrong = f"points that are not in the space, such as {points.rows()[first]}"
    if wrong:
        form = f"Points of space '{space.name}', none when it is used up"
        raise ComponentError(f"strategy '{_name(strategy)}': ask({count}) returned {wrong}; it must return {form}")
    assert isinstance(points, Points)
    return points[:count]


def predicted(model: CostModel, scores: Any, count: int) -> Floats:
    """Validates the scores that a model predicted for `count` points."""
    wrong = ""
    if not isinstance(scores, np.ndarray) or scores.dtype.kind not in "iuf":
        wrong = _kind(scores)
    elif scores.shape != (count,):
        wrong = f"an array of shape {scores.shape}"
    elif np.isnan(scores).any():
        wrong = f"{int(np.isnan(scores).sum())} scores that are not numbers (NaN)"
    if wrong:
        form = "one number for each point, smaller for what should be faster"
        raise ComponentError(
            f"cost model '{_name(model)}': predict of {count} points returned {wrong}; it must return {form}"
        )
    found: Floats = scores
    return found


def sketched(generator: SpaceGenerator, sketches: Any) -> Iterator[Sketch]:
    """Validates the sketches of a space one by one, as they are generated."""
    name, form = _name(generator), "Sketch objects, or yield them one by one"
    try:
        each = iter(sketches)
    except TypeError:
        raise ComponentError(f"space '{name}': sketches returned {_kind(sketches)}; it must return {form}") from None
    for sketch in each:
        if not isinstance(sketch, Sketch):
            raise ComponentError(f"space '{name}': sketches gave {_kind(sketch)}; it must return {form}")
        yield sketch


def seeded(generator: SpaceGenerator, points: Any, space: Space) -> Points:
    """Validates the points that a generator gave as seeds."""
    wrong = ""
    if not isinstance(points, Points):
        wrong = _kind(points)
    elif not (good := space.valid(points)).all():
        wrong = f"points that are not in the space, such as {points.rows()[int(np.flatnonzero(~good)[0])]}"
    elif len(np.unique(space.key(points))) < len(points):
        wrong = "the same point twice"
    if wrong:
        form = f"distinct Points of space '{space.name}', none where it knows of none"
        raise ComponentError(f"space '{_name(generator)}': seeds returned {wrong}; it must return {form}")
    assert isinstance(points, Points)
    return points


def _name(component: object) -> str:
    """A component as an experiment names it; a user's component is named by its import path."""
    kind = type(component)
    if is_shipped(kind.__module__):
        return str(getattr(component, "name", kind.__name__))
    return f"{kind.__module__}:{kind.__qualname__}"


def _kind(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}"
    return f"a value of type {type(value).__name__}"
