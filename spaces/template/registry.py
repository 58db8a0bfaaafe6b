"""Templates by operator and name: ours, and those that a user's modules register."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from searchlab.errors import SpaceError
from searchlab.named import Named
from searchlab.registry import nearest
from searchlab.schedule import Schedule
from searchlab.search.task import Task
from spaces.template.config import Config

Function = Callable[[Config, Schedule, Task], None]

# templates that call intrinsics, which an option switches on and off
CALLS, GPU_CALLS, KERNELS = "calls", "gpu-calls", "kernels"
_BUILT_IN = ("linear", "convolution", "stencil", "rows", "elementwise", "called", "gpu")
_TEMPLATES: dict[tuple[str, str], Template] = {}


@dataclass(frozen=True)
class Template:
    """A schedule function that defines knobs as it goes, for targets of a kind; None: for all."""

    name: str
    function: Function
    kind: str | None = None

    @property
    def ours(self) -> bool:
        """Whether it comes with this package."""
        return self.function.__module__.startswith(f"{__package__}.")

    def __call__(self, cfg: Config, s: Schedule, task: Task) -> None:
        self.function(cfg, s, task)


def template(name: str, operator: str | Sequence[str], kind: str | None = "cpu") -> Callable[[Function], Template]:
    """Registers a schedule function as a template of one operator or several, for targets of a kind (None: for all).

    @template("blocked", operator="matmul")
    def blocked(cfg: Config, s: Schedule, task: Task) -> None: ...
    """
    operators = (operator,) if isinstance(operator, str) else tuple(operator)

    def register(function: Function) -> Template:
        made = Template(name, function, kind)
        for op in operators:
            known = _TEMPLATES.get((op, name))
            # a module that is imported again, as notebooks do, replaces its own templates
            if known is not None and _path(known.function) != _path(function):
                raise SpaceError(f"operator '{op}' has a template '{name}' already, {_path(known.function)}")
            _TEMPLATES[op, name] = made
        return made

    return register


def _path(function: Function) -> str:
    return f"{function.__module__}:{getattr(function, '__qualname__', function)}"


def templates(operator: str, kind: str = "cpu") -> dict[str, Template]:
    """The templates of an operator for a kind of target, by name."""
    for module in _BUILT_IN:
        importlib.import_module(f"spaces.template.{module}")
    return {name: made for (op, name), made in _TEMPLATES.items() if op == operator and made.kind in (None, kind)}


def find(operator: str, name: str, kind: str = "cpu") -> Template:
    """The template of that name, or the function at "module:function"."""
    if ":" in name:
        return _imported(name)
    known = templates(operator, kind)
    if name not in known:
        raise SpaceError(f"operator '{operator}' has no template '{name}'{nearest(name, known)}")
    return known[name]


def _imported(path: str) -> Template:
    named = Named(path, f"template '{path}'", SpaceError)
    if isinstance(named.found, Template):
        return named.found
    return Template(path.partition(":")[2], named.function(Config, takes=("cfg", "s", "task")))
