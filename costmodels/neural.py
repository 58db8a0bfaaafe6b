"""The common part of neural models: the training loop, the pairwise rank loss within a task, saving, one thread."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from costmodels.features import check_card, write_card
from searchlab.errors import ComponentError
from searchlab.search import CostModel, History, Points, Space, Trials
from searchlab.search.knob import Floats, Ints

_RISE = 0.15  # the share of training during which the learning rate rises


@dataclass(frozen=True, eq=False)
class TrainingExample:
    """Measured programs of one task as tensors in the form of a model."""

    inputs: Any
    scores: Floats


class NeuralModel(CostModel):
    """A network that scores programs, trained on pairs: the better of two must score higher.

    batches   training steps, with `batch` programs each
    rate      the peak learning rate, after a warm-up and before a decay to zero
    objective rank (pairs within a task) or regression (squared error)
    warmup    the number of measurements required before it predicts
    """

    def __init__(
        self,
        rng: np.random.Generator | None = None,
        objective: str = "rank",
        batches: int = 500,
        batch: int = 128,
        rate: float = 2e-3,
        decay: float = 1e-4,
        warmup: int = 32,
    ) -> None:
        super().__init__(rng)
        if objective not in ("rank", "regression"):
            raise ComponentError(f"{self.name}: unknown objective '{objective}'; known: rank, regression")
        self.objective, self.batches, self.batch = objective, batches, batch
        self.rate, self.decay, self.warmup = rate, decay, warmup
        self.network: Any = None

    # --- implemented by models ----------------------------------------------------------------------------------------

    @abstractmethod
    def build(self) -> Any:
        """The network, freshly initialised."""

    @abstractmethod
    def inputs(self, space: Space, points: Points) -> Any:
        """The inputs for these points in the form that `scores` expects."""

    def prepare(self, examples: Sequence[TrainingExample]) -> None:
        """Fits everything but the weights, such as the scale of the inputs, before training."""

    @abstractmethod
    def scores(self, inputs: Any, rows: Ints) -> Any:
        """The network's scores for the given rows of the inputs, larger for faster programs."""

    # --- the rest -----------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether there is a trained network."""
        return self.network is not None

    def fit(self, history: History) -> None:
        """Trains a new network on all trials, once there are enough."""
        tasks = [t for t in history if len(t) > 1 and np.isfinite(t.best)]
        if sum(len(t) for t in tasks) < self.warmup:
            return
        import torch

        with one_thread(), torch.random.fork_rng():
            torch.manual_seed(int(self.rng.integers(1 << 31)))
            self.network = self.build()
            examples = [self._example(t) for t in tasks]
            self.prepare(examples)
            self._train(examples)

    def _example(self, trials: Trials) -> TrainingExample:
        return TrainingExample(self.inputs(trials.space, trials.points), trials.scores)

    def _train(self, examples: Sequence[TrainingExample]) -> None:
        import torch

        optimizer = torch.optim.Adam(self.network.parameters(), lr=self.rate, weight_decay=self.decay)
        fading = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.rate, self.batches, pct_start=_RISE)
        sizes = np.array([len(e.scores) for e in examples], np.float64)
        self.network.train()
        for _ in range(self.batches):
            chosen = examples[int(self.rng.choice(len(examples), p=sizes / sizes.sum()))]
            loss = self._loss(chosen, self.rng.permutation(len(chosen.scores))[: self.batch])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 5.0)
            optimizer.step()
            fading.step()
        self.network.eval()

    def _loss(self, example: TrainingExample, rows: Ints) -> Any:
        import torch

        found = self.scores(example.inputs, rows)
        wanted = torch.from_numpy(example.scores[rows].astype(np.float32))
        if self.objective == "regression":
            return torch.mean((found - wanted) ** 2)
        # all pairs of the batch; pairs with equal scores carry no information
        sign = torch.sign(wanted[:, None] - wanted[None, :])
        losses = torch.nn.functional.softplus(-sign * (found[:, None] - found[None, :]))
        told = sign != 0
        return losses[told].mean() if bool(told.any()) else losses.sum() * 0.0

    def predict(self, space: Space, points: Points) -> Floats:
        """The negated scores."""
        import torch

        if not len(points):
            return np.empty(0)
        with one_thread(), torch.inference_mode():
            found = self.scores(self.inputs(space, points), np.arange(len(points)))
        return -np.asarray(found.numpy(), np.float64)

    def save(self, path: Path) -> None:
        """Writes the weights, and the features on which they were trained."""
        import torch

        write_card(path, self.name, self.view)
        torch.save(self.network.state_dict(), path.with_suffix(".pt"))

    def load(self, path: Path) -> None:
        """Reads the weights, which must have been trained on the same features."""
        import torch

        check_card(path, self.name, self.view)
        self.network = self.build()
        self.network.load_state_dict(torch.load(path.with_suffix(".pt"), weights_only=True))
        self.network.eval()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits torch to one thread, since the other cores measure."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
