"""Workloads, suites, networks and tables from any form in a file to one."""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from searchlab.errors import SearchLabError, WorkloadError
from searchlab.lab.config.settings import Malformed, say
from searchlab.lab.config.subjects import group, is_network, named_network
from searchlab.lab.config.text.tree import Map, Place, PlacedList, Problems, unplaced
from searchlab.measure.recorded.tables import check, indexed_names, shipped
from searchlab.registry import nearest
from searchlab.workloads import (
    Family,
    Workload,
    family,
    is_family,
    is_range,
    network,
    networks,
    parse,
    read_family,
    suites,
    workload,
)

_TABLE_FILES = ("*.json", "*.json.gz", "*.json.xz")
_FORM = (
    "a workload is matmul:m=512,n=512, {matmul: {m: 512}}, {suite: NAME}, {network: NAME}, {graph: MODEL}, "
    "{video: {model: NAME, clip: FILE, bound: {relative_error: 0.01}}} or {table: NAME or FILE}"
)
_OPEN = "an experiment needs numbers for sizes, or the range of one, such as m=dyn(1..512)"
_NETWORK = "a network is a name such as resnet18, or {name: NAME, tasks: {WORKLOAD: WEIGHT}}, with tables: for tables"


def normal_workloads(given: Any, place: Place, problems: Problems) -> PlacedList:
    """Workloads in their one form: text with all parameters, {suite: NAME}, {table: NAME or absolute path}, networks.

    A family of sizes is text, too.  A network is {network: {name: NAME, tasks: {text: weight}}}, or with tables:
    instead of tasks:.  The graph of a model becomes such a network of its tasks, which also says where the model is, as
    graph:.
    """
    items = given if isinstance(given, PlacedList) else PlacedList(place, [(given, place)])
    if not items:
        problems.add(place, f"workloads is empty; {_FORM}")
    result: list[tuple[Any, Place]] = []
    for number, item in enumerate(items):
        where = items.at(number)
        try:
            for one in _normal(item, where):
                if any(one == other for other, _ in result):
                    shown = one if isinstance(one, str) else " ".join(_words(*next(iter(one.items()))))
                    problems.add(where, f"'{shown}' is listed twice")
                elif is_network(one) and any(_called(other) == _called(one) for other, _ in result):
                    problems.add(where, f"two networks are called '{_called(one)}'")
                result.append((one, where))
        except (SearchLabError, Malformed) as e:
            problems.add(_inner(item, where), str(e))
    return PlacedList(items.place, result or [("matmul", place)])  # so that what else is wrong is found, too


def _words(kind: str, given: Any) -> tuple[str, str]:
    return kind, str(given["name"] if kind == "network" else given)


def _called(item: Any) -> str:
    return str(item["network"]["name"]) if is_network(item) else ""


def _inner(item: Any, where: Place) -> Place:
    return item.at(next(iter(item))) if isinstance(item, Map) and item else where


def _normal(item: Any, place: Place) -> Iterator[Any]:
    """The workloads of one item of the list, each in its one form."""
    if isinstance(item, str) and item:
        yield _spec_of_family(lambda: read_family(item)) if is_family(item) else _checked(item, parse)
        return
    if not isinstance(item, Mapping) or len(item) != 1:
        raise Malformed(f"{_FORM}, not {say(item)}")
    ((name, options),) = item.items()
    if name in _GROUPS:
        yield from _GROUPS[name](options, place)
    elif options is not None and not isinstance(options, Mapping):
        raise Malformed(f"the parameters of '{name}' are a mapping such as {{m: 512}}, not {say(options)}")
    else:
        params = dict(options or {})
        if any(map(is_range, params.values())):
            yield _spec_of_family(lambda: family(name, **params))
        else:
            yield _checked(name, lambda n: workload(n, **params))


def _suite_items(options: Any, place: Place) -> Iterator[Any]:
    for one in _texts("suite", options):
        group(one)  # refuses a name that is not known
        yield {"suite": one}


def _network_items(options: Any, place: Place) -> Iterator[Any]:
    for one in options if isinstance(options, list | tuple) else [options]:
        yield {"network": _network(one, place)}


def _graph_items(options: Any, place: Place) -> Iterator[Any]:
    for one in _texts("graph", options):
        yield {"network": _graph(one, place)}


def _table_items(options: Any, place: Place) -> Iterator[Any]:
    for one in _texts("table", options):
        yield from ({"table": t} for t in _tables(one, place))


def _video_items(options: Any, place: Place) -> Iterator[Any]:
    """Streams with all their settings; files are named by whole paths, as experiments may be moved."""
    from searchlab.graph.model_source import model_source
    from searchlab.video.video_settings import VideoSettings

    for one in options if isinstance(options, list | tuple) else [options]:
        given = dict(unplaced(one)) if isinstance(one, Mapping) else one
        if isinstance(given, dict) and isinstance(given.get("model"), str):
            file, colon, rest = given["model"].partition(":")
            given["model"] = f"{place.path(file)}{colon}{rest}" if file.endswith(".py") else given["model"]
        settings = VideoSettings.of(given, place.path("."))
        model_source(settings.model)  # refuses a name that is not known
        yield {"video": settings.plain}


_GROUPS: dict[str, Callable[[Any, Place], Iterator[Any]]] = {
    "suite": _suite_items,
    "network": _network_items,
    "graph": _graph_items,
    "table": _table_items,
    "video": _video_items,
}


def _spec_of_family(make: Callable[[], Family]) -> str:
    """The family with all its parameters, as text."""
    try:
        return make().spec
    except WorkloadError as e:
        raise Malformed(str(e)) from None


