"""Components by name: spaces, cost models and strategies are plug-ins, found by entry point or import path.

A component is written as a name, as {name: {options}}, or as "module:Class".
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from searchlab.errors import ComponentError
from searchlab.named import Named

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
Component = str | Mapping[str, Any]


def nearest(word: str, known: Iterable[str], kinds: str = "known") -> str:
    """The end of an error message: the closest accepted name, if any is close, and all of them."""
    names = list(known)
    close = difflib.get_close_matches(word, names, 1)
    guess = f"; did you mean '{close[0]}'?" if close else ""
    return f"{guess or ';'} {kinds}: {', '.join(names) or 'none'}"


class Registry(Generic[T]):
    """The components of one kind: those named by the entry points of `group`, and those added in this process."""

    def __init__(self, kind: str, group: str, base: type[T]) -> None:
        self.kind, self.group, self.base = kind, group, base
        self._added: dict[str, type[T]] = {}

    def add(self, cls: type[T], name: str | None = None) -> type[T]:
        """Registers a class under its name for the lifetime of this process; usable as a decorator."""
        self._added[name or str(getattr(cls, "name", cls.__name__))] = cls
        return cls

    def names(self) -> list[str]:
        """All known names, sorted."""
        return sorted({*self._added, *self.installed()})

    def added(self) -> dict[str, type[T]]:
        """The components that were added in this process, keyed by name."""
        return dict(self._added)

    def installed(self) -> list[str]:
        """The names of entry points; finding them takes milliseconds."""
        return [point.name for point in self._points()]

    def all(self) -> dict[str, type[T]]:
        """All components that can be imported; a broken plug-in is warned about and left out."""
        found = {}
        for name in self.names():
            try:
                found[name] = self.find(name)
            except ComponentError as e:
                warnings.warn(str(e), stacklevel=2)
        return found

    def find(self, name: str) -> type[T]:
        """The class for a name or a "module:Class" path."""
        if name in self._added:
            return self._added[name]
        point = next((p for p in self._points() if p.name == name), None)
        if point is None and ":" not in name:
            raise ComponentError(f"unknown {self.kind} '{name}'{nearest(name, self.names())}")
        return self._imported(name, point.value if point is not None else name)

    def module(self, name: str) -> str | None:
        """The module of a name or path, which need not exist; None for an unknown name."""
        if name in self._added:
            return self._added[name].__module__
        point = next((p for p in self._points() if p.name == name), None)
        path = point.value if point is not None else name
        return path.partition(":")[0] if ":" in path else None

    def make(self, component: Component | T, **more: Any) -> T:
        """Creates a component with its options; an existing component is returned unchanged."""
        if isinstance(component, self.base):
            return component
        name, options = self.parse(component)
        cls = self.find(name)
        accepted = accepted_options(cls)
        for key in (given := {**options, **more}):
            if key not in accepted:
                known = nearest(key, accepted, "accepted")
                raise ComponentError(f"{self.kind} '{name}': unknown option '{key}'{known}")
        return cls(**given)

    def parse(self, component: object) -> tuple[str, dict[str, Any]]:
        """The name and options of a component as written in an experiment."""
        if isinstance(component, str):
            return component, {}
        if isinstance(component, Mapping) and len(component) == 1:
            ((name, options),) = component.items()
            if isinstance(name, str) and (options is None or isinstance(options, Mapping)):
                return name, dict(options or {})
        raise ComponentError(f"a {self.kind} is a name, {{name: {{options}}}} or 'module:Class', not {component!r}")

    def _points(self) -> tuple[EntryPoint, ...]:
        from importlib.metadata import entry_points  # slow to import, and most programs use no plug-in

        return tuple(entry_points(group=self.group))

    def _imported(self, name: str, path: str) -> type[T]:
        return Named(path, f"{self.kind} '{name}'", ComponentError).subclass(self.base)


def accepted_options(cls: type) -> dict[str, Any]:
    """The options that a component accepts, with their defaults (`inspect.Parameter.empty` if there is none).

    A constructor with **options also accepts those of its base class.
    """
    found: dict[str, Any] = {}
    for owner in cls.__mro__:
        if owner is object or "__init__" not in vars(owner):
            continue
        _, *parameters = inspect.signature(vars(owner)["__init__"]).parameters.values()
        named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        found = {p.name: p.default for p in named} | found
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return found


def summary(cls: type) -> str:
    """The first line of a class's docstring."""
    return (cls.__doc__ or "").strip().partition("\n")[0]
