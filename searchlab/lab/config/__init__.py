"""Experiments: from YAML to a checked value, or to a message that says what is wrong, where, and what is accepted."""

from searchlab.lab.config.loading import dump, from_data, load
from searchlab.lab.config.measuring import Local, Measure, Ray, Replay
from searchlab.lab.config.models import Ablate, Budget, Claim, Experiment, Report, Sweep
from searchlab.lab.config.selectors import matches

__all__ = [
    "Ablate", "Budget", "Claim", "Experiment", "Local", "Measure", "Ray", "Replay", "Report", "Sweep",
    "dump", "from_data", "load", "matches",
]  # fmt: skip
