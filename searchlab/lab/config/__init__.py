"""Experiments: from YAML to a checked value, or to a message that says what is wrong, where, and what is accepted."""

from searchlab.lab.config.experiment import Ablate, Claim, Experiment, ReportSettings, Sweep
from searchlab.lab.config.loading import dump, from_data, load
from searchlab.lab.config.measuring import LocalMeasure, Measure, Ray, Replay
from searchlab.lab.config.search_settings import Budget
from searchlab.lab.config.selectors import matches

__all__ = [
    "Ablate", "Budget", "Claim", "Experiment", "LocalMeasure", "Measure", "Ray", "Replay", "ReportSettings", "Sweep",
    "dump", "from_data", "load", "matches",
]  # fmt: skip
