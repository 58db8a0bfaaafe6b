"""Code referenced by name: resolves "module:attribute" and checks that the object fits its role before it is called.

Importing a module runs it, so the author of a reference must be trusted. But a name alone never causes a call: a role
is filled by a class that extends the role's base, or by a function that was written for it.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import sysconfig
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.machinery import PathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from searchlab.errors import SearchLabError

T = TypeVar("T")
SHIPPED = ("searchlab", "spaces", "costmodels")  # the packages that searchlab comes with, known by their versions
INSTALLED = ("site-packages", "dist-packages")  # the folders that packages are installed into


def is_shipped(module: str) -> bool:
    """Whether a module comes with searchlab."""
    return module.partition(".")[0] in SHIPPED


@dataclass(frozen=True)
class Named:
    """A "module:attribute" path; errors are of the class `error`, and their messages begin with `what`."""

    path: str
    what: str
    error: type[SearchLabError]

    @cached_property
    def found(self) -> Any:
        """The object at the path; imports its module."""
        module, _, name = self.path.partition(":")
        if not (name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
            raise self.error(f"{self.what}: '{self.path}' is not of the form module:name")
        try:
            found = importlib.import_module(module)
        except ImportError as e:
            raise self.error(f"{self.what}: cannot import '{module}': {e}{_hint(module)}") from e
        except (Exception, SystemExit) as e:  # importing runs arbitrary code
            raise self.error(f"{self.what} cannot be imported: {type(e).__name__}: {e}") from e
        if not hasattr(found, name):
            raise self.error(f"{self.what}: module '{module}' has no '{name}'{_hint(module)}")
        if hint := _hint(module):
            warnings.warn(f"{self.what}{hint}", stacklevel=2)
        return getattr(found, name)

    def subclass(self, base: type[T]) -> type[T]:
        """The class at the path, which must extend `base`."""
        found = self.found
        if not (isinstance(found, type) and issubclass(found, base)):
            accepted = f"a class that extends {base.__module__}.{base.__qualname__}"
            raise self.error(
                f"{self.what} is {_described(found)}, which is not a {base.__name__}; accepted: {accepted}"
            )
        return found

    def instance(self, base: type[T]) -> T:
        """An instance of the class at the path, created without options."""
        cls = self.subclass(base)
        try:
            return cls()
        except (TypeError, ValueError) as e:
            raise self.error(f"{self.what} cannot be created without options: {e}") from e

    def function(self, mark: type, takes: Sequence[str] | None = None) -> FunctionType:
        """The function at the path: user code, or a function whose annotations name the type `mark`.

        `takes` names the arguments that it must accept; None skips this check.
        """
        found = self.found
        accepted = f"a function of ({', '.join(takes)})" if takes is not None else "a function"
        accepted += f" of your own, or one whose annotations name {mark.__module__}.{mark.__qualname__}"
        if not isinstance(found, FunctionType) or found.__name__ == "<lambda>":
            raise self.error(f"{self.what} is {_described(found)}; accepted: {accepted}")
        if not (_mentions(found, mark) or _is_users_own(found)):
            raise self.error(f"{self.what} is {_described(found)}, not written for this; accepted: {accepted}")
        if takes is not None and not _can_take(found, len(takes)):
            raise self.error(f"{self.what} takes {inspect.signature(found)}; accepted: {accepted}")
        return found


def _mentions(found: FunctionType, mark: type) -> bool:
    """Whether an annotation is the type, or its name as a string."""
    said = found.__annotations__.values()
    return any(a is mark or (isinstance(a, str) and a.rpartition(".")[2] == mark.__name__) for a in said)


def _is_users_own(found: FunctionType) -> bool:
    """Whether a function belongs neither to Python, nor to searchlab, nor to an installed package."""
    top = found.__module__.partition(".")[0]
    file = Path(found.__code__.co_filename)
    ours = top == __name__.partition(".")[0]
    with_python = top in sys.stdlib_module_names or file.is_relative_to(sysconfig.get_path("stdlib"))
    return not (ours or with_python or set(INSTALLED) & set(file.parts))


def _can_take(found: FunctionType, count: int) -> bool:
    try:
        inspect.signature(found).bind(*range(count))
    except TypeError:
        return False
    return True


def _described(found: Any) -> str:
    if isinstance(found, type):
        return f"the class {found.__qualname__} of {found.__module__}"
    if isinstance(found, ModuleType):
        return f"the module {found.__name__}"
    if inspect.isroutine(found):
        kind = "lambda" if found.__name__ == "<lambda>" else f"function {found.__name__}"
        return f"the {kind} of {found.__module__}"
    return f"a {type(found).__qualname__} object"


def _hint(module: str) -> str:
    """The end of a message about a module that shadows another one of its name."""
    top = module.partition(".")[0]
    found = sys.modules.get(top)
    hidden = None if found is None else _hidden(top, getattr(found, "__file__", None) or "", tuple(sys.path))
    where = "comes with Python" if top in sys.stdlib_module_names else "was found first"
    return f"; a module '{top}' that {where} hides {hidden}: give yours another name" if hidden else ""


@cache
def _hidden(top: str, file: str, path: tuple[str, ...]) -> str | None:
    """A module that the one found shadows."""
    for folder in path:
        spec = PathFinder.find_spec(top, [folder])
        if spec is not None and spec.has_location and spec.origin is not None:
            if not file or os.path.realpath(spec.origin) != os.path.realpath(file):
                return spec.origin
    return None
