"""TreeGRU: a recurrent network that walks the tree of loops from the leaves up; AutoTVM's neural model.

The tree of a sketch is the same for its whole population, so a level of the tree is one step for thousands of programs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from costmodels.neural import NeuralModel
from searchlab.analysis import NODE_KINDS, Tree, schema
from searchlab.search import Points, Space
from searchlab.search.knob import Ints

_LOOP = NODE_KINDS.index("loop")


class TreeGRUModel(NeuralModel):
    """A child-sum GRU on the loop tree.

    hidden  width of the state of a node, and of the decoder
    slots   0: the root's state is scored; above: every loop spreads its state over so many slots by a soft choice, and
            their sums are scored, which carries over better to programs of another shape
    """

    name = "treegru"
    view = "tree"

    def __init__(
        self, rng: np.random.Generator | None = None, hidden: int = 64, slots: int = 0, **options: Any
    ) -> None:
        super().__init__(rng, **{"batch": 64, "rate": 2e-3, **options})
        self.hidden, self.slots = hidden, slots

    def build(self) -> Any:
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
        return nn.ModuleDict(parts)

    def inputs(self, space: Space, points: Points) -> Any:
        return len(points), space.features(points, self.view)

    def scores(self, inputs: Any, rows: Ints) -> Any:
        import torch

        count, parts = inputs
        place = np.full(count, -1, np.int64)
        place[rows] = np.arange(len(rows))
        found = torch.zeros(len(rows))
        for mine, tree in parts:
            here = np.flatnonzero(place[mine] >= 0)
            if len(here):
                at = torch.from_numpy(place[mine[here]])
                found = found.index_add(0, at, self._score(tree, here))
        return found

    def _score(self, tree: Tree, rows: Ints) -> Any:
        """The score of some candidates of one tree."""
        import torch

        values = torch.from_numpy(np.ascontiguousarray(tree.features[rows], np.float32)) / 16.0
        kinds = self.network["kind"](torch.from_numpy(tree.kinds))
        states = self._states(tree, torch.tanh(self.network["input"](values) + kinds))
        if not self.slots:
            return self.network["decoder"](states[0])[:, 0]
        loops = torch.stack([states[n] for n in np.flatnonzero(tree.kinds == _LOOP).tolist() or [0]], dim=1)
        choice = torch.softmax(self.network["slot"](loops), dim=2)
        context = torch.einsum("pls,plh->psh", choice, loops)
        return self.network["decoder"](context.flatten(1))[:, 0]

    def _states(self, tree: Tree, inputs: Any) -> dict[int, Any]:
        """The state of every node (population, hidden): its input, and the sum of its children's states."""
        import torch

        states: dict[int, Any] = {}
        nothing = torch.zeros(inputs.shape[0], self.hidden)
        for level in tree.levels:
            nodes = level.tolist()
            sums = [sum((states[c] for c in tree.children[n]), nothing) for n in nodes]
            given = inputs[:, level].transpose(0, 1).reshape(-1, self.hidden)
            found = self.network["cell"](given, torch.cat(sums)).view(len(nodes), -1, self.hidden)
            states.update({n: found[k] for k, n in enumerate(nodes)})
        return states
