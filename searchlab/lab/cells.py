"""The cells of an experiment: every combination on every task with every seed.

for cell in cells(load("experiment.yaml")):
    print(cell.id, cell.entry, cell.task, cell.seed)
"""

from __future__ import annotations

from searchlab.lab.config.experiment import Experiment
from searchlab.lab.config.subjects import subjects
from searchlab.lab.history.origins import digest
from searchlab.lab.manifest import Cell


def cells(experiment: Experiment) -> tuple[Cell, ...]:
    """All cells, seed by seed and task by task, so that the finished cells of an interrupted run are comparable."""
    entries = [(entry, tuple(map(digest, entry.settings.history))) for entry in experiment.entries]
    found = subjects(experiment.workloads)
    return tuple(
        Cell(entry.name, entry.factors, subject, entry.settings, seed, learnt)
        for seed in experiment.seeds
        for subject in found
        for entry, learnt in entries
    )
