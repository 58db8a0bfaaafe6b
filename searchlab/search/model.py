"""CostModel: the interface of the plug-ins in costmodels/, which rank candidates without running them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from searchlab.errors import ComponentError
from searchlab.registry import Registry
from searchlab.search.history import History, Trials
from searchlab.search.knob import Floats
from searchlab.search.points import Points
from searchlab.search.space import Space


class CostModel(ABC):
    """Learns from measurements and scores whole populations; a plug-in implements `fit` and `predict`.

    `version` changes when the same options no longer give the same predictions, and `earlier` has, for versions of the
    past, options with which they still do.  `view` names the features that it uses (see searchlab.analysis).  Options
    are the parameters of the constructor; the random generator, passed as `rng`, is its only source of randomness.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    earlier: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    view: str = "statements"

    def __init__(self, rng: np.random.Generator | None = None) -> None:
        self.rng = rng if rng is not None else np.random.default_rng(0)

    @abstractmethod
    def fit(self, history: History) -> None:
        """Trains on the whole history; may be called again as it grows."""

    @abstractmethod
    def predict(self, space: Space, points: Points) -> Floats:
        """One score per point, smaller for faster programs; only the order of scores within a space matters."""

    @property
    def ready(self) -> bool:
        """Whether the model has learnt enough for its predictions to be meaningful."""
        return True

    def seen(self, space: Space) -> str:
        """What it was trained on before the search of a space, in words; empty if it starts from nothing there."""
        return ""

    @classmethod
    def pretrain(cls, tasks: Sequence[Trials], folder: Path, seed: int = 0) -> dict[str, Any]:
        """Trains what searches with the model start from, writes it to a folder, and returns its card."""
        raise ComponentError(f"cost model '{cls.name}' starts from nothing that could be trained ahead of a search")

    def save(self, path: Path) -> None:
        """Writes the state that `load` needs to make the same predictions."""
        raise NotImplementedError(f"cost model '{self.name}' cannot be saved")

    def load(self, path: Path) -> None:
        """Restores the state that `save` wrote."""
        raise NotImplementedError(f"cost model '{self.name}' cannot be loaded")


MODELS: Registry[CostModel] = Registry("cost model", "searchlab.costmodels", CostModel)  # type: ignore[type-abstract]
