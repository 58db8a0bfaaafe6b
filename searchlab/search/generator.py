"""SpaceGenerator: what makes the search space of a task; the plug-ins in spaces/ are such generators."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from searchlab.errors import SpaceError
from searchlab.registry import Component, Registry
from searchlab.search.returned import sketched
from searchlab.search.sketch import Sketch
from searchlab.search.space import Space
from searchlab.search.task import Task


class SpaceGenerator(ABC):
    """Makes the space of a task; a plug-in writes `sketches`, everything else is inherited.

    `version` changes when points with the same values are no longer the same programs, so that old records are not
    taken for new ones.  Options are the parameters of the constructor.
    """

    name: ClassVar[str]
    version: ClassVar[str]

    @abstractmethod
    def sketches(self, task: Task) -> Iterable[Sketch]:
        """The structures that the task's program may take, each with its knobs; the same for every call."""

    def space(self, task: Task) -> Space:
        """The space of a task."""
        with _uncollected():
            found = sketched(self, self.sketches(task))
        if not found:
            raise SpaceError(f"space '{self.name}' has nothing for {task.workload.label}")
        return Space(found, self.name, self.version, task.target)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Holds the garbage collector back: a space is made of very many small objects, and nearly all of them stay."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


SPACES: Registry[SpaceGenerator] = Registry("space", "searchlab.spaces", SpaceGenerator)  # type: ignore[type-abstract]


def space(component: Component | SpaceGenerator, task: Task) -> Space:
    """The space of a task by name, {name: {options}}, "module:Class" or from a generator."""
    return SPACES.make(component).space(task)
