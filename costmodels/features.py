"""From a history to training data: features of measured programs, labels per task, and which rows belong together."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from searchlab.analysis import Ragged, schema
from searchlab.errors import ComponentError
from searchlab.search import Points, Space, Trials
from searchlab.search.knob import Floats, Ints

RAGGED = ("statements",)


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Measured programs as a model learns from them.

    `rows` are features, `owner` says which program each row belongs to (statement by statement, or one row each),
    `scores` how good each program was among those of its task (1 the best, 0 a failure), `task` which task that was.
    """

    rows: Floats
    owner: Ints
    scores: Floats
    task: Ints

    def __len__(self) -> int:
        return len(self.scores)


def features(space: Space, points: Points, view: str) -> tuple[Floats, Ints]:
    """The rows of a population and the number of the point that each belongs to."""
    found = space.features(points, view)
    if isinstance(found, Ragged):
        return found.rows, found.segments
    return np.asarray(found, np.float32), np.arange(len(points))


def training_data(history: Iterable[Trials], view: str) -> TrainingData:
    """All that was measured; labels are comparable within a task only."""
    parts = [t for t in history if len(t)]
    found = [features(t.space, t.points, view) for t in parts]
    widths = {rows.shape[1] for rows, _ in found}
    if len(widths) > 1:
        raise ValueError(f"view '{view}' has {len(widths)} widths over these spaces: it does not transfer between them")
    sizes = [len(t) for t in parts]
    starts = np.cumsum([0, *sizes])
    return TrainingData(
        np.concatenate([rows for rows, _ in found]),
        np.concatenate([owner + start for (_, owner), start in zip(found, starts[:-1], strict=True)]),
        np.concatenate([t.scores for t in parts]),
        np.repeat(np.arange(len(parts)), sizes),
    )


def write_card(path: Path, name: str, view: str) -> None:
    """Writes which features a saved model was trained on beside it."""
    path.with_suffix(".json").write_text(json.dumps({"model": name, **_card(view)}))


def check_card(path: Path, name: str, view: str) -> None:
    """Refuses a saved model of another kind, or of features that mean something else today."""
    card = path.with_suffix(".json")
    try:
        found = json.loads(card.read_text())
    except (OSError, ValueError) as e:
        raise ComponentError(f"{card}: cannot be read as what a saved {name} model was trained on: {e}") from None
    wanted = {"model": name, **_card(view)}
    if found != wanted:
        raise ComponentError(f"{card}: this model was saved as {found}, which is not the {wanted} that is asked for")


def _card(view: str) -> dict[str, object]:
    if view == "knobs":  # as wide as the space has it
        return {"view": view}
    known = schema(view)
    return {"view": view, "version": known.version, "width": known.width}
