"""Data that knows where it was written: dictionaries and lists that keep a place for each of their values."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from searchlab.errors import ConfigError

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, or an override on the command line (then `line` is 0)."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def path(self, text: str) -> pathlib.Path:
        """The path that is meant by what was written here: beside the file, or from the current folder."""
        base = pathlib.Path(self.file).parent if self.line else pathlib.Path()
        return (base / os.path.expanduser(text)).absolute()


class Map(dict[str, Any]):
    """A dictionary; `places` says where each value was written, `place` where the whole was."""

    def __init__(self, place: Place, items: Iterable[tuple[str, Any, Place]] = ()) -> None:
        super().__init__()
        self.place = place
        self.places: dict[str, Place] = {}
        for key, value, where in items:
            self.put(key, value, where)

    def put(self, key: str, value: Any, place: Place) -> None:
        """Sets a value that was written at a place."""
        self[key] = value
        self.places[key] = place

    def at(self, key: str) -> Place:
        """Where the value of a key was written."""
        return self.places.get(key, self.place)


class PlacedList(list[Any]):
    """A list; `places` says where each item was written."""

    def __init__(self, place: Place, items: Iterable[tuple[Any, Place]] = ()) -> None:
        pairs = list(items)
        super().__init__(value for value, _ in pairs)
        self.place = place
        self.places = [where for _, where in pairs]

    def at(self, number: int) -> Place:
        """Where an item was written."""
        return self.places[number] if number < len(self.places) else self.place


class Problems:
    """Collected errors with their places; all are raised together, file by file and line by line."""

    def __init__(self) -> None:
        self.found: list[tuple[Place, str]] = []

    def add(self, place: Place, message: str) -> None:
        """Notes that something is wrong; what was noted before is not noted again."""
        if (place, message) not in self.found:
            self.found.append((place, message))

    def raise_any(self) -> None:
        """Raises all that was noted, if anything was."""
        if self.found:
            files = list(dict.fromkeys(place.file for place, _ in self.found))
            ordered = sorted(self.found, key=lambda f: (files.index(f[0].file), f[0].line))
            raise ConfigError(*(f"{place}: {message}" for place, message in ordered))


def placed(data: Any, place: Place) -> Any:
    """Plain data as a tree, all of it at one place; what is a tree already is copied with its places."""
    if isinstance(data, Mapping):
        at = data.at if isinstance(data, Map) else lambda _: place
        whole = data.place if isinstance(data, Map) else place
        return Map(whole, ((str(k), placed(v, at(k)), at(k)) for k, v in data.items()))
    if isinstance(data, Sequence) and not isinstance(data, str):
        spot = data.at if isinstance(data, PlacedList) else lambda _: place
        whole = data.place if isinstance(data, PlacedList) else place
        return PlacedList(whole, ((placed(v, spot(n)), spot(n)) for n, v in enumerate(data)))
    return data


def unplaced(data: Any) -> Any:
    """A tree as plain dictionaries and lists, without its places."""
    if isinstance(data, Mapping):
        return {k: unplaced(v) for k, v in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [unplaced(v) for v in data]
    return data


def find(tree: Any, path: Path, default: Place) -> Place:
    """Where the value at a path was written: as much of the path as there is."""
    place = default
    for step in path:
        listed = isinstance(tree, PlacedList) and isinstance(step, int) and step < len(tree)
        if not listed and not (isinstance(tree, Map) and step in tree):
            break
        place, tree = tree.at(step), tree[step]
    return place
