"""Target: the common interface of all kinds of machines, and the registry of kinds.

A `Target` is a plain value: printable, hashable, JSON-able, so it can key caches and travel to another machine.  Each
kind is a class in its own module, found through the entry point group `searchlab.targets`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any, ClassVar, Self

from searchlab.errors import TargetError
from searchlab.registry import Registry, nearest

# The kind of descriptions that do not name one: they were written before there were others.
DEFAULT_KIND = "cpu"
PROCESSOR = "cpu"  # the option that names a processor of an architecture


class Target(ABC):
    """A machine that code is generated for; each kind is a frozen dataclass whose fields describe it completely.

    `kind` is the name of the class in the registry, and `backend` ("module:Class") builds and runs programs for it.
    Schedules are sized by `threads`, the number of host cores that a kernel occupies, and `vector_registers`, the
    number of vectors of `lanes` values that one thread can hold.
    """

    __slots__ = ()
    kind: ClassVar[str]
    backend: ClassVar[str]
    # Fields that do not affect code, and are therefore not part of the fingerprint.
    of_process: ClassVar[frozenset[str]] = frozenset()
    threads: int
    vector_registers: int

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the machine, in one word."""

    @abstractmethod
    def lanes(self, dtype: str) -> int:
        """How many values of `dtype` one vector holds; raises TargetError for unsupported types."""

    @classmethod
    @abstractmethod
    def names(cls) -> tuple[str, ...]:
        """The names by which users write targets of this kind."""

    @classmethod
    @abstractmethod
    def named(cls, name: str, options: Mapping[str, Any]) -> Self:
        """The target for one of `names` with these options; raises TargetError for unknown options."""

    def with_threads(self, threads: int) -> Self:
        """The same machine with kernels limited to `threads` threads of the host."""
        raise TargetError(f"target {self.name}: its number of threads cannot be chosen")

    def fingerprint(self) -> str:
        """Twelve hex digits that depend on exactly the fields that affect code."""
        described = {name: value for name, value in self.to_dict().items() if name not in self.of_process}
        text = json.dumps(described, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """A dictionary of plain values, for JSON; `from_dict` is the inverse."""
        described: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return described if self.kind == DEFAULT_KIND else {"kind": self.kind, **described}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Target:
        """The target `to_dict` described; unknown and missing fields are refused."""
        cls, given = class_of(data), {name: value for name, value in data.items() if name != "kind"}
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        if wrong := names.symmetric_difference(given):
            raise TargetError(f"target description: missing or unknown {sorted(wrong)}; expected {sorted(names)}")
        return cls(**given)


kinds: Registry[Target] = Registry("target kind", "searchlab.targets", Target)  # type: ignore[type-abstract]


def class_of(data: Mapping[str, Any]) -> type[Target]:
    """The class of the target that `Target.to_dict` described; only registered kinds are accepted."""
    kind = data.get("kind", DEFAULT_KIND)
    if kind != DEFAULT_KIND and kind not in kinds.names():
        raise TargetError(f"target description: unknown kind {kind!r}{nearest(str(kind), kinds.names())}")
    return kinds.find(kind)


def parse(spec: str | Mapping[str, Any] | Target) -> Target:
    """The target a user means: `"native"`, `"native:threads=2"`, `"x86-64-v3"`, or `{"native": {"threads": 2}}`.

    A text in place of options is the processor: `{"arm": "neoverse-n1"}`, or `"arm:neoverse-n1"`.
    """
    if isinstance(spec, Target):
        return spec
    name, options = _split(spec)
    for cls in _every_kind():
        if name in cls.names():
            return cls.named(name, options)
    close = difflib.get_close_matches(name, known(), n=1, cutoff=0.0)
    raise TargetError(f"unknown target {name!r}; did you mean {close[0]!r}? known: {', '.join(known())}")


def known() -> tuple[str, ...]:
    """The names `parse` understands."""
    return tuple(name for cls in _every_kind() for name in cls.names())


def _every_kind() -> Iterator[type[Target]]:
    """All kinds, CPUs first: discovering the others takes longer and is rarely needed."""
    added = kinds.added()
    yield added.pop(DEFAULT_KIND)
    yield from (added | _installed()).values()


@cache
def _installed() -> dict[str, type[Target]]:
    names = kinds.installed()
    return {name: cls for name, cls in kinds.all().items() if name in names}


def _split(spec: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(spec, str):
        name, _, rest = spec.partition(":")
        pairs = [item.partition("=") for item in rest.split(",") if item]
        return name.strip(), dict(_option(*pair) for pair in pairs)
    if len(spec) != 1:
        raise TargetError(f"a target is one name with its options, got {dict(spec)!r}")
    ((name, options),) = spec.items()
    return name, {PROCESSOR: options} if isinstance(options, str) else dict(options or {})


def _option(key: str, sign: str, value: str) -> tuple[str, str]:
    return (key.strip(), value.strip()) if sign else (PROCESSOR, key.strip())
