"""Selectors: which entries a baseline or a statement means."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

Selector = str | Mapping[str, str]


def matches(selector: Selector, entry: str, factors: Mapping[str, str]) -> bool:
    """Whether an entry is meant: by its name (with * for several), or by factors, with or without their options."""
    if isinstance(selector, str):
        return entry == selector or fnmatchcase(entry, selector)
    return all(_is(factors.get(k, ""), v) for k, v in selector.items())


def _is(factor: str, wanted: str) -> bool:
    return factor == wanted or factor.partition("(")[0] == wanted or fnmatchcase(factor, wanted)
