"""SpaceGenerator: the interface of the plug-ins in spaces/, which create the search space of a task."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

from searchlab.errors import SpaceError
from searchlab.registry import Component, Registry
from searchlab.search.garbage import uncollected
from searchlab.search.likeness import like_default
from searchlab.search.points import Points
from searchlab.search.progress import say
from searchlab.search.returned import seeded, sketched
from searchlab.search.sketch import Sketch
from searchlab.search.space import Space
from searchlab.search.task import Task

BUILDING = "building the search space"
_log = logging.getLogger(__name__)


class SpaceGenerator(ABC):
    """Creates the space of a task; a plug-in implements `sketches`, everything else is inherited.

    `version` changes when points with the same values no longer give the same programs, so that old records are not
    mistaken for new ones, and `earlier` has, for versions of the past, options with which a search still goes the same
    way.  Options are the parameters of the constructor.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    earlier: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @abstractmethod
    def sketches(self, task: Task) -> Iterable[Sketch]:
        """The structures that the task's program may take, each with its knobs; every call yields the same ones."""

    def space(self, task: Task) -> Space:
        """The space of a task."""
        found: list[Sketch] = []
        with uncollected():
            for sketch in sketched(self, self.sketches(task)):
                found.append(sketch)
                say(f"{BUILDING} ({len(found)} structures so far)")
        if not found:
            raise SpaceError(f"space '{self.name}' has nothing for {task.workload.label}")
        return Space(found, self.name, self.version, task.target)

    def seeds(self, task: Task, space: Space) -> Points:
        """Points from which searches should start, best first: a few that are valid and distinct, always the same ones.

        A generator that knows which of its points are fast says so here (`searchlab.search.wishes` helps); by default
        these are the points whose programs are most like the default schedule.
        """
        return like_default(task, space)


SPACES: Registry[SpaceGenerator] = Registry("space", "searchlab.spaces", SpaceGenerator)  # type: ignore[type-abstract]


def space(component: Component | SpaceGenerator, task: Task) -> Space:
    """The space of a task; the generator is given by name, as {name: {options}}, as "module:Class" or as an object."""
    generator = SPACES.make(component)
    say(BUILDING)
    start = time.perf_counter()
    found = generator.space(task)
    seconds = time.perf_counter() - start
    _log.info("space '%s' of %s: %d structures in %.1f s", found.name, task, len(found.sketches), seconds)
    found.seed_with(partial(seeds, generator, task, found))
    return found


def seeds(generator: SpaceGenerator, task: Task, space: Space) -> Points:
    """The seeds that a generator gives for a space of its own, validated."""
    return seeded(generator, generator.seeds(task, space), space)
