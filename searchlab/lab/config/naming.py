"""What combinations are called: by what varies among them, as short as it can be without confusion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from searchlab.lab.config.combinations import Combination
from searchlab.lab.config.settings import NAMED, split
from searchlab.lab.config.tree import plain

ORDER = ("space", "model", "strategy", "target", "budget", "measure")
ALWAYS = ("space", "model", "strategy")


@dataclass(frozen=True)
class Entry:
    """A combination by its name, and what it is made of as text."""

    name: str
    factors: Mapping[str, str]


def entries(combinations: Sequence[Combination]) -> list[Entry]:
    """A name for each combination, none twice."""
    swept = {k: [plain(c.swept[k]) for c in combinations] for k in ORDER}
    varying = [k for k in ORDER if any(v != swept[k][0] for v in swept[k])]
    short = {k: _short(k, swept[k]) for k in ORDER}
    final = {k: [plain(c.settings[k]) for c in combinations] for k in ORDER}
    factored = [k for k in ORDER if k in ALWAYS or any(v != final[k][0] for v in final[k])]
    names = [_name(c, [(k, short[k][n]) for k in varying], short, n) for n, c in enumerate(combinations)]
    made = []
    for n, c in enumerate(combinations):
        factors = {k: text(k, final[k][n]) for k in factored if final[k][n] is not None}
        if c.variant:
            factors["ablation"] = c.variant
        made.append(Entry(names[n], factors))
    return _unique(made)


def _name(c: Combination, varying: list[tuple[str, str]], short: Mapping[str, list[str]], n: int) -> str:
    parts = [t for k, t in varying if k not in c.named and t]
    parts += [*c.names, *([c.variant] if c.variant else [])]
    return "/".join(parts) or "/".join(short[k][n] for k in ALWAYS if short[k][n])


def _unique(made: list[Entry]) -> list[Entry]:
    seen: dict[str, int] = {}
    result = []
    for entry in made:
        seen[entry.name] = count = seen.get(entry.name, 0) + 1
        result.append(entry if count == 1 else Entry(f"{entry.name} #{count}", entry.factors))
    return result


def _short(key: str, values: Sequence[Any]) -> list[str]:
    """Texts that tell the values apart: names, with those options that differ among values of the same name."""
    parts = [_parts(key, v) for v in values]
    found = []
    for name, options in parts:
        same = [o for other, o in parts if other == name]
        keys = dict.fromkeys(k for o in same for k in o)
        differing = [k for k in keys if any(o.get(k) != same[0].get(k) for o in same)]
        found.append(_text(name, {k: options.get(k) for k in differing if k in options}))
    return found


def text(key: str, value: Any) -> str:
    """A setting as text, with all its options."""
    return _text(*_parts(key, value))


def _parts(key: str, value: Any) -> tuple[str, Mapping[str, Any]]:
    if value is None:
        return "", {}
    return split(key, value) if key in NAMED else ("", value)


def _text(name: str, options: Mapping[str, Any]) -> str:
    given = ", ".join(f"{k}={_value(v)}" for k, v in options.items() if v is not None)
    if not name:
        return given
    short = name.rpartition(":")[2]  # the class, of an import path
    return f"{short}({given})" if given else short


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + _join(f"{k}: {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + _join(map(_value, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _join(parts: Iterable[str]) -> str:
    return ", ".join(parts)
