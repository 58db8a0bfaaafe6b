"""From what pydantic finds wrong to messages in the words of this project, each at its place in the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from searchlab.lab.config.settings import say
from searchlab.lab.config.text.tree import Path
from searchlab.registry import nearest

_KINDS = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "string": "text", "dict": "a mapping",
    "model": "a mapping", "list": "a list", "tuple": "a list",
}  # fmt: skip
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"), "greater_than": ("gt", "more than"), "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}  # fmt: skip


def faults(error: ValidationError, model: type[BaseModel], start: Path = ()) -> Iterator[tuple[Path, str]]:
    """Path and message of everything that is wrong; `start` is where the model's data lies."""
    for e in error.errors(include_url=False):
        if e["type"] == "too_short" and e["input"]:
            continue  # items that are wrong do not count, and have errors of their own
        path = (*start, *e["loc"])
        yield path, _message(e, model, tuple(e["loc"]), start)


def _dotted(path: Path) -> str:
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")


def _message(error: Any, model: type[BaseModel], loc: Path, start: Path) -> str:
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    name, inside = _dotted((*start, *loc)), _dotted((*start, *loc[:-1]))
    if kind == "extra_forbidden":
        known = nearest(str(loc[-1]), _keys(_model_at(model, loc[:-1])), "accepted")
        where = f" in '{inside}'" if inside else ""
        return f"unknown key '{loc[-1]}'{where}{known}"
    if kind == "missing":
        return f"'{name}' is missing: {_about(model, loc)}"
    if kind == "literal_error":
        choices = [str(c) for c in _literals(model, loc)]
        if str(given) in choices:
            return f"{name} is text; write {given} without quotes"
        return f"{name} is {say(given)}{nearest(str(given), choices, 'accepted')}"
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{name} is {say(given)}; accepted: {words} {context[key]:g}"
    if kind in ("too_short", "string_too_short"):
        return f"{name} is empty"
    if kind == "string_pattern_mismatch":
        return f"{name} is {say(given)}; accepted: letters, digits, and . _ + - after the first"
    if kind == "string_too_long":
        return f"{name} is too long; at most {context['max_length']} characters"
    for prefix, words in _KINDS.items():
        if kind.startswith(f"{prefix}_"):
            return f"{name} is {words}, not {say(given)}"
    return f"{name}: {error['msg']}"


def _model_at(model: type[BaseModel], loc: Path) -> type[BaseModel]:
    for step in loc:
        field = _field(model, step)
        inner = _model_in(field.annotation) if field is not None else None
        model = inner or model
    return model


def _field(model: type[BaseModel], step: str | int) -> Any:
    by_alias = {f.alias or n: f for n, f in model.model_fields.items()}
    return by_alias.get(step) if isinstance(step, str) else None


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for a in get_args(annotation) if (m := _model_in(a)) is not None), None)


def _keys(model: type[BaseModel]) -> list[str]:
    return [f.alias or n for n, f in model.model_fields.items()]


def _about(model: type[BaseModel], loc: Path) -> str:
    field = _field(_model_at(model, loc[:-1]), loc[-1])
    return str(field.description) if field is not None else "it must be given"


def _literals(model: type[BaseModel], loc: Path) -> list[Any]:
    names = [p for p in loc if isinstance(p, str)]
    field = _field(_model_at(model, tuple(names[:-1])), names[-1])
    found = list(get_args(field.annotation)) if field is not None else []
    while found and get_args(found[0]):
        found = list(get_args(found[0]))
    return found
