"""The intrinsics that programs may name: those shipped, those of entry points, and those added in this process.

A package brings its own with an entry point in the group `searchlab.intrinsics` that leads to an Intrinsic or to a
tuple of them.  "module:NAME" works without an entry point, in every process that can import the module.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from searchlab.errors import ComponentError
from searchlab.intrinsics.intrinsic import Intrinsic
from searchlab.named import Named
from searchlab.registry import nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "searchlab.intrinsics"
FAMILIES = ("byte_dots", "word_dots", "outer_products", "bfloat_dots", "amx_tiles", "arm_dots", "warp_products")
_added: dict[str, Intrinsic] = {}


def add_intrinsic(intrinsic: Intrinsic) -> Intrinsic:
    """Makes an intrinsic known by its name for the lifetime of this process."""
    _added[intrinsic.name] = intrinsic
    return intrinsic


def intrinsics() -> dict[str, Intrinsic]:
    """All intrinsics by name; a broken plug-in is warned about and left out."""
    return {**_shipped(), **_installed(), **_added}


def find_intrinsic(name: str) -> Intrinsic:
    """The intrinsic of a name or of a "module:NAME" path."""
    found = _added.get(name) or _shipped().get(name) or _installed().get(name)
    if found is not None:
        return found
    if ":" not in name:
        raise ComponentError(f"unknown intrinsic '{name}'{nearest(name, intrinsics())}")
    return _named(name)


def installed_modules() -> dict[str, str]:
    """The modules of the intrinsics that packages bring, by the names of their entry points; nothing is imported."""
    return {point.name: point.value.partition(":")[0] for point in _points()}


@cache
def _named(path: str) -> Intrinsic:
    several = tuple(_values(path, f"intrinsic '{path}'"))
    if len(several) != 1:
        raise ComponentError(f"intrinsic '{path}' is {len(several)} of them; name one")
    return several[0]


@cache
def _shipped() -> dict[str, Intrinsic]:
    modules = (f"{__package__}.{family}:INTRINSICS" for family in FAMILIES)
    return {x.name: x for path in modules for x in _values(path, "shipped intrinsics")}


@cache
def _installed() -> dict[str, Intrinsic]:
    found: dict[str, Intrinsic] = {}
    for point in _points():
        try:
            found.update({x.name: x for x in _values(point.value, f"intrinsics '{point.name}'")})
        except ComponentError as e:
            warnings.warn(str(e), stacklevel=2)
    return found


def _values(path: str, what: str) -> Iterator[Intrinsic]:
    found = Named(path, what, ComponentError).found
    for x in found if isinstance(found, (tuple, list)) else (found,):
        if not isinstance(x, Intrinsic):
            raise ComponentError(f"{what}: '{path}' is no Intrinsic and no tuple of them")
        yield x


def _points() -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points  # slow to import, and most programs use no plug-in

    return tuple(entry_points(group=GROUP))
