"""The accuracy of cost models: predictions compared with the measurements that followed."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from searchlab.lab.report.blocks import Column, Figure, Section, TableBlock, TableCell
from searchlab.lab.report.drawing import Axis, Series, line_chart
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import digits, share
from searchlab.lab.results import CellResult

_MEASURES = (
    Column(
        "pairs in order",
        True,
        "fraction of pairs of candidates that the model put in the right order; 50 % is guessing",
    ),
    Column(
        "top quarter found", True, "fraction of the fastest quarter that is in the model's predicted fastest quarter"
    ),
    Column("regret", True, "how much slower the model's favourite of a batch was than the batch's best"),
    Column("rank correlation", True, "Spearman's correlation of predicted and measured order"),
)
_KEYS = ("pairwise", "recall", "regret", "correlation")


def section(material: Material) -> Section | None:
    """Accuracy over trials, and a table of the second half of every search; None if there was no model."""
    judged = {e: found for e in material.order if (found := _judged(material.of_entry(e)))}
    if not judged:
        return None
    series = [_series(material, e, judged[e]) for e in material.entries if e in judged]
    x, y = Axis("trials", low=0.0), Axis("pairs in the right order, higher is better", percent=True, high=1.0)
    figure = Figure(
        "model-quality",
        "How well predictions agreed with the measurements that followed",
        "Fraction of pairs of candidates in a batch that the model put in the right order before they were measured; "
        "the dashed line is guessing. Line: mean over tasks and seeds, band: quartiles.",
        lambda width: line_chart(series, x, y, width, level=0.5),
    )
    return Section("models", "Cost models", (figure, _table(material, judged)))


def _judged(cells: tuple[CellResult, ...]) -> list[tuple[float, dict[str, float]]]:
    """(fraction of the trials done, accuracy measures) of every round for which a model made predictions."""
    return [
        (r.trials / max(len(c.seconds), 1), {**asdict(r.quality), "trials": float(r.trials)})
        for c in cells
        for r in c.rounds
        if r.quality is not None
    ]


def _series(material: Material, entry: str, judged: list[tuple[float, dict[str, float]]]) -> Series:
    by_trials: dict[float, list[float]] = {}
    for _, q in judged:
        by_trials.setdefault(q["trials"], []).append(q["pairwise"])
    xs = sorted(by_trials)
    low, high = (np.array([np.quantile(by_trials[x], q) for x in xs]) for q in (0.25, 0.75))
    middle = np.array([np.mean(by_trials[x]) for x in xs])
    return Series(material.looks[entry], np.array(xs), middle, np.minimum(low, middle), np.maximum(high, middle))


def _table(material: Material, judged: dict[str, list[tuple[float, dict[str, float]]]]) -> TableBlock:
    rows = []
    for entry, found in judged.items():
        late = [q for done, q in found if done > 0.5] or [q for _, q in found]
        means = [float(np.mean([v for q in late if np.isfinite(v := q.get(k, np.nan))] or [np.nan])) for k in _KEYS]
        texts = [share(means[0]), share(means[1]), share(means[2]), digits(means[3], 2)]
        rows.append((TableCell(entry, look=material.looks[entry]), *(TableCell(t, v) for t, v in zip(texts, means))))
    caption = "Cost models in the second half of each search: means over batches, tasks and seeds"
    return TableBlock("model-table", caption, (Column("entry"), *_MEASURES), tuple(rows))
