"""Trees that have seen programs before: trained on a data set of many tasks, shipped, and the start of new searches.

They predict the logarithm of a program's time relative to the others of its task.  What they look at is the view
`summary`, the analytical estimate, the machine, and all sums relative to the number of operations, since inefficiency
means the same in tasks of any size.  Their card names the columns that they were trained on, and they pick these by
name: a view that has gained columns since is no reason to train again.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from costmodels.roofline import estimate
from searchlab.analysis import schema
from searchlab.errors import ComponentError
from searchlab.search import Space
from searchlab.search.knob import Floats
from searchlab.targets import CudaTarget, Target, cpu_of

VIEW = "summary"
SHIPPED = Path(__file__).with_name("shipped")
_TREES, _CARD = "gbt.ubj", "gbt.json"
_DOUBT = 0.5  # the standard deviation of the slope that is expected before anything is measured
_NOISE = 0.05  # the least standard deviation of the logarithm of a time
_MOST_TRUST = 1.5
_TINY = 1e-12
_MOST = 4.0  # the largest logarithm of a time, relative to the typical one, that counts


@dataclass(frozen=True, eq=False)
class PretrainedTrees:
    """The trees and their card, which says what they were trained on; `digest` identifies them."""

    booster: Any
    card: dict[str, Any]
    digest: str

    def scores(self, rows: Floats, target: Target | None) -> Floats:
        """The score of every program from its features: the logarithm of its speed, up to a constant of the task."""
        found = self.booster.inplace_predict(inputs(rows, target, self.columns), predict_type="margin")
        return -np.clip(np.asarray(found, np.float64), -_MOST, _MOST)

    def knows(self, space: Space) -> bool:
        """Whether they can say something about the programs of a space: not about calls, if they have seen none, nor
        about GPUs."""
        return not isinstance(space.target, CudaTarget) and (not space.tensorized or self.card.get("called", 0) > 0)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the view that they were trained on, in their order."""
        return tuple(self.card["columns"])

    @property
    def summary(self) -> str:
        """What they have seen, in words."""
        return f"trees trained on {self.card['programs']} programs of {self.card['tasks']} tasks"


def trust(scores: Floats, measured: Floats) -> float:
    """The weight of scores, given logarithms of measured scores of the same programs: 1 until these say otherwise.

    It is the slope by which the scores predict the measurements, drawn towards 1 as if a few programs had confirmed it.
    Programs that all have the same score say nothing about it; those whose order is the reverse bring it to zero.
    """
    if len(scores) < 2:
        return 1.0
    x, y = scores - scores.mean(), measured - measured.mean()
    spread = float(x @ x)
    slope = float(x @ y) / max(spread, _TINY)
    noise = max(float(np.mean((y - slope * x) ** 2)), _NOISE**2)
    prior = noise / _DOUBT**2
    return float(np.clip((prior + spread * slope) / (prior + spread), 0.0, _MOST_TRUST))


def inputs(rows: Floats, target: Target | None, columns: tuple[str, ...]) -> Floats:
    """What trees look at that were trained on some columns of the view `summary`, from features of the whole view."""
    own, flops_at, sums = _places(columns)
    threads, bits, registers = _machine(target)
    guess = estimate(rows, threads)[:, None]
    seen = rows[:, own]
    flops = seen[:, flops_at][:, None]
    machine = np.tile(np.array([[threads, bits, registers]], np.float32), (len(rows), 1))
    relative = [guess - np.log(2.0) * flops, seen[:, sums] - flops]
    return np.concatenate([seen, guess, machine, *relative], axis=1).astype(np.float32)


@cache
def _places(columns: tuple[str, ...]) -> tuple[slice | list[int], int, list[int]]:
    """Where columns are in the view of today, and among them the number of operations and the other sums."""
    now = schema(VIEW).columns
    at = {name: n for n, name in enumerate(columns)}
    sums = [n for name, n in at.items() if name.startswith("all_") and name != "all_flops"]
    # those of an earlier day are the first ones as a rule, which need no copy
    own = slice(len(columns)) if now[: len(columns)] == columns else [now.index(name) for name in columns]
    return own, at["all_flops"], sums


def _machine(target: Target | None) -> tuple[int, int, int]:
    """Threads, bits of a vector, and vector registers; those of an ordinary machine if it is not known."""
    if target is None:
        return 1, 256, 16
    return target.threads, cpu_of(target).vector_bits, target.vector_registers


def write(folder: Path, booster: Any, about: dict[str, Any]) -> dict[str, Any]:
    """Writes trees and their card: what is said about them, and which file of trees it is about."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = bytes(booster.save_raw("ubj"))
    (folder / _TREES).write_bytes(raw)
    card = {**about, "trees": _digest(raw)}
    (folder / _CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return card


def _digest(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=6).hexdigest()


def read(folder: Path) -> PretrainedTrees:
    """The trees in a folder; refused if they were trained on features that mean something else today, or are gone."""
    import xgboost as xgb

    try:
        card = read_card(folder)
        raw = (folder / _TREES).read_bytes()
        trained, now, trees = (card["view"], card["version"]), schema(VIEW), card["trees"]
        missing = [name for name in card["columns"] if name not in now.columns]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise ComponentError(f"{folder} has no pretrained trees that can be read: {type(e).__name__}: {e}") from None
    if trained != (VIEW, now.version):
        raise ComponentError(
            f"{folder}: trees trained on version {trained[1]} of the view '{trained[0]}', but this searchlab has"
            f" version {now.version} of '{VIEW}'"
        )
    if missing:
        raise ComponentError(
            f"{folder}: trees trained on columns of the view '{VIEW}' that this searchlab does not have:"
            f" {', '.join(missing)}"
        )
    if _digest(raw) != trees:  # xgboost may crash on what is not trees
        raise ComponentError(f"{folder / _TREES} is damaged: it is not the file that its card was written for")
    booster = xgb.Booster({"nthread": 1})
    booster.load_model(bytearray(raw))
    return PretrainedTrees(booster, card, trees)


def read_card(folder: Path = SHIPPED) -> dict[str, Any]:
    """The card of the trees in a folder."""
    found: dict[str, Any] = json.loads((folder / _CARD).read_text(encoding="utf-8"))
    return found


@cache
def shipped(folder: Path = SHIPPED) -> PretrainedTrees | None:
    """The trees that come with searchlab; None, with a warning, if they cannot be used."""
    try:
        return read(folder)
    except ComponentError as e:
        warnings.warn(f"{e}; gbt starts from the analytical estimate instead", stacklevel=2)
        return None
