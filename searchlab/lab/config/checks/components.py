"""Whether settings can be used: names that are known, options that are accepted, values that a component takes."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar, get_type_hints

import numpy as np
from pydantic import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, TypeAdapter, ValidationError

from searchlab.errors import ComponentError, SearchLabError, TargetError
from searchlab.lab.config.forms.translating import faults as translated
from searchlab.lab.config.measuring import Measure
from searchlab.lab.config.search_settings import STARTS, Budget
from searchlab.lab.config.settings import COMPONENTS, Malformed, say, split
from searchlab.lab.config.text.tree import Path
from searchlab.lab.history import origins
from searchlab.registry import accepted_options, nearest
from searchlab.search import MODELS, REGISTRIES, SPACES, STRATEGIES, RecordedSpace, Strategy, menu
from searchlab.search.returned import proposed
from searchlab.targets import parse

Fault = tuple[Path, str]
P = ParamSpec("P")
R = TypeVar("R")
_FEW = 4  # points that a strategy is asked for
_GIVEN = ("space", "rng")  # what a study passes itself


def faults(key: str, value: Any) -> tuple[Fault, ...]:
    """What is wrong with a setting: a path below it, and a message."""
    if key == "history":  # files may have changed since the last look
        return tuple(_history(value))
    return _faults(key, value)


def _once(look: Callable[P, R]) -> Callable[P, R]:
    """Looks at equal values once, which many combinations have; they are plain data."""
    known: dict[str, R] = {}

    @wraps(look)
    def looked(*args: P.args, **kwargs: P.kwargs) -> R:
        text = json.dumps(args)
        if text not in known:
            known[text] = look(*args, **kwargs)
        return known[text]

    return looked


@_once
def _faults(key: str, value: Any) -> tuple[Fault, ...]:
    try:
        if key in COMPONENTS:
            return () if value is None and key == "space" else tuple(_component(key, value))
        if key == "target":
            return tuple(_target(value))
        if key == "start":
            return () if value in STARTS else (((), f"start is one of {', '.join(STARTS)}, not {say(value)}"),)
        return tuple(_measure(value) if key == "measure" else _budget(value))
    except Malformed as e:
        return (((), str(e)),)


def _history(value: Sequence[str]) -> Iterator[Fault]:
    for number, path in enumerate(value):
        if path in value[:number]:
            yield (number,), f"history: {path} is listed twice"
        try:
            origins.check(path)
        except SearchLabError as e:
            yield (number,), f"history: {e}"


def _budget(value: Any) -> Iterator[Fault]:
    try:
        made = Budget.model_validate(value)
    except ValidationError as e:
        yield from ((path[1:], message) for path, message in translated(e, Budget, ("budget",)))
        return
    if made.trials is None and made.seconds is None:
        yield (), "budget has no limit; accepted: trials, seconds or both"


def _measure(value: Any) -> Iterator[Fault]:
    kind, _ = split("measure", value)
    try:
        Measure.model_validate(value)
    except ValidationError as e:
        yield from ((path[1:], message) for path, message in translated(e, Measure, ("measure",)))
    if kind == "ray" and not _importable("ray"):
        yield (), "measure 'ray' needs Ray, which is not installed: pip install 'searchlab[ray]'"


def _target(value: Any) -> Iterator[Fault]:
    name, options = split("target", value)
    threads = options.get("threads")
    if "threads" in options and (not isinstance(threads, int) or isinstance(threads, bool)):
        yield (name, "threads"), f"target '{name}': threads is a whole number, not {say(threads)}"
        return
    try:
        parse(value)
    except TargetError as e:
        yield (name, *options), str(e)


def _component(key: str, value: Any) -> Iterator[Fault]:
    name, options = split(key, value)
    registry = REGISTRIES[key]
    try:
        cls = registry.find(name)
    except ComponentError as e:
        yield (), str(e)
        return
    accepted = [k for k in accepted_options(cls) if k not in _GIVEN]
    wrong = [k for k in options if k not in accepted]
    for option in wrong:
        yield (
            (name, option),
            f"{registry.kind} '{name}': unknown option '{option}'{nearest(option, accepted, 'accepted')}",
        )
    found = [f for k, v in options.items() if k in accepted for f in _option(registry.kind, name, cls, k, v)]
    yield from found
    if not wrong and not found:
        yield from _made(key, name, value)


def _option(kind: str, name: str, cls: type, option: str, value: Any) -> Iterator[Fault]:
    """Whether an option's value is of the kind that the constructor's annotation says."""
    hint = _hints(cls).get(option)
    try:
        adapter = None if hint is None else TypeAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation):
        return
    try:
        if adapter is not None:
            adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as e:
        expected = _expected(adapter.json_schema()) if adapter is not None else ""
        what = f"; accepted: {expected}" if expected else f": {e.errors()[0]['msg']}"
        yield (name, option), f"{kind} '{name}': {option} is {say(value)}{what}"


def _expected(schema: Mapping[str, Any]) -> str:
    words = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text",
             "null": "null", "array": "a list", "object": "a mapping"}  # fmt: skip
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if "anyOf" in schema:
        return ", ".join(filter(None, map(_expected, schema["anyOf"])))
    return words.get(str(schema.get("type")), "")


@cache
def _hints(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for owner in reversed(cls.__mro__):
        if "__init__" in vars(owner) and inspect.isfunction(vars(owner)["__init__"]):
            try:
                found |= get_type_hints(vars(owner)["__init__"])
            except (NameError, TypeError):
                continue
    return found


def _made(key: str, name: str, value: Any) -> Iterator[Fault]:
    """Whether the component can be made: constructors refuse what they cannot use."""
    try:
        made = make(key, value)
        if key == "strategy" and not type(made).__module__.startswith("searchlab."):
            _probe(made)
    except ImportError as e:
        yield (), f"{REGISTRIES[key].kind} '{name}' needs a package that is not installed: {e}"
    except SearchLabError as e:
        yield (name,), str(e) if name in str(e) else f"{REGISTRIES[key].kind} '{name}': {e}"
    except Exception as e:  # whatever a constructor does with options
        yield (name,), f"{REGISTRIES[key].kind} '{name}' cannot be made: {type(e).__name__}: {e}"


def make(key: str, value: Any) -> Any:
    """The component, a strategy on a space of a few points."""
    rng = np.random.default_rng(0)
    if key == "strategy":
        return STRATEGIES.make(value, space=_few_points(), rng=rng)
    return MODELS.make(value, rng=rng) if key == "model" else SPACES.make(value)


def _probe(strategy: Strategy) -> None:
    """Asks a strategy of the user's for a batch, so that one that returns something else is known at once.

    Whatever it raises itself may be due to the made-up space, and is left to the run.
    """
    try:
        points = strategy.ask(_FEW)
    except Exception:  # a strategy may do anything
        return
    proposed(strategy, points, _FEW)


@_once
def view(model: Any) -> str:
    """The features that a model asks for."""
    return str(make("model", model).view)


@cache
def _few_points() -> RecordedSpace:
    knobs = [menu("a", [1, 2, 4, 8]), menu("b", [1, 2, 4, 8])]
    rows = np.array([(a, b) for a in range(4) for b in range(4)], np.int32)
    return RecordedSpace.of(knobs, rows, "few points")


def _importable(module: str) -> bool:
    return find_spec(module) is not None
