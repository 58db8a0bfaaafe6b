"""Parameters of operators: their kinds, and the parsing of values and texts.

An operator's annotations define what each parameter accepts: `Extent` (an array size, possibly known only at run time),
`Window` and `Padding` (one integer, or one per axis such as 3x7x7), `Count` (a positive integer), int, float, bool,
str, or a Literal of names.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from searchlab.errors import WorkloadError
from searchlab.ir.expr import Expr, Var, size, value_of
from searchlab.registry import nearest

Value = int | float | str | tuple[int, ...] | Var
Params = tuple[tuple[str, Value], ...]
Kind = Literal["extent", "window", "int", "float", "bool", "str"]


@dataclass(frozen=True, slots=True)
class AtLeast:
    """Annotation: the smallest accepted integer."""

    value: int


Extent = Annotated[int | Expr, AtLeast(1)]
Window = Annotated[int | tuple[int, ...], AtLeast(1)]
Padding = Annotated[int | tuple[int, ...], AtLeast(0)]
Count = Annotated[int, AtLeast(1)]
Float = Literal["float32", "float64", "float16", "bfloat16"]
Number = Literal["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32"]

_EXPECTED = {
    "extent": 'an integer, or "?" for a size known only at run time',
    "window": "an integer, or one per axis such as 3x5",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operator."""

    name: str
    kind: Kind
    default: Value | None = None  # None: required
    least: int | None = None
    choices: tuple[str, ...] = ()

    def read(self, value: object) -> Value:
        """The normalised form of a value from Python, YAML or a command line."""
        try:
            found = _READERS[self.kind](self.name, value)
        except (AttributeError, TypeError, ValueError):
            raise WorkloadError(f"{self.name} = {value!r} is not {_EXPECTED[self.kind]}") from None
        if self.choices and found not in self.choices:
            raise WorkloadError(f"{self.name} = {value!r} is unknown{nearest(str(value), self.choices)}")
        numbers = found if isinstance(found, tuple) else (found,)
        if self.least is not None and any(isinstance(x, int) and x < self.least for x in numbers):
            raise WorkloadError(f"{self.name} = {text(found)} is too small: at least {self.least}")
        return found

    def is_telling(self, value: Value) -> bool:
        """Whether a label shows the value: numbers unless neutral (no padding, stride 1), names if not the default."""
        neutral = self.kind not in ("window", "int") or self.default == self.least
        return self.kind == "extent" or value != self.default or not neutral


def text(value: Value) -> str:
    """The value in the form that `Parameter.read` parses."""
    if isinstance(value, Var):
        return f"?{value.name}"
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The parameters that a function's signature declares."""
    where = f"operator '{function.__name__}'"
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as e:
        raise WorkloadError(f"{where}: cannot read its annotations: {e}") from e
    found = []
    for p in inspect.signature(function).parameters.values():
        default = None if p.default is p.empty else p.default
        hint = hints.get(p.name, type(default))
        made = _parameter(p.name, hint)
        if made is None or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
            kinds = "Extent, Window, Padding, Count, int, float, bool, str or a Literal of texts"
            raise WorkloadError(f"{where}: parameter '{p.name}' needs one of the annotations {kinds}")
        kind, least, choices = made
        parameter = Parameter(p.name, kind, None, least, choices)
        found.append(parameter if default is None else Parameter(p.name, kind, parameter.read(default), least, choices))
    return tuple(found)


def _parameter(name: str, hint: Any) -> tuple[Kind, int | None, tuple[str, ...]] | None:
    least = None
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        least = next((n.value for n in notes if isinstance(n, AtLeast)), None)
    if get_origin(hint) is Literal:
        return "str", None, get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        parts = get_args(hint)
        return ("extent" if Expr in parts else "window", least, ()) if int in parts else None
    kinds: dict[Any, Kind] = {int: "int", float: "float", bool: "bool", str: "str"}
    return (kinds[hint], least, ()) if hint in kinds else None


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool):
        raise TypeError
    return int(value) if isinstance(value, str) else value.__index__()  # type: ignore[attr-defined]


def _extent(name: str, value: object) -> int | Var:
    if isinstance(value, str) and value.startswith("?"):
        given = value[1:] or name
        if not given.isidentifier():
            raise ValueError
        return size(given)
    if isinstance(value, Expr):
        known = value_of(value)
        if known is not None:
            return known
        if isinstance(value, Var) and value.role == "size":
            return value
        raise TypeError
    return _integer(name, value)


def _window(name: str, value: object) -> int | tuple[int, ...]:
    if isinstance(value, str):
        value = value.split("x")
    if not isinstance(value, (tuple, list)):
        return _integer(name, value)
    axes = tuple(_integer(name, v) for v in value)
    if not axes:
        raise ValueError
    return axes[0] if len(set(axes)) == 1 else axes  # normalised: equal on all axes is written as one number


def _float(name: str, value: object) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)  # type: ignore[arg-type]


def _bool(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}[str(value).lower()] if str(value).lower() in ("true", "false") else _fail()


def _str(name: str, value: object) -> str:
    return value if isinstance(value, str) else _fail()


def _fail() -> Any:
    raise TypeError


_READERS: dict[str, Callable[[str, object], Value]] = {
    "extent": _extent, "window": _window, "int": _integer, "float": _float, "bool": _bool, "str": _str,
}  # fmt: skip
