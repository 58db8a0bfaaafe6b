"""What is searched: workloads, suites and networks, recorded tables; from any form in a file to one."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchlab.errors import ConfigError, SearchLabError, WorkloadError
from searchlab.lab.config.settings import Malformed, say
from searchlab.lab.config.text.tree import Map, Place, PlacedList, Problems
from searchlab.registry import nearest

_TABLE_FILES = ("*.json", "*.json.gz", "*.json.xz")
_FORM = "a workload is matmul:m=512,n=512, {matmul: {m: 512}}, {suite: NAME}, {network: NAME} or {table: NAME or FILE}"
_NETWORK = "a network is a name such as resnet18, or {name: NAME, tasks: {WORKLOAD: WEIGHT}}, with tables: for tables"


@dataclass(frozen=True)
class SubjectSettings:
    """One thing to search: a workload by its text, a table by its reference, or a network; `label` is for people.

    `digest` says what a table holds, wherever it lies.
    """

    label: str
    workload: str | None = None
    table: str | None = None
    digest: str = ""
    parts: tuple[NetworkPart, ...] = ()

    @property
    def key(self) -> str:
        """The same for subjects that are the same."""
        parts = "".join(f" {p.weight}*{p.workload or p.label + p.digest}" for p in self.parts)
        return self.workload or f"{'network' if parts else 'table'} {self.label} {self.digest}{parts}"

    @property
    def plain(self) -> dict[str, Any]:
        """What it is, as plain data: a table is known by its name and what it holds, not by where it lies."""
        if self.parts:
            tasks = [{"task": p.label, **p.plain, "weight": p.weight} for p in self.parts]
            return {"network": self.label, "parts": tasks}
        return {"workload": self.workload} if self.workload else {"table": self.label, "digest": self.digest}


@dataclass(frozen=True)
class NetworkPart(SubjectSettings):
    """One task of a network, and how often it occurs."""

    weight: float = 1.0


def is_network(item: Any) -> bool:
    """Whether a workload in its one form is a network."""
    return isinstance(item, Mapping) and "network" in item


def looked_up(item: Any) -> bool:
    """Whether a workload in its one form is a recorded table, or a network of them."""
    return isinstance(item, Mapping) and ("table" in item or (is_network(item) and "tables" in item["network"]))


def subjects(items: Any) -> tuple[SubjectSettings, ...]:
    """What the workloads of an experiment (in their one form) stand for, each thing once."""
    found: dict[str, SubjectSettings] = {}
    for item in items:
        for s in _expand(item):
            found.setdefault(s.key, s)
    return tuple(found.values())


def normal_workloads(given: Any, place: Place, problems: Problems) -> PlacedList:
    """Workloads in their one form: text with all parameters, {suite: NAME}, {table: NAME or absolute path}, networks.

    That of a network is {network: {name: NAME, tasks: {text: weight}}}, or with tables: instead of tasks:.
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
    from searchlab.workloads import parse, workload

    if isinstance(item, str) and item:
        yield _checked(item, parse)
        return
    if not isinstance(item, Mapping) or len(item) != 1:
        raise Malformed(f"{_FORM}, not {say(item)}")
    ((name, options),) = item.items()
    if name == "suite":
        for one in _texts(name, options):
            _group(one)
            yield {"suite": one}
    elif name == "network":
        for one in options if isinstance(options, list | tuple) else [options]:
            yield {"network": _network(one, place)}
    elif name == "table":
        for one in _texts(name, options):
            yield from ({"table": t} for t in _tables(one, place))
    elif options is not None and not isinstance(options, Mapping):
        raise Malformed(f"the parameters of '{name}' are a mapping such as {{m: 512}}, not {say(options)}")
    else:
        yield _checked(name, lambda n: workload(n, **(options or {})))


def _checked(text: str, make: Any) -> str:
    from searchlab.measure.recorded.tables import shipped
    from searchlab.workloads import networks, suites

    try:
        made = make(text)
        if open_ := sorted({*made.sizes, *made.program.sizes}):
            left = f"{', '.join(open_)} {'is' if len(open_) == 1 else 'are'} left open"
            raise Malformed(f"{made.label}: an experiment needs numbers for sizes, and {left}")
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


# --- suites and networks ----------------------------------------------------------------------------------------------


def _group(text: str) -> list[Any]:
    """The workloads of a suite, or of a network such as resnet18 or resnet18:batch=16."""
    from searchlab.workloads import network, networks, suite, suites

    name = text.partition(":")[0]
    if text in suites():
        return [case.workload for case in suite(text)]
    if name not in networks():
        raise Malformed(f"unknown suite '{name}'{nearest(name, [*suites(), *networks()])}")
    return [task.workload for task in network(*_named_network(text))]


