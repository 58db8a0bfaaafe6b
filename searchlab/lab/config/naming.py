"""Names of combinations: the settings that vary among them, as short as possible without ambiguity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from searchlab.lab.config.combinations import Combination
from searchlab.lab.config.search_settings import SearchSettings
from searchlab.lab.config.settings import NAMED, split

ORDER = ("space", "model", "strategy", "history", "start", "target", "budget", "measure")
ALWAYS = ("space", "model", "strategy")


@dataclass(frozen=True)
class Entry:
    """A combination by its name, what it is made of as text, and its settings."""

    name: str
    factors: Mapping[str, str]
    settings: SearchSettings


def entries(combinations: Sequence[Combination]) -> tuple[Entry, ...]:
    """A unique name for each combination."""
    settings = [SearchSettings.of(c.settings) for c in combinations]
    swept = _Texts([SearchSettings.of(c.swept).plain for c in combinations])
    final = _Texts([s.plain for s in settings])
    made = []
    for n, c in enumerate(combinations):
        factors = final.factors(n)
        if c.variant:
            factors["ablation"] = c.variant
        made.append(Entry(_name(c, swept, n), factors, settings[n]))
    return tuple(_unique(made))


class _Texts:
    """All settings of all combinations as short texts; `varying` are those that differ."""

    def __init__(self, settings: Sequence[Mapping[str, Any]]) -> None:
        self.settings = settings
        self.short = {k: _short(k, [s[k] for s in settings]) for k in ORDER}
        self.varying = [k for k in ORDER if any(s[k] != settings[0][k] for s in settings)]

    def factors(self, n: int) -> dict[str, str]:
        """What a combination is made of: components with all their options, and what else varies."""
        always = {k: _text(*_parts(k, self.settings[n][k])) for k in ALWAYS}
        others = {k: self.short[k][n] for k in self.varying if k not in ALWAYS}
        if "start" in self.varying:
            others["start"] = self.settings[n]["start"]
        if self.settings[n]["history"] or "history" in self.varying:  # what learnt from others is never the same thing
            others["history"] = self.short["history"][n].removeprefix("history=")
        return {k: v for k, v in {**always, **others}.items() if v}


def _name(c: Combination, texts: _Texts, n: int) -> str:
    parts = [t for k in texts.varying if k not in c.named and (t := texts.short[k][n])]
    parts += [*c.names, *([c.variant] if c.variant else [])]
    return "/".join(parts) or "/".join(t for k in ALWAYS if (t := texts.short[k][n]))


def _unique(made: list[Entry]) -> list[Entry]:
    seen: dict[str, int] = {}
    result = []
    for entry in made:
        seen[entry.name] = count = seen.get(entry.name, 0) + 1
        result.append(entry if count == 1 else replace(entry, name=f"{entry.name} #{count}"))
    return result


def _short(key: str, values: Sequence[Any]) -> list[str]:
    """Texts that tell the values apart: names, with those options that differ among values of the same name."""
    if key == "history":
        return _histories(values)
    parts = [_parts(key, v) for v in values]
    differing: dict[str, dict[str, None]] = {}
    first: dict[str, Mapping[str, Any]] = {}
    for name, options in parts:
        start = first.setdefault(name, options)
        unlike = (k for k in (*start, *options) if options.get(k) != start.get(k))
        differing.setdefault(name, {}).update(dict.fromkeys(unlike))
    return [_text(name, {k: options[k] for k in differing[name] if k in options}) for name, options in parts]


def _histories(values: Sequence[Sequence[str]]) -> list[str]:
    """Histories by the names of their folders, with as many of those around them as it takes to tell them apart."""
    found: list[str] = []
    for depth in range(1, 1 + max((len(PurePath(p).parts) for v in values for p in v), default=1)):
        found = ["+".join(str(PurePath(*PurePath(p).parts[-depth:])) for p in v) or "none" for v in values]
        if len(set(found)) == len({tuple(v) for v in values}):
            break
    return [f"history={text}" for text in found]


def _parts(key: str, value: Any) -> tuple[str, Mapping[str, Any]]:
    if value is None:
        return "", {}
    if key == "start":
        return "", {key: value}
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
