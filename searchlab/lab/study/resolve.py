"""What a study is made of: subject, model, strategy and measurer, from the forms in which they are given."""

from __future__ import annotations

from typing import Any

from searchlab.lab import auto
from searchlab.lab.study.seeds import Seeds
from searchlab.lab.study.subject import Subject, TableSubject, TaskSubject
from searchlab.measure import Limits, Measurer, Protocol
from searchlab.measure.recorded.tables import Table
from searchlab.registry import Component
from searchlab.search import MODELS, STRATEGIES, CostModel, SpaceGenerator, Strategy, Task
from searchlab.search.generator import space as space_of


def subject(
    given: Task | Table | Subject, space: Component | SpaceGenerator, protocol: Protocol | None, limits: Limits | None
) -> Subject:
    """What is searched."""
    if isinstance(given, Subject):
        return given
    if isinstance(given, Table):
        return TableSubject(given)
    return TaskSubject(given, space_of(space, given), protocol or Protocol(), limits or Limits())


def model(given: Component | CostModel | None, subject: Subject, seeds: Seeds) -> CostModel | None:
    """The model, or the one that suits the subject; the one that is called none is none."""
    chosen = auto.model(isinstance(subject, TableSubject)) if given == auto.AUTO else given
    found = None if chosen is None else MODELS.make(chosen, rng=seeds.generator("model"))
    return None if found is not None and found.name == auto.NO_MODEL else found


def strategy(given: Component, subject: Subject, model: CostModel | None, seeds: Seeds) -> Strategy:
    """The strategy, or the one that suits the subject and the model."""
    fitting = auto.strategy(isinstance(subject, TableSubject), model is not None)
    chosen = fitting if given == auto.AUTO else given
    found = STRATEGIES.make(chosen, space=subject.space, rng=seeds.generator("strategy"))
    found.expects_model = model is not None
    return found


def measurer(subject: Subject) -> Measurer[Any]:
    """The measurer of a study that was given none."""
    if isinstance(subject, TableSubject):
        from searchlab.measure.recorded.replayer import ReplayMeasurer

        return ReplayMeasurer(subject.table)
    from searchlab.measure.local import LocalMeasurer

    return LocalMeasurer()
