"""Gradient-boosted trees (xgboost): the model of AutoTVM, Ansor and MetaSchedule with their objectives and settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from costmodels import pretrained as trees
from costmodels.features import RAGGED, TrainingData, check_card, features, telling, training_data, write_card
from costmodels.roofline import RooflineModel, estimate
from searchlab.errors import ComponentError
from searchlab.search import CostModel, History, Points, Space, Trials
from searchlab.search.knob import Floats

_PAIRS = 256
_WORST = 1e-3  # the score of a failure where logarithms are taken
_LEAST = 0.05  # the standard deviation below which values count as constant

ObjectiveName = Literal["rank", "regression", "pack-sum"]

# AutoTVM uses many shallow trees; Ansor and MetaSchedule use deep ones.  With few measurements, trees that are trained
# on subsets of rows and features are better than either.
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {"max_depth": 6, "eta": 0.1, "subsample": 0.8, "colsample_bytree": 0.3, "rounds": 100, "patience": 100},
    "autotvm": {"max_depth": 3, "gamma": 1e-4, "min_child_weight": 1, "eta": 0.3, "rounds": 8000, "patience": 20},
    "ansor": {"max_depth": 10, "gamma": 1e-3, "min_child_weight": 0, "eta": 0.2, "rounds": 10000, "patience": 50},
}


class GBTModel(CostModel):
    """Gradient-boosted trees on features of programs; by default they start from trees trained on many tasks.

    objective  rank (pairs within a task), regression (squared error), or pack-sum: a program's score is the sum over
               its statements, squared error (needs the view `statements`)
    label      what regression learns: the score (best time / time, as the papers do) or its log
    weighted   pack-sum weights programs by their scores, as Ansor does, so that good ones matter more
    settings   default, autotvm or ansor; single values can be overridden: max_depth, eta, rounds, patience, ...
    prior      with the view `summary`: starts from the estimate of the roofline model, later weighted by its agreement
               with measurements and halved after every `half` of them; the estimate is also a feature of the trees
    pretrained with the prior, the view `summary` and the default objective, label and settings: starts from trees that
               were trained on many tasks, weighted by how well they predict the measurements; new trees learn what
               those miss
    warmup     the number of measurements required before trees are trained
    """

    name = "gbt"
    version = "2"
    earlier = {"1": {"pretrained": False}}

    def __init__(
        self,
        rng: np.random.Generator | None = None,
        view: str | None = None,
        objective: ObjectiveName = "regression",
        settings: str = "default",
        label: Literal["score", "log"] = "log",
        weighted: bool = True,
        prior: bool = True,
        pretrained: bool = True,
        half: int = 64,
        warmup: int = 16,
        threads: int = 1,
        max_depth: int | None = None,
        eta: float | None = None,
        rounds: int | None = None,
        patience: int | None = None,
    ) -> None:
        super().__init__(rng)
        if settings not in SETTINGS:
            raise ComponentError(f"gbt: unknown settings '{settings}'; known: {', '.join(SETTINGS)}")
        if objective not in ("rank", "regression", "pack-sum"):
            raise ComponentError(f"gbt: unknown objective '{objective}'; known: rank, regression, pack-sum")
        self.view = view or ("statements" if objective == "pack-sum" else "summary")
        if (self.view in RAGGED) != (objective == "pack-sum"):
            raise ComponentError(f"gbt: objective '{objective}' does not go with view '{self.view}'")
        if label not in ("score", "log"):
            raise ComponentError(f"gbt: unknown label '{label}'; known: score, log")
        self.label = label
        given = {"max_depth": max_depth, "eta": eta, "rounds": rounds, "patience": patience}
        self.settings = {**SETTINGS[settings], **{k: v for k, v in given.items() if v is not None}}
        self.objective, self.weighted, self.warmup, self.threads = objective, weighted, warmup, threads
        self.prior, self.half = prior and self.view == RooflineModel.view, half
        plain = objective == "regression" and label == "log" and settings == "default"
        self.pretrained = pretrained and self.prior and plain
        self._booster: Any = None
        self._weight = 1.0  # of the prior

    @property
    def _start(self) -> trees.PretrainedTrees | None:
        """The trees that it starts from; None if it starts from the estimate."""
        return trees.shipped() if self.pretrained else None

    def seen(self, space: Space) -> str:
        """What the trees that it starts from were trained on; they know programs for CPUs."""
        return self._start.summary if self._start is not None and self._start.knows(space) else ""

    @classmethod
    def pretrain(cls, tasks: Sequence[Trials], folder: Path, seed: int = 0) -> dict[str, Any]:
        """Trains the trees that models start from."""
        from costmodels.pretraining import train

        return train(tasks, folder, seed)

    @property
    def ready(self) -> bool:
        """Whether there is a prior, or there are trees."""
        return self.prior or self._booster is not None

    def fit(self, history: History) -> None:
        """Trains new trees on all trials, once there are enough, and sets the weight of the prior."""
        if len(history) < self.warmup:
            return
        data = training_data(history, self.view)
        if data.scores.max(initial=0.0) <= 0:
            return
        if self._start is not None:
            self._correct(self._start, history, data)
            return
        self._booster = self._train(data, _log(data.scores) if self.label == "log" else data.scores)
        if self.prior:
            self._weigh(history, data)

    def _correct(self, start: trees.PretrainedTrees, history: History, data: TrainingData) -> None:
        """Weighs the trees that it starts from by the last task, and trains new ones on what they miss."""
        parts = [t for t in history if len(t)]
        places = np.split(np.arange(len(data)), np.cumsum([len(t) for t in parts])[:-1])
        guess = np.concatenate([self._guess(data.rows[at], t.space) for at, t in zip(places, parts)])
        logs, worked = _log(data.scores), data.scores > 0
        last = places[-1][worked[places[-1]]]
        self._weight = trees.trust(guess[last], logs[last])
        missed = logs - self._weight * guess
        for at in places:  # what a task's scores have in common says nothing about its programs
            good = at[worked[at]]
            missed[at] -= missed[good].mean() if len(good) else 0.0
        self._booster = self._train(data, missed)
        self._booster.set_attr(prior=repr(self._weight), start=start.digest)

    def _weigh(self, history: History, data: TrainingData) -> None:
        """Scales the prior to the trees on the last task, weighted by its correlation with the measurements."""
        last = [t for t in history if len(t)][-1]
        rows, scores = data.rows[-len(last) :], _log(last.scores)
        trees = float(self._found(rows).std())
        guess = -estimate(rows, _threads(last.space))
        discount = max(_agreement(guess, scores), 0.0) * 2.0 ** (-len(history) / self.half)
        self._weight = discount * max(trees, _LEAST) / max(float(guess.std()), _LEAST)
        self._booster.set_attr(prior=repr(self._weight))

    def _train(self, data: TrainingData, labels: Floats) -> Any:
        import xgboost as xgb

        parameters = {k: v for k, v in self.settings.items() if k not in ("rounds", "patience")}
        parameters |= {"nthread": self.threads, "tree_method": "hist", "seed": int(self.rng.integers(1 << 31))}
        matrix = xgb.DMatrix(telling(data.rows, self.view), nthread=self.threads)
        custom: dict[str, Any] = {}
        if self.objective == "pack-sum":
            loss = PackSum(data, self.weighted)
            parameters |= {"base_score": 0.0}
            custom = {"obj": loss.gradient, "custom_metric": loss.error}
        else:
            matrix.set_info(label=labels)
            parameters |= {"objective": "reg:squarederror"}
        if self.objective == "rank":
            matrix.set_info(qid=data.task)
            # every program against all better ones, up to a limit that bounds the cost
            pairs = {"lambdarank_pair_method": "topk", "lambdarank_num_pair_per_sample": min(len(data), _PAIRS)}
            parameters |= {"objective": "rank:pairwise", **pairs}
            custom = {"custom_metric": lambda predicted, _: ("missed", missed(predicted, data))}
        if custom:
            parameters |= {"disable_default_eval_metric": 1}
        stop = xgb.callback.EarlyStopping(rounds=self.settings["patience"], min_delta=1e-5, save_best=True)
        watched = {"evals": [(matrix, "train")], "callbacks": [stop], "verbose_eval": False}
        return xgb.train(parameters, matrix, num_boost_round=self.settings["rounds"], **watched, **custom)

    def predict(self, space: Space, points: Points) -> Floats:
        """The negated margins."""
        return -self.margins(space, points)

    def margins(self, space: Space, points: Points) -> Floats:
        """The score of every program, larger for programs predicted to be faster."""
        rows, owner = features(space, points, self.view)
        guess = self._weight * self._guess(rows, space) if self.prior else 0.0
        if self._booster is None:
            return np.asarray(guess)
        found = self._found(rows)
        if self.objective == "pack-sum":
            return np.asarray(np.bincount(owner, found, len(points)), np.float64)
        return np.asarray(found + guess)

    def _found(self, rows: Floats) -> Floats:
        """What the trees say of rows, by the columns on which they were trained."""
        known = np.ascontiguousarray(rows[:, : self._booster.num_features()])
        return np.asarray(self._booster.inplace_predict(known, predict_type="margin"), np.float64)

    def _guess(self, rows: Floats, space: Space) -> Floats:
        """The scores before anything was measured."""
        start = self._start
        if start is None or not start.knows(space):
            return -estimate(rows, _threads(space))
        return start.scores(rows, space.target)

    def save(self, path: Path) -> None:
        """Writes the trees, and the features on which they were trained."""
        write_card(path, self.name, self.view)
        if self._booster is not None:
            self._booster.save_model(path.with_suffix(".ubj"))

    def load(self, path: Path) -> None:
        """Reads the trees, which must have been trained on the same features."""
        import xgboost as xgb

        check_card(path, self.name, self.view)
        if not path.with_suffix(".ubj").exists():  # it was saved before its first training
            self._booster, self._weight = None, 1.0
            return
        self._booster = xgb.Booster({"nthread": self.threads})
        self._booster.load_model(path.with_suffix(".ubj"))
        self._weight = float(self._booster.attr("prior") or 0.0)
        saved = self._booster.attr("start")
        self.pretrained = saved is not None  # it goes on as it was trained
        if saved is not None and (self._start is None or self._start.digest != saved):
            raise ComponentError(f"{path}: it starts from pretrained trees {saved}, which are not those shipped")


class PackSum:
    """Squared error of a program's score, predicted as the sum over the rows of its statements."""

    def __init__(self, data: TrainingData, weighted: bool) -> None:
        self._owner, self._scores = data.owner, data.scores
        # a failure has score 0, but still needs some weight
        self._weights = np.maximum(data.scores, 0.05) if weighted else np.ones(len(data))

    def _sums(self, predicted: Floats) -> Floats:
        return np.asarray(np.bincount(self._owner, predicted, len(self._scores)), np.float64)

    def gradient(self, predicted: Floats, _: Any) -> tuple[Floats, Floats]:
        """The gradient, the error of a program's sum for each of its rows, and the Hessian."""
        weight = self._weights[self._owner]
        return (self._sums(predicted) - self._scores)[self._owner] * weight, weight

    def error(self, predicted: Floats, _: Any) -> tuple[str, float]:
        """The name and value of the metric: the weighted root mean squared error of programs' scores."""
        off = self._sums(predicted) - self._scores
        return "pack_rmse", float(np.sqrt(np.average(off * off, weights=self._weights)))


def _agreement(a: Floats, b: Floats) -> float:
    """The correlation of two columns; close to zero if one of them is nearly constant."""
    together = float(np.mean((a - a.mean()) * (b - b.mean())))
    return together / (max(float(a.std()), _LEAST) * max(float(b.std()), _LEAST))


def _threads(space: Space) -> int:
    return 1 if space.target is None else space.target.threads


def _log(scores: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(scores, _WORST)))


def missed(predicted: Floats, data: TrainingData, most: int = 64) -> float:
    """The share of a task's best n programs that are not in the predicted top n, averaged over n and tasks."""
    found = []
    for task in np.unique(data.task):
        rows = np.flatnonzero(data.task == task)
        place = np.argsort(np.argsort(-data.scores[rows], kind="stable"))  # 0 for the best
        favoured = place[np.argsort(-predicted[rows], kind="stable")][:most]
        n = np.arange(len(favoured))
        hits = np.tril(favoured[None, :] <= n[:, None]).sum(axis=1)
        found.append(1.0 - float(np.mean(hits / (n + 1))))
    return float(np.mean(found))
