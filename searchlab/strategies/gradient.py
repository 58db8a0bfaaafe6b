"""Gradient descent on relaxed knobs, after Felix: features are formulas, so a program's time has a slope."""

from __future__ import annotations

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import Points, Scorer, Space
from searchlab.search.knob import Floats
from searchlab.search.points import Options
from searchlab.strategies.guided import Guided
from searchlab.strategies.relaxation import Relaxation
from searchlab.strategies.shortlist import Shortlist
from searchlab.strategies.surface import Surface

_APART = 0.7  # how far slopes look, in octaves; formulas have steps, and a shorter look would see flat ground
_FIRST, _LAST = 1.0, 0.2  # the longest move of a symbol in a step, in octaves, from the first step to the last
_NEAR = 2  # options of a knob that are near enough to round to
_ENOUGH = 8  # measurements that make a surface without an estimate
_LEADERS = 0.125  # share of starts that are the best measured points


class Gradient(Guided):
    """Descends from many points at once on a smooth surface, and rounds where it ends to points of the space.

    The surface is the analytical estimate, computed for numbers between options as well, plus a correction that
    measurements teach (`Surface`).  Trees have no slope, so the model does not lead the descent; it ranks the points
    that `starts` of them lead to in `steps` steps, each rounded in `roundings` ways.  Slopes are central differences
    along the directions in which options differ.  Categories, and knobs that are not integers, stay as they were drawn.

    Without a model, the surface ranks points, too; without programs, once there are a few measurements.
    """

    name = "gradient"

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        starts: int = 256,
        steps: int = 16,
        roundings: int = 4,
        epsilon: float = 0.05,
        breadth: float = 0.15,
        diversity: float | None = None,
        polish: float = 0.0,
        draft: int = 0,
    ) -> None:
        super().__init__(space, rng, epsilon, breadth, diversity, polish, draft)
        if min(starts, roundings) < 1 or steps < 0:
            raise SpaceError("gradient: starts and roundings are at least 1, steps at least 0")
        self.starts, self.steps, self.roundings = starts, steps, roundings
        self._relaxations: dict[int, Relaxation] = {}

    def explore(self, found: Shortlist, score: Scorer) -> None:
        """Offers the points that descents start from and lead to."""
        self._descend(found, score, Surface(self.space, self.points, self.seconds))

    def best(self, count: int, score: Scorer | None) -> Points:
        """The best points that descents lead to, by the model or by the surface."""
        if score is not None:
            return super().best(count, score)
        return super().best(count, Surface(self.space, self.points, self.seconds).score)

    @property
    def on_measurements(self) -> bool:
        """Whether the surface can take the place of a model."""
        known = all(s.has_program for s in self.space.sketches) or np.isfinite(self.seconds).sum() >= _ENOUGH
        return bool(known) and not self.expects_model

    # --- descending ---------------------------------------------------------------------------------------------------

    def _descend(self, found: Shortlist, score: Scorer, surface: Surface) -> None:
        starts = Points.concat([self.leaders(int(_LEADERS * self.starts)), self.sample(self.starts)])
        ends = [starts]
        for sketch in np.unique(starts.sketch).tolist():
            ends += self.descents(starts[starts.sketch == sketch], surface)
        reached = Points.concat(ends)
        found.offer(reached, score(reached))

    def descents(self, starts: Points, surface: Surface) -> list[Points]:
        """Where descents from points of one sketch end, rounded to valid points in several ways."""
        number = int(starts.sketch[0])
        relaxation = self._relaxations.setdefault(number, Relaxation(self.space.sketches[number]))
        options = starts.options[:, : len(relaxation.sketch.knobs)]
        hill = _Hill(self.space, starts, options, relaxation, surface)
        rows = relaxation.relaxed(options)
        for step in range(self.steps if len(relaxation.directions) else 0):
            reach = _FIRST * (_LAST / _FIRST) ** (step / max(self.steps - 1, 1))
            slope = hill.slope(rows)
            steepest = np.abs(slope).max(axis=1, keepdims=True)
            rows = relaxation.inside(rows - reach * slope / np.where(steepest > 0, steepest, 1.0))
        ends = []
        for n in range(self.roundings):
            rounded, valid = relaxation.rounded(options, rows, self.rng, 1 if n == 0 else _NEAR)
            end = starts.options.copy()
            end[:, : rounded.shape[1]] = rounded
            ends.append(Points(starts.sketch, end)[valid])
        return ends


class _Hill:
    """The surface around points of one sketch, in relaxed knobs."""

    def __init__(
        self, space: Space, points: Points, options: Options, relaxation: Relaxation, surface: Surface
    ) -> None:
        self._relaxation, self._surface, self._target = relaxation, surface, space.target
        looks = 2 * len(relaxation.directions)
        self._options, self._encoded = np.repeat(options, looks, axis=0), np.repeat(space.encode(points), looks, axis=0)
        place = {c: n for n, c in enumerate(space.columns)}
        self._columns = [place[s] for s in relaxation.symbols]

    def slope(self, rows: Floats) -> Floats:
        """The gradient at each row, by central differences along all directions."""
        along = self._relaxation.directions
        looks = np.concatenate([_APART * along, -_APART * along])
        around = (rows[:, None, :] + looks[None]).reshape(-1, rows.shape[1])
        height = self._height(self._relaxation.inside(around)).reshape(len(rows), 2, len(along))
        with np.errstate(invalid="ignore"):
            rise = height[:, 0] - height[:, 1]
        return np.asarray(np.where(np.isfinite(rise), rise, 0.0) @ along)

    def _height(self, rows: Floats) -> Floats:
        estimate = np.zeros(len(rows))
        if self._surface.estimates:
            values = self._relaxation.values(self._options, rows)
            with np.errstate(invalid="ignore", divide="ignore"):  # formulas need not be defined between options
                found = self._relaxation.sketch.features_at(values, "estimate", self._target)
            estimate = found[:, 0].astype(np.float64)
        encoded = self._encoded.copy()
        encoded[:, self._columns] = rows
        return self._surface(estimate, encoded)
