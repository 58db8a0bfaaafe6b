"""`auto`: the default cost model and strategy for a subject.

Tasks have programs, from which a model can learn.  Recorded tables have none; for them the default is the strategy
that needs the fewest measurements without a model.
"""

from __future__ import annotations

AUTO = "auto"
NO_MODEL = "none"


def model(recorded: bool) -> str:
    """The cost model for tasks, or for recorded tables."""
    return NO_MODEL if recorded else "gbt"


def strategy(recorded: bool, modelled: bool) -> str:
    """The strategy; `modelled` says whether this combination, or one it is compared with, has a cost model.

    Combinations that are compared get the same strategy, so that runs with and without a model differ only in the
    model.
    """
    return "bayesian" if recorded and not modelled else "evolutionary"
