"""From a history to training data: features of measured programs, labels per task, and the grouping of rows."""

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
    """Measured programs in the form used for training.

    `rows` holds features, `owner` the program of each row (one row per statement, or one per program), `scores` the
    score of each program within its task (1 the best, 0 a failure), and `task` the task of each program.
    """

    rows: Floats
    owner: Ints
    scores: Floats
    task: Ints

    def __len__(self) -> int:
        return len(self.scores)


def features(space: Space, points: Points, view: str) -> tuple[Floats, Ints]:
    """The feature rows of a population, and the point to which each belongs."""
    found = space.features(points, view)
    if isinstance(found, Ragged):
        return found.rows, found.segments
    return np.asarray(found, np.float32), np.arange(len(points))


def telling(rows: Floats, view: str) -> Floats:
    """The rows without the columns that the view gained last, where these say nothing: trees draw columns at random.

    So models of tasks that none of these columns is about are what they were before there were such columns.
    """
    for group in () if view == "knobs" else reversed(schema(view).groups):
        if rows[:, -group:].any():
            break
        rows = rows[:, :-group]
    return rows


def training_data(history: Iterable[Trials], view: str) -> TrainingData:
    """All measurements as training data; labels are comparable only within a task."""
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
    """Writes a file beside a saved model that says on which features it was trained."""
    path.with_suffix(".json").write_text(json.dumps({"model": name, **_card(view)}))


def check_card(path: Path, name: str, view: str) -> None:
    """Rejects a saved model of another kind, or one trained on features whose meaning has changed."""
    card = path.with_suffix(".json")
    try:
        found = json.loads(card.read_text())
    except (OSError, ValueError) as e:
        raise ComponentError(f"{card}: cannot be read as what a saved {name} model was trained on: {e}") from None
    wanted = {"model": name, **_card(view)}
    if found != wanted:
        raise ComponentError(f"{card}: this model was saved as {found}, which is not the {wanted} that is asked for")


def _card(view: str) -> dict[str, object]:
    if view == "knobs":  # its width depends on the space
        return {"view": view}
    known = schema(view)
    return {"view": view, "version": known.version, "width": known.width}
