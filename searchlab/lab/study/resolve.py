"""Resolves the model and strategy of a study from the forms in which they may be given."""

from __future__ import annotations

from searchlab.lab import auto
from searchlab.lab.study.seeds import Seeds
from searchlab.lab.study.subject import SpaceSubject
from searchlab.registry import Component
from searchlab.search import MODELS, STRATEGIES, CostModel, Strategy


def model(given: Component | CostModel | None, subject: SpaceSubject, seeds: Seeds) -> CostModel | None:
    """The given model, or for `auto` the one that suits the subject; None for the model named none."""
    chosen = auto.model(subject.builds) if given == auto.AUTO else given
    found = None if chosen is None else MODELS.make(chosen, rng=seeds.generator("model"))
    return None if found is not None and found.name == auto.NO_MODEL else found


def strategy(given: Component, subject: SpaceSubject, model: CostModel | None, seeds: Seeds) -> Strategy:
    """The given strategy, or for `auto` the one that suits the subject and the model."""
    fitting = auto.strategy(subject.builds, model is not None)
    chosen = fitting if given == auto.AUTO else given
    found = STRATEGIES.make(chosen, space=subject.space, rng=seeds.generator("strategy"))
    found.expects_model = model is not None
    return found
