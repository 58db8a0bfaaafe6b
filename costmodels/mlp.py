"""TenSet's network: statements are embedded, and a program is the sum of its statements."""

from __future__ import annotations

from typing import Any

import numpy as np

from costmodels.features import features
from costmodels.neural import NeuralModel
from searchlab.analysis import schema
from searchlab.search import Points, Space
from searchlab.search.knob import Ints


class MLPModel(NeuralModel):
    """A multi-layer perceptron on statements; `hidden` is its width."""

    name = "mlp"
    view = "statements"

    def __init__(self, rng: np.random.Generator | None = None, hidden: int = 128, **options: Any) -> None:
        super().__init__(rng, **options)
        self.hidden = hidden

    def build(self) -> Any:
        """Layers that embed a statement, and layers that score the sum of a program's statements."""
        from torch import nn

        width, hidden = schema(self.view).width, self.hidden
        embed = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        return nn.ModuleDict({"embed": embed, "head": head})

    def inputs(self, space: Space, points: Points) -> Any:
        """The features of all statements, program by program, and the first row of each program."""
        rows, owner = features(space, points, self.view)
        order = np.argsort(owner, kind="stable")
        first = np.searchsorted(owner[order], np.arange(len(points) + 1))
        return rows[order] / np.float32(16.0), first  # logarithms of counts, scaled to about 1

    def scores(self, inputs: Any, rows: Ints) -> Any:
        """The score of the summed embeddings of each program."""
        import torch

        table, first = inputs
        counts = first[rows + 1] - first[rows]
        at = np.repeat(first[rows] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) + np.arange(counts.sum())
        embedded = self.network["embed"](torch.from_numpy(np.ascontiguousarray(table[at])))
        owner = torch.from_numpy(np.repeat(np.arange(len(rows)), counts))
        total = torch.zeros(len(rows), self.hidden).index_add_(0, owner, embedded)
        return self.network["head"](total)[:, 0]
