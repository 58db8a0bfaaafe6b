"""Operators by name: the decorator that registers one, and look-up by name, by import path and from text."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable
from functools import cache

from searchlab.errors import WorkloadError
from searchlab.registry import nearest
from searchlab.workloads.definition import Definition, Operator, Workload, imported

_MODULES = ("linear", "convolution", "quantized", "transposed", "normalize", "windows", "elementwise")
_ENTRY_POINTS = "searchlab.workloads"
_table: dict[str, Operator] = {}


def operator(function: Callable[..., Definition]) -> Operator:
    """Registers a function that returns a Definition as an operator under the function's name.

    Its parameters become those of the workload; annotations define the accepted values.
    """
    made = Operator.of(function)
    known = _table.get(made.name)
    if known is not None and known.path != made.path:  # the same path again: a module was reloaded
        raise WorkloadError(f"operator '{made.name}' of {made.path} is already defined by {known.path}")
    _table[made.name] = made
    return made


def workload(name: str, /, **params: object) -> Workload:
    """The workload of an operator, given by name or as "module:function"."""
    return find(name)(**params)


def lazy(name: str, /, **params: object) -> Workload:
    """Like `workload`, but the program is built (and impossible shapes are rejected) only on first use."""
    return find(name).lazy(**params)


def parse(text: str) -> Workload:
    """A workload from text: `matmul`, `matmul:m=64,n=32,dtype=float64`, `my.module:function:rows=3`."""
    head, _, tail = text.strip().rpartition(":")
    if not head or "=" not in tail:
        return workload(text.strip().rstrip(":"))
    params: dict[str, object] = {}
    for part in re.split(r",\s*(?=\w+\s*=)", tail):  # a comma inside a value is not a separator
        key, equals, value = (s.strip() for s in part.partition("="))
        if not equals or not key.isidentifier():
            raise WorkloadError(f"'{text}': '{part}' is not of the form name=value")
        if key in params:
            raise WorkloadError(f"'{text}': '{key}' is given twice")
        params[key] = value
    return workload(head, **params)


def operators() -> dict[str, Operator]:
    """All operators by name; each has its `summary` and its `parameters` with defaults."""
    _load()
    _load_plugins()
    return dict(sorted(_table.items()))


def find(name: str) -> Operator:
    """The operator with a given name or import path."""
    if ":" in name:
        return imported(name, name)
    _load()
    if name not in _table:
        _load_plugins()
    if name not in _table:
        raise WorkloadError(f"unknown operator '{name}'{nearest(name, sorted(_table))}")
    return _table[name]


@cache
def _load() -> None:
    for module in _MODULES:
        importlib.import_module(f"searchlab.workloads.{module}")


@cache
def _load_plugins() -> None:
    from importlib.metadata import entry_points

    for point in entry_points(group=_ENTRY_POINTS):
        if point.name in _table:
            continue
        try:
            _table[point.name] = imported(point.value, point.name)
        except WorkloadError as e:  # a broken plug-in must not hide the others
            warnings.warn(f"entry point '{point.name}' of {_ENTRY_POINTS}: {e}", stacklevel=2)
