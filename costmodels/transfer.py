"""Transfer: a model of other tasks, corrected by a model of this one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from searchlab.registry import Component
from searchlab.search import MODELS, CostModel, History, Points, Space, Trials
from searchlab.search.knob import Floats


class TransferModel(CostModel):
    """A global model of other tasks plus a local one of this task.

    base   the kind of both models
    half   trials of this task after which the weight of the global model halves; below 5 % it is dropped
    least  the number of measurements of other tasks required for a global model
    """

    name = "transfer"

    def __init__(
        self, rng: np.random.Generator | None = None, base: Component = "gbt", half: int = 64, least: int = 100
    ) -> None:
        super().__init__(rng)
        first, second = self.rng.spawn(2)
        self.base_global, self.base_local = MODELS.make(base, rng=first), MODELS.make(base, rng=second)
        self.view, self.half, self.least = self.base_local.view, half, least
        self._taught, self._own = 0, 0
        self._scales = {"global": 1.0, "local": 1.0}

    @property
    def discount(self) -> float:
        """The weight of the global model."""
        share = 2.0 ** (-self._own / self.half)
        return share if share >= 0.05 and self._taught else 0.0

    @property
    def ready(self) -> bool:
        """Whether at least one of the two models is ready."""
        return self.base_local.ready or self.base_global.ready

    def teach(self, others: Sequence[Trials]) -> None:
        """Learns from other tasks."""
        self.base_global.fit(History.of([t for t in others if len(t) and np.isfinite(t.best)]))
        self._taught = sum(len(t) for t in others)

    def fit(self, history: History) -> None:
        """Fits the local model to the last task, and the global one to the others if they have new trials."""
        *others, own = history.tasks
        taught = sum(len(t) for t in others)
        if taught >= self.least and taught != self._taught:
            self.teach(others)
        self._own = len(own)
        self.base_local.fit(History.of([own]))
        for name, model in self._models().items():
            if model.ready and len(own) > 1:
                # the two are added, so their predictions for the measured programs are put on one scale
                self._scales[name] = max(float(model.predict(own.space, own.points).std()), 1e-9)

    def predict(self, space: Space, points: Points) -> Floats:
        """The local prediction plus the discounted global one, both on the scale of the measured programs."""
        if self._taught and not (self._own and self.base_local.ready):
            return self.base_global.predict(space, points)
        local = self.base_local.predict(space, points) / self._scales["local"]
        if not self.discount:
            return local
        return local + self.discount * self.base_global.predict(space, points) / self._scales["global"]

    def save(self, path: Path) -> None:
        """Writes the global model and, if it has been trained, the local one."""
        parts = {name: model for name, model in self._models().items() if model.ready}
        card = {"parts": list(parts), "own": self._own, "taught": self._taught, "scales": self._scales}
        path.with_suffix(".json").write_text(json.dumps(card))
        for name, model in parts.items():
            model.save(path.with_name(f"{path.name}-{name}"))

    def load(self, path: Path) -> None:
        """Reads both models, and the number of trials on which each was trained."""
        card = json.loads(path.with_suffix(".json").read_text())
        self._own, self._taught, self._scales = card["own"], card["taught"], card["scales"]
        for name in card["parts"]:
            self._models()[name].load(path.with_name(f"{path.name}-{name}"))

    def _models(self) -> dict[str, CostModel]:
        return {"global": self.base_global, "local": self.base_local}