def _tasks(text: str) -> dict[str, int]:
    """The tasks of a network such as resnet18 or resnet18:batch=16, and how often each occurs."""
    from searchlab.workloads import network

    name, batch = _named_network(text)
    return {task.workload.spec: task.weight for task in network(name, batch)}


def _named_network(text: str) -> tuple[str, int]:
    from searchlab.workloads import networks

    name, _, rest = text.partition(":")
    if name not in networks():
        raise Malformed(f"unknown network '{name}'{nearest(name, networks())}")
    key, _, batch = rest.partition("=")
    if rest and (key != "batch" or not batch.isdecimal()):
        raise Malformed(f"'{text}': a network takes one parameter, batch=N")
    return name, int(batch or 1)


def _network(given: Any, place: Place) -> dict[str, Any]:
    """A network in its one form."""
    from searchlab.workloads import parse

    if isinstance(given, str) and given:
        return {"name": given, "tasks": _tasks(given)}
    kinds = [k for k in ("tasks", "tables") if isinstance(given, Mapping) and k in given]
    if not isinstance(given, Mapping) or set(given) - {"name", "tasks", "tables"} or len(kinds) != 1:
        raise Malformed(f"{_NETWORK}, not {say(given)}")
    name, listed = given.get("name"), given[kinds[0]]
    if not isinstance(name, str) or not name:
        raise Malformed("a network has a name, such as {name: block, tasks: {...}}")
    if not isinstance(listed, Mapping) or not listed:
        raise Malformed(f"{kinds[0]} of network '{name}' is a mapping of tasks to weights, not {say(listed)}")
    found: dict[str, Any] = {}
    for task, weight in listed.items():
        for one in [_checked(task, parse)] if kinds[0] == "tasks" else _tables(str(task), place):
            if one in found:
                raise Malformed(f"network '{name}' has '{one}' twice; its weight says how often it occurs")
            found[one] = _weight(task, weight)
    return {"name": name, kinds[0]: found}


def _weight(task: str, weight: Any) -> Any:
    number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not number or not 0 < weight < 1e9:
        raise Malformed(f"the weight of '{task}' says how often it occurs: a number above 0, not {say(weight)}")
    return weight


# --- recorded tables --------------------------------------------------------------------------------------------------


def _tables(text: str, place: Place) -> list[str]:
    """The tables that a name, a file, a folder or a pattern leads to; files are sought beside the experiment's file."""
    from searchlab.measure.recorded.tables import check, shipped

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
    from searchlab.measure.recorded.tables import indexed_names

    try:
        return sorted(indexed_names(folder)) if (folder / "index.json").is_file() else []
    except (SearchLabError, KeyError, TypeError):  # an index of something else
        return []


def _expand(item: Any) -> list[SubjectSettings]:
    from searchlab.workloads import parse

    if isinstance(item, Mapping) and "table" in item:
        return [_table(str(item["table"]))]
    if is_network(item):
        return [_whole(item["network"])]
    if isinstance(item, Mapping):
        return [SubjectSettings(w.label, w.spec) for w in _group(str(item["suite"]))]
    return [SubjectSettings(parse(item).label, item)]


def _whole(network: Mapping[str, Any]) -> SubjectSettings:
    """A network as one subject."""
    from searchlab.workloads import parse

    if "tables" in network:
        parts = [(_table(str(t)), weight) for t, weight in network["tables"].items()]
    else:
        parts = [(SubjectSettings(parse(t).label, t), weight) for t, weight in network["tasks"].items()]
    made = tuple(NetworkPart(s.label, s.workload, s.table, s.digest, weight=weight) for s, weight in parts)
    return SubjectSettings(str(network["name"]), parts=made)


def _table(reference: str) -> SubjectSettings:
    from searchlab.measure.recorded.tables import shipped

    if reference in shipped():
        return SubjectSettings(reference, table=reference)
    path = Path(reference)
    data = path if path.is_file() else path.with_name(f"{path.name}.csv.xz")
    try:
        digest = hashlib.sha256(data.read_bytes()).hexdigest()[:12]
    except OSError as e:
        raise ConfigError(f"the recorded table {data} cannot be read: {e.strerror or e}") from None
    return SubjectSettings(path.name.partition(".json")[0].removesuffix(".csv.xz"), table=reference, digest=digest)
