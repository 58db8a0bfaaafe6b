"""Outdated cells: those that ran different code from today's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from searchlab.lab.code.versions import Code


@dataclass(frozen=True)
class Outdated:
    """The cells that ran an earlier version of a component, keyed by component: their ids and labels."""

    by_component: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_component)

    def __str__(self) -> str:
        return "; ".join(self.said)

    @property
    def said(self) -> list[str]:
        """The changed components and the affected cells, as text."""
        return [f"{name} ({_cells(list(cells.values()))})" for name, cells in self.by_component.items()]

    def without(self, components: Iterable[str]) -> Outdated:
        """A copy without some components."""
        left = self.by_component.keys() - set(components)
        return Outdated({name: cells for name, cells in self.by_component.items() if name in left})

    @property
    def cells(self) -> tuple[str, ...]:
        """The ids of all outdated cells."""
        return tuple(dict.fromkeys(i for cells in self.by_component.values() for i in cells))


def outdated(ran: Iterable[tuple[str, str, Code]], now: Mapping[str, Code]) -> Outdated:
    """Finds outdated cells: `ran` has the id, label and code of started cells, `now` today's code, keyed by id.

    A component that is missing on either side is left out, since it cannot be compared.
    """
    found: dict[str, dict[str, str]] = {}
    for cell, label, code in ran:
        for name in changed(code, now.get(cell, {})):
            found.setdefault(name, {})[cell] = label
    return Outdated(found)


def changed(ran: Code, now: Code) -> tuple[str, ...]:
    """The components that ran in a different version from today's."""
    return tuple(name for name, version in ran.items() if now.get(name, version) != version)


def _cells(labels: list[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{len(labels)} cells, such as {labels[0]}"
