"""The components of a study, made from the forms in which they are given: model and strategy."""

from __future__ import annotations

from searchlab.lab import auto
from searchlab.lab.study.seeds import Seeds
from searchlab.lab.study.subject import SpaceSubject
from searchlab.registry import Component
from searchlab.search import MODELS, STRATEGIES, CostModel, Strategy


def model(given: Component | CostModel | None, subject: SpaceSubject, seeds: Seeds) -> CostModel | None:
    """The model, or the one that suits the subject; the one that is called none is None."""
    chosen = auto.model(subject.recorded) if given == auto.AUTO else given
    found = None if chosen is None else MODELS.make(chosen, rng=seeds.generator("model"))
    return None if found is not None and found.name == auto.NO_MODEL else found


def strategy(given: Component, subject: SpaceSubject, model: CostModel | None, seeds: Seeds) -> Strategy:
    """The strategy, or the one that suits the subject and the model."""
    fitting = auto.strategy(subject.recorded, model is not None)
    chosen = fitting if given == auto.AUTO else given
    found = STRATEGIES.make(chosen, space=subject.space, rng=seeds.generator("strategy"))
    found.expects_model = model is not None
    return found
