"""`auto`: the cost model and the strategy that suit what is searched, where nobody has chosen them.

Tasks have programs, which a model learns to tell apart.  Recorded tables have none, and there the strategy that needs
fewest measurements without a model is the choice.
"""

from __future__ import annotations

AUTO = "auto"
NO_MODEL = "none"


def model(recorded: bool) -> str:
    """The cost model for tasks, or for recorded tables."""
    return NO_MODEL if recorded else "gbt"


def strategy(recorded: bool, modelled: bool) -> str:
    """The strategy; `modelled` says whether it, or one that it is compared with, has a cost model.

    Those that are compared get the same one, so that with and without a model differ in nothing but the model.
    """
    return "bayesian" if recorded and not modelled else "evolutionary"
