"""TreeGRU: a recurrent network that processes the loop tree from the leaves up; AutoTVM's neural model.

One step evaluates a level of all trees of all sketches, so the number of steps is the depth of the deepest tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodels.forest import CandidateTrees
from costmodels.neural import NeuralModel, TrainingExample
from searchlab.analysis import NODE_KINDS, schema
from searchlab.search import Points, Space
from searchlab.search.knob import Ints

_LOOP = NODE_KINDS.index("loop")
_LEAST, _MOST = 0.05, 4.0  # the least standard deviation of a feature, and the limit of a normalised one


class TreeGRUModel(NeuralModel):
    """A child-sum GRU on the loop tree.

    hidden  width of the state of a node, and of the decoder
    slots   0: the root's state is scored; otherwise every loop distributes its state over that many slots by softmax,
            and their sums are scored, which transfers better to programs of another shape
    """

    name = "treegru"
    view = "tree"

    def __init__(
        self,
        rng: np.random.Generator | None = None,
        hidden: int = 64,
        slots: int = 0,
        batch: int = 64,
        rate: float = 5e-3,
        **options: Any,
    ) -> None:
        super().__init__(rng, batch=batch, rate=rate, **options)
        self.hidden, self.slots = hidden, slots

    def build(self) -> Any:
        """The embeddings, the recurrent cell and the decoder, and buffers for the scale of the features."""
        import torch
        from torch import nn

        width, hidden = schema(self.view).width, self.hidden
        parts: dict[str, Any] = {
            "kind": nn.Embedding(len(NODE_KINDS), hidden),
            "input": nn.Linear(width, hidden),
            "cell": nn.GRUCell(hidden, hidden),
            "decoder": nn.Sequential(
                nn.Linear(hidden * max(1, self.slots), hidden), nn.Sigmoid(), nn.Linear(hidden, 1)
            ),
        }
        if self.slots:
            parts["slot"] = nn.Linear(hidden, self.slots, bias=False)
        network = nn.ModuleDict(parts)
        # the mean and the standard deviation of every feature, by kind of node
        network.register_buffer("mean", torch.zeros(len(NODE_KINDS), width))
        network.register_buffer("spread", torch.ones(len(NODE_KINDS), width))
        return network

    def inputs(self, space: Space, points: Points) -> Any:
        """The loop trees of all points."""
        return CandidateTrees.of(space.features(points, self.view), len(points))

    def prepare(self, examples: Sequence[TrainingExample]) -> None:
        """Sets the scale of the features to that of the examples, by kind of node."""
        import torch

        features = torch.from_numpy(np.concatenate([e.inputs.features for e in examples]))
        kinds = np.concatenate([e.inputs.kinds for e in examples])
        for kind in np.unique(kinds):
            of_kind = features[torch.from_numpy(np.flatnonzero(kinds == kind))]
            self.network.mean[kind] = of_kind.mean(0)
            self.network.spread[kind] = of_kind.std(0, correction=0).clamp(min=_LEAST)

    def scores(self, inputs: Any, rows: Ints) -> Any:
        """The decoded state of each root, or of the slots."""
        import torch

        trees: CandidateTrees = inputs.some(rows)
        kinds = torch.from_numpy(trees.kinds)
        values = (torch.from_numpy(trees.features) - self.network.mean[kinds]) / self.network.spread[kinds]
        known = self.network["input"](values.clamp(-_MOST, _MOST) / 2) + self.network["kind"](kinds)
        nodes, states = self._states(trees, torch.tanh(known))
        if not self.slots:
            roots = np.flatnonzero(trees.parents[nodes] < 0)
            order = roots[np.argsort(trees.owner[nodes[roots]])]
            return self.network["decoder"](states[torch.from_numpy(order)])[:, 0]
        loops = np.flatnonzero(trees.kinds[nodes] == _LOOP)
        here = states[torch.from_numpy(loops)]
        choice = torch.softmax(self.network["slot"](here), dim=1)
        spread = (choice[:, :, None] * here[:, None, :]).flatten(1)
        owner = torch.from_numpy(trees.owner[nodes[loops]])
        context = torch.zeros(trees.count, spread.shape[1]).index_add(0, owner, spread)
        return self.network["decoder"](context)[:, 0]

    def _states(self, trees: CandidateTrees, inputs: Any) -> tuple[Ints, Any]:
        """The nodes, leaves first, and their states, each computed from its input and its children's summed states."""
        import torch

        sums = torch.zeros(len(trees.kinds), self.hidden)
        states = []
        for level in trees.levels:
            at = torch.from_numpy(level)
            states.append(self.network["cell"](inputs[at], sums[at]))
            inner = np.flatnonzero(trees.parents[level] >= 0)
            up = torch.from_numpy(trees.parents[level[inner]])
            sums = sums.index_add(0, up, states[-1][torch.from_numpy(inner)])
        return np.concatenate(trees.levels), torch.cat(states)
