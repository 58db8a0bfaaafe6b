"""Optuna's samplers as strategies: they suggest values of knobs, and the nearest new valid point is measured."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np

from searchlab.errors import ComponentError, SpaceError
from searchlab.search import Points, Scorer, Space, Strategy
from searchlab.search.knob import Floats
from searchlab.strategies.surrogates import Ranks

Sampler = Literal["tpe", "gp", "nsga2", "random"]
SAMPLERS: dict[Sampler, str] = {
    "tpe": "TPESampler", "gp": "GPSampler", "nsga2": "NSGAIISampler", "random": "RandomSampler"
}  # fmt: skip


class Optuna(Strategy):
    """A sampler of Optuna, driven through ask and tell; points that are being measured are running trials.

    Sketches and categorical knobs are categorical parameters, all other knobs integers.  A suggestion is mapped to the
    nearest new valid point (of `pool` random ones, if the space cannot be listed), and the sampler is told the point
    that was measured.  The first `start` trials are random; with `liar`, TPE counts running trials as bad ones.
    """

    name = "optuna"

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        sampler: Sampler = "tpe",
        start: int = 10,
        liar: bool = True,
        pool: int = 1024,
    ) -> None:
        super().__init__(space, rng)
        if sampler not in SAMPLERS:
            raise SpaceError(f"optuna: unknown sampler '{sampler}'; known: {', '.join(SAMPLERS)}")
        self.pool, self._optuna, self._numbers = pool, _optuna(), Ranks(space)
        self._whole = space.enumerate() if space.size.exact and space.size.valid <= 1 << 15 else None
        self._groups, self._sizes = _groups(space, self._numbers)
        self._distributions = {name: self._distribution(name) for name in self._groups}
        self._study = self._optuna.create_study(sampler=self._sampler(sampler, start, liar))
        self._running: dict[int, Any] = {}

    def _sampler(self, sampler: Sampler, start: int, liar: bool) -> Any:
        options: dict[str, Any] = {} if sampler == "random" else {"population_size": max(start, 2)}
        if sampler in ("tpe", "gp"):
            options = {"n_startup_trials": start}
        if sampler == "tpe":
            options["constant_liar"] = liar
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about experimental options
            return getattr(self._optuna.samplers, SAMPLERS[sampler])(seed=int(self.rng.integers(1 << 31)), **options)

    def _distribution(self, name: str) -> Any:
        size, kinds = self._sizes[name], self._optuna.distributions
        if len(self._groups[name]) > 1:
            return kinds.CategoricalDistribution(list(range(size)))
        return kinds.IntDistribution(0, size - 1)

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        """The new valid points nearest to what the sampler suggests."""
        new = self._new_points()
        numbers = self._numbers(new)
        left = np.ones(len(new), np.bool_)
        batch = [Points.empty(self.space.width)]
        for _ in range(min(count, len(new))):
            trial = self._study.ask(self._distributions)
            apart = ((numbers - self._suggested(trial.params)) ** 2).sum(axis=1)
            nearest = int(np.argmin(np.where(left, apart, np.inf)))
            left[nearest] = False
            batch.append(self.take(new[nearest], 1))
            self._running[int(self.space.key(batch[-1])[0])] = trial
        return Points.concat(batch)

    def _new_points(self) -> Points:
        if self._whole is not None:
            return self.fresh(self._whole)
        return self.space.sample_new(self.pool, self.rng, self.known).points

    def tell(self, points: Points, seconds: Floats) -> None:
        """Tells the sampler the logarithms of times; a failure counts as the worst time."""
        super().tell(points, seconds)
        worked = self.seconds[np.isfinite(self.seconds)]
        worst = float(worked.max(initial=1e-12))
        values = np.log(np.maximum(np.where(np.isfinite(seconds), seconds, worst), 1e-12))
        for point, key, value in zip(points, self.space.key(points).tolist(), values.tolist(), strict=True):
            self._tell_one(point, self._running.pop(key, None), value)

    def _tell_one(self, point: Points, trial: Any, value: float) -> None:
        params = self._params(self._numbers(point)[0])
        if trial is not None and trial.params == params:
            self._study.tell(trial, value)
            return
        if trial is not None:
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        found = self._optuna.trial.create_trial(params=params, distributions=self._distributions, value=value)
        self._study.add_trial(found)

    def _suggested(self, params: dict[str, int]) -> Floats:
        row = np.zeros(len(self.space.columns))
        for name, value in params.items():
            columns = self._groups[name]
            if len(columns) > 1:
                row[columns[value]] = 1
            else:
                row[columns[0]] = value / max(self._sizes[name] - 1, 1)
        return row

    def _params(self, row: Floats) -> dict[str, int]:
        many = {n: int(np.argmax(row[c])) for n, c in self._groups.items() if len(c) > 1}
        return {n: many[n] if n in many else round(row[c[0]] * (self._sizes[n] - 1)) for n, c in self._groups.items()}


def _groups(space: Space, numbers: Ranks) -> tuple[dict[str, list[int]], dict[str, int]]:
    """The encoding columns and the number of values of each parameter."""
    place = {c: n for n, c in enumerate(space.columns)}
    groups = {"sketch": [place[f"sketch={s.name}"] for s in space.sketches]} if len(space.sketches) > 1 else {}
    for k in (k for s in space.sketches for k in s.knobs):
        if k.kind == "category":
            groups[k.name] = [place[c] for c in k.columns]
        else:
            groups.update({c: [place[c]] for c in k.columns})
    return groups, {n: len(c) if len(c) > 1 else numbers.values[c[0]] for n, c in groups.items()}


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ComponentError("strategy 'optuna' needs the package optuna: pip install 'searchlab[bayesian]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