def _checked(text: str, make: Callable[[str], Workload]) -> str:
    """The workload with all its parameters, as text; refused if it cannot be made or leaves sizes open."""
    try:
        made = make(text)
        if open_ := sorted({*made.sizes, *made.program.sizes}):
            left = f"{', '.join(open_)} {'is' if len(open_) == 1 else 'are'} left open"
            raise Malformed(f"{made.label}: {_OPEN}; {left}")
        return str(made.spec)
    except WorkloadError as e:
        name = text.partition(":")[0]
        if name in {*networks(), *suites()}:
            raise Malformed(f"'{name}' is a suite of workloads; write {{suite: {text}}}") from None
        if text in shipped():
            raise Malformed(f"'{text}' is a recorded table; write {{table: {text}}}") from None
        raise Malformed(str(e)) from None
    except Malformed:
        raise
    except Exception as e:  # whatever the module of an operator does
        raise Malformed(f"workload '{text}' cannot be made: {type(e).__name__}: {e}") from e


def _texts(key: str, given: Any) -> list[str]:
    found = given if isinstance(given, list | tuple) else [given]
    if not found or not all(isinstance(x, str) and x for x in found):
        raise Malformed(f"{key} takes a name or a list of names, not {say(given)}")
    return list(found)


# --- networks --------------------------------------------------------------------------------------------------------


def _tasks(text: str) -> dict[str, int]:
    """The tasks of a network such as resnet18 or resnet18:batch=16, and how often each occurs."""
    name, batch = named_network(text)
    return {task.workload.spec: task.weight for task in network(name, batch)}


def _network(given: Any, place: Place) -> dict[str, Any]:
    """A network in its one form."""
    if isinstance(given, str) and given:
        return {"name": given, "tasks": _tasks(given)}
    name, kind, listed = _network_fields(given)
    found: dict[str, Any] = {}
    for task, weight in listed.items():
        for one in [_checked(task, parse)] if kind == "tasks" else _tables(str(task), place):
            if one in found:
                raise Malformed(f"network '{name}' has '{one}' twice; its weight says how often it occurs")
            found[one] = _weight(task, weight)
    return {"name": name, kind: found} | ({"graph": given["graph"]} if "graph" in given else {})


def _graph(text: str, place: Place) -> dict[str, Any]:
    """The network of a model's tasks; a file is named by its whole path, as experiments may be moved."""
    from searchlab.graph.model_source import model_source
    from searchlab.graph.tasks import model_tasks, task_counts, worth_tuning

    file, colon, rest = text.partition(":")
    named = f"{place.path(file)}{colon}{rest}" if file.endswith(".py") else text
    source = model_source(named)
    tasks = task_counts(worth_tuning(model_tasks(source)))
    if not tasks:
        raise Malformed(f"model '{text}' has no programs to tune")
    return {"name": source.name, "tasks": tasks, "graph": named}


def _network_fields(given: Any) -> tuple[str, str, Mapping[str, Any]]:
    """The name of a network, whether it lists tasks or tables, and the list."""
    kinds = [k for k in ("tasks", "tables") if isinstance(given, Mapping) and k in given]
    if not isinstance(given, Mapping) or set(given) - {"name", "tasks", "tables", "graph"} or len(kinds) != 1:
        raise Malformed(f"{_NETWORK}, not {say(given)}")
    name, (kind,) = given.get("name"), kinds
    listed = given[kind]
    if not isinstance(name, str) or not name:
        raise Malformed("a network has a name, such as {name: block, tasks: {...}}")
    if not isinstance(listed, Mapping) or not listed:
        raise Malformed(f"{kind} of network '{name}' is a mapping of tasks to weights, not {say(listed)}")
    return name, kind, listed


def _weight(task: str, weight: Any) -> Any:
    number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not number or not 0 < weight < 1e9:
        raise Malformed(f"the weight of '{task}' says how often it occurs: a number above 0, not {say(weight)}")
    return weight


# --- recorded tables --------------------------------------------------------------------------------------------------


def _tables(text: str, place: Place) -> list[str]:
    """The tables that a name, a file, a folder or a pattern leads to; files are sought beside the experiment's file."""
    if text in shipped():
        return [text]
    path = place.path(text)
    if any(c in text for c in "*?["):
        found = _matching(path)
    elif path.is_dir():
        found = _inside(path)
    else:
        found = [path] if path.is_file() or path.name in _indexed(path.parent) else []
    if not found:
        known = nearest(text, shipped(), "shipped")
        raise Malformed(f"there is no recorded table '{text}', neither a file nor a folder{known}")
    for p in found:
        check(p)
    return [str(p) for p in found]


def _matching(pattern: Path) -> list[Path]:
    if names := _indexed(pattern.parent):
        return [pattern.parent / n for n in names if fnmatch.fnmatchcase(n, pattern.name)]
    found = map(Path, glob.glob(str(pattern)))
    return sorted(p for p in found if p.is_file() and any(fnmatch.fnmatchcase(p.name, t) for t in _TABLE_FILES))


def _inside(folder: Path) -> list[Path]:
    if names := _indexed(folder):
        return [folder / n for n in names]
    return sorted(p for pattern in _TABLE_FILES for p in folder.glob(pattern))


def _indexed(folder: Path) -> list[str]:
    try:
        return sorted(indexed_names(folder)) if (folder / "index.json").is_file() else []
    except (SearchLabError, KeyError, TypeError):  # an index of something else
        return []
