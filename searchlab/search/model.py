"""CostModel: what tells good candidates from bad ones without running them; the plug-ins in costmodels/ are such."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import numpy as np

from searchlab.registry import Registry
from searchlab.search.history import History
from searchlab.search.knob import Floats
from searchlab.search.points import Points
from searchlab.search.space import Space


class CostModel(ABC):
    """Learns from measurements and scores whole populations; a plug-in writes `fit` and `predict`.

    `view` names the features it wants (see searchlab.analysis).  Options are the parameters of the constructor; the
    generator, passed as `rng`, is its only source of randomness.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    view: str = "statements"

    def __init__(self, rng: np.random.Generator | None = None) -> None:
        self.rng = rng if rng is not None else np.random.default_rng(0)

    @abstractmethod
    def fit(self, history: History) -> None:
        """Learns from all that is known; may be called again with more."""

    @abstractmethod
    def predict(self, space: Space, points: Points) -> Floats:
        """One number per point, smaller for what should be faster; only their order within a space has to be right."""

    @property
    def ready(self) -> bool:
        """Whether predictions mean anything yet."""
        return True

    def save(self, path: Path) -> None:
        """Writes all that `load` needs to predict the same numbers."""
        raise NotImplementedError(f"cost model '{self.name}' cannot be saved")

    def load(self, path: Path) -> None:
        """Becomes the model that was saved."""
        raise NotImplementedError(f"cost model '{self.name}' cannot be loaded")


MODELS: Registry[CostModel] = Registry("cost model", "searchlab.costmodels", CostModel)  # type: ignore[type-abstract]
