"""`auto`: the default cost model and strategy for a subject.

Tasks have programs, from which a model can learn.  Recorded tables and streams have none; for them the default is the
strategy that needs the fewest measurements without a model.
"""

from __future__ import annotations

AUTO = "auto"
NO_MODEL = "none"


def model(builds: bool) -> str:
    """The cost model for tasks, or for what has no programs."""
    return "gbt" if builds else NO_MODEL


def strategy(builds: bool, modelled: bool) -> str:
    """The strategy; `modelled` says whether this combination, or one it is compared with, has a cost model.

    Combinations that are compared get the same strategy, so that runs with and without a model differ only in the
    model.
    """
    return "bayesian" if not builds and not modelled else "evolutionary"
