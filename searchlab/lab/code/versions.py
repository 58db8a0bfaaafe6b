"""The code of a cell's components, keyed by name: a source digest for the user's, a version for searchlab's.

Intrinsics that packages bring count for all cells that build programs: default schedules and spaces choose among those
of the target without being told their names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from searchlab.errors import SearchLabError
from searchlab.intrinsics.known import installed_modules
from searchlab.lab.code.source_files import digest
from searchlab.named import is_shipped
from searchlab.registry import Component, Registry
from searchlab.search import REGISTRIES
from searchlab.workloads.catalogue import find

Code = Mapping[str, str]  # "strategy mine:Nearby": digest of its source; "strategy random": its version

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def codes(configs: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The code of cells with the given settings; components that cannot be found are left out."""
    known: dict[str, dict[str, str]] = {}
    installed = _intrinsics()
    found = []
    for config in configs:
        parts = list(_parts(config))
        code = dict(installed) if any(kind == "workload" for kind, _ in parts) else {}
        for kind, value in parts:
            key = json.dumps([kind, value])
            if key not in known:
                known[key] = _workload(value) if kind == "workload" else dict(_component(kind, value))
            code |= known[key]
        found.append(code)
    return found


def as_it_was(kind: str, component: Component, code: Code) -> Component:
    """A component with the options that make it the version that `code` has, where it still can be that version."""
    registry = REGISTRIES[kind]
    name, options = registry.parse(component)
    ran = code.get(f"{kind} {name}", "").removeprefix("version ")
    earlier = getattr(registry.find(name), "earlier", {}).get(ran, {})
    if isinstance(base := options.get("base"), str | Mapping):
        options["base"] = as_it_was(kind, base, code)
    return {name: {**earlier, **options}} if earlier or options else name


def _parts(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The components of a cell with their kinds."""
    yield from ((kind, config[kind]) for kind in REGISTRIES if config.get(kind) is not None)
    for subject in (config, *config.get("parts", ())):
        if subject.get("workload"):
            yield "workload", subject["workload"]


def _component(kind: str, value: Any) -> Iterator[tuple[str, str]]:
    """A component and those that its options name."""
    registry = REGISTRIES[kind]
    name, options = registry.parse(value)
    for one in dict.fromkeys([name, *_words(options)]):
        version = _version(registry, one)
        if version is not None:
            yield f"{kind} {one}", version


def _words(options: Any) -> Iterator[str]:
    """All strings in options, which may be names of components."""
    if isinstance(options, str):
        yield options
    elif isinstance(options, Mapping):
        for key, value in options.items():
            yield from (str(key), *_words(value))
    elif isinstance(options, list | tuple):
        for value in options:
            yield from _words(value)


def _version(registry: Registry[Any], name: str) -> str | None:
    module = registry.module(name)
    if module is None or not _MODULE.fullmatch(module):
        return None
    if not is_shipped(module):
        return digest(module)
    try:
        return f"version {registry.find(name).version}"
    except (SearchLabError, AttributeError):  # a function that options name, or a component that no longer exists
        return None


def _workload(text: str) -> dict[str, str]:
    head, _, tail = text.rpartition(":")
    name = head if head and "=" in tail else text
    try:
        path = name if ":" in name else find(name).path
    except SearchLabError:
        return {}
    module = path.partition(":")[0]
    found = None if is_shipped(module) else digest(module)
    return {} if found is None else {f"workload {name}": found}


def _intrinsics() -> dict[str, str]:
    """The sources of the intrinsics that packages bring."""
    theirs = {name: module for name, module in installed_modules().items() if not is_shipped(module)}
    found = {f"intrinsics {name}": digest(module) for name, module in theirs.items() if _MODULE.fullmatch(module)}
    return {name: version for name, version in found.items() if version is not None}
