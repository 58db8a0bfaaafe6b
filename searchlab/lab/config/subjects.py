"""The subjects of searches: workloads, suites, networks, families of sizes, recorded tables and streams."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from searchlab.errors import ConfigError
from searchlab.lab.config.settings import Malformed
from searchlab.measure.recorded.tables import shipped
from searchlab.registry import nearest
from searchlab.workloads import Workload, is_family, network, networks, parse, read_family, suite, suites


@dataclass(frozen=True)
class SubjectSettings:
    """One thing to search: a workload by its text, a table by its reference, a network or a family of sizes.

    `label` is for people.  `digest` identifies the content of a table, wherever it is stored.  `family` is the text of
    a family, whose `parts` are its representative sizes.  `video` are the settings of a stream, as JSON.
    """

    label: str
    workload: str | None = None
    table: str | None = None
    digest: str = ""
    parts: tuple[NetworkPart, ...] = ()
    family: str | None = None
    video: str | None = None
    is_part: ClassVar[bool] = False  # whether its records stand among those of the other tasks of a network

    @property
    def key(self) -> str:
        """The same for subjects that are the same."""
        if self.video is not None:
            return f"video {json.dumps(self.plain, sort_keys=True)}"
        parts = "".join(f" {p.weight}*{p.workload or p.label + p.digest}" for p in self.parts)
        return self.workload or self.family or f"{'network' if parts else 'table'} {self.label} {self.digest}{parts}"

    @property
    def plain(self) -> dict[str, Any]:
        """What it is, as plain data: a table is known by its name and what it holds, not by where it lies."""
        if self.parts:
            tasks = [{"task": p.label, **p.plain, "weight": p.weight} for p in self.parts]
            return {"family": self.family, "parts": tasks} if self.family else {"network": self.label, "parts": tasks}
        if self.video is not None:
            given = json.loads(self.video)
            return {"video": given | ({"clip": self.digest} if self.digest else {})}
        return {"workload": self.workload} if self.workload else {"table": self.label, "digest": self.digest}


@dataclass(frozen=True)
class NetworkPart(SubjectSettings):
    """One task of a network, or one size of a family, and how often it occurs."""

    weight: float = 1.0
    is_part: ClassVar[bool] = True


def is_network(item: Any) -> bool:
    """Whether a workload in its one form is a network."""
    return isinstance(item, Mapping) and "network" in item


def shares_budget(item: Any) -> bool:
    """Whether a workload in its one form has tasks that share a budget: those of a network, or sizes of a family."""
    return is_network(item) or is_family(item)


def is_model(item: Any) -> bool:
    """Whether a workload in its one form is the network of a model's tasks."""
    return is_network(item) and "graph" in item["network"]


def looked_up(item: Any) -> bool:
    """Whether a workload in its one form is a recorded table, or a network of them."""
    return isinstance(item, Mapping) and ("table" in item or (is_network(item) and "tables" in item["network"]))


def is_video(item: Any) -> bool:
    """Whether a workload in its one form is a stream."""
    return isinstance(item, Mapping) and "video" in item


def without_programs(item: Any) -> bool:
    """Whether the points of a workload in its one form are no programs: those of tables and streams are not."""
    return looked_up(item) or is_video(item)


def subjects(items: Any) -> tuple[SubjectSettings, ...]:
    """What the workloads of an experiment (in their one form) stand for, each thing once."""
    found: dict[str, SubjectSettings] = {}
    for item in items:
        for s in _expand(item):
            found.setdefault(s.key, s)
    return tuple(found.values())


def group(text: str) -> list[Workload]:
    """The workloads of a suite, or of a network such as resnet18 or resnet18:batch=16."""
    name = text.partition(":")[0]
    if text in suites():
        return [case.workload for case in suite(text)]
    if name not in networks():
        raise Malformed(f"unknown suite '{name}'{nearest(name, [*suites(), *networks()])}")
    return [task.workload for task in network(*named_network(text))]


def named_network(text: str) -> tuple[str, int]:
    """The name and the batch of a network such as resnet18 or resnet18:batch=16."""
    name, _, rest = text.partition(":")
    if name not in networks():
        raise Malformed(f"unknown network '{name}'{nearest(name, networks())}")
    key, _, batch = rest.partition("=")
    if rest and (key != "batch" or not batch.isdecimal()):
        raise Malformed(f"'{text}': a network takes one parameter, batch=N")
    return name, int(batch or 1)


def _expand(item: Any) -> list[SubjectSettings]:
    if isinstance(item, Mapping) and "table" in item:
        return [_table(str(item["table"]))]
    if is_video(item):
        return [_stream(item["video"])]
    if is_network(item):
        return [_whole(item["network"])]
    if isinstance(item, Mapping):
        return [SubjectSettings(w.label, w.spec) for w in group(str(item["suite"]))]
    return [_sizes(item) if is_family(item) else SubjectSettings(parse(item).label, item)]


def _sizes(text: str) -> SubjectSettings:
    """A family as one subject, whose parts are its representative sizes."""
    family = read_family(text)
    each = [(family.at(size), weight) for size, weight in family.representatives]
    parts = tuple(NetworkPart(w.label, w.spec, weight=weight) for w, weight in each)
    return SubjectSettings(family.label, parts=parts, family=text)


def _whole(network: Mapping[str, Any]) -> SubjectSettings:
    """A network as one subject."""
    if "tables" in network:
        parts = [(_table(str(t)), weight) for t, weight in network["tables"].items()]
    else:
        parts = [(SubjectSettings(parse(t).label, t), weight) for t, weight in network["tasks"].items()]
    made = tuple(NetworkPart(s.label, s.workload, s.table, s.digest, weight=weight) for s, weight in parts)
    return SubjectSettings(str(network["name"]), parts=made)


def _stream(given: Mapping[str, Any]) -> SubjectSettings:
    from searchlab.video.video_settings import VideoSettings

    settings = VideoSettings.of(given)
    return SubjectSettings(settings.label, video=json.dumps(settings.plain, sort_keys=True), digest=settings.digest)


def _table(reference: str) -> SubjectSettings:
    if reference in shipped():
        return SubjectSettings(reference, table=reference)
    path = Path(reference)
    data = path if path.is_file() else path.with_name(f"{path.name}.csv.xz")
    try:
        digest = hashlib.sha256(data.read_bytes()).hexdigest()[:12]
    except OSError as e:
        raise ConfigError(f"the recorded table {data} cannot be read: {e.strerror or e}") from None
    return SubjectSettings(path.name.partition(".json")[0].removesuffix(".csv.xz"), table=reference, digest=digest)
