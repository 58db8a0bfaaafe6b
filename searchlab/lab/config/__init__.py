"""Experiments: from YAML to a checked value, or to a message that says what is wrong, where, and what is accepted.

Loading checks histories and components with parts of the laboratory that are built on the models of an experiment, so
that it is imported only when it is asked for.
"""

from typing import TYPE_CHECKING, Any

from searchlab.lab.config.experiment import Ablate, Claim, Experiment, ReportSettings, Sweep
from searchlab.lab.config.measuring import LocalMeasure, Measure, Ray, Replay
from searchlab.lab.config.search_settings import Budget
from searchlab.lab.config.selectors import matches

if TYPE_CHECKING:
    from searchlab.lab.config.loading import dump, from_data, load, load_resolved

__all__ = [
    "Ablate", "Budget", "Claim", "Experiment", "LocalMeasure", "Measure", "Ray", "Replay", "ReportSettings", "Sweep",
    "dump", "from_data", "load", "load_resolved", "matches",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in ("dump", "from_data", "load", "load_resolved"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from searchlab.lab.config import loading

    return getattr(loading, name)
