"""Marks shared by several kinds of charts: the styles of entries, and the legend that names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from searchlab.lab.report.drawing import svg
from searchlab.lab.report.drawing.theme import entry_class

NARROW = 500  # pixels below which a figure is drawn for a phone
_LINE = 18.0
_SWATCH = 22.0


@dataclass(frozen=True)
class EntryStyle:
    """How an entry appears in every figure; `number` chooses colour and dash."""

    name: str
    number: int
    muted: bool = False

    @property
    def kind(self) -> str:
        """The class of its marks, which has its colour."""
        return entry_class(self.number, self.muted)

    def group(self, *content: str, **attributes: str) -> str:
        """The marks of this entry as a group, which the page can emphasise or fade."""
        names = {"data-entry": str(self.number), "data-name": self.name}
        return svg.group(self.kind, *content, **names, **attributes)


def legend(looks: Sequence[EntryStyle], width: float) -> tuple[str, float]:
    """A swatch and a name for each entry that is not in the background, wrapped; and the height of the legend."""
    shown = [look for look in looks if not look.muted]
    left = len(looks) - len(shown)
    items = [(look.name, look) for look in shown] + ([(f"{left} others", None)] if left else [])
    x, y, parts = 0.0, 12.0, []
    for name, look in items:
        text = svg.fitted(name, width - _SWATCH - 6)
        wide = _SWATCH + svg.room(text) + 16
        if x and x + wide - 16 > width:
            x, y = 0.0, y + _LINE
        stroke = svg.path([(x, y - 4), (x + 16, y - 4)], "line")
        parts.append(look.group(stroke) if look else svg.group("muted entry", stroke))
        parts.append(svg.words(x + _SWATCH, y, text, full=name))
        x += wide
    return svg.group("legend", *parts), y + 10


def swatches(names: Sequence[tuple[str, str]], width: float) -> tuple[str, float]:
    """A square and a name for each (class, name), wrapped; and the height of the result."""
    x, y, parts = 0.0, 12.0, []
    for kind, name in names:
        wide = 16 + svg.room(name) + 14
        if x and x + wide - 14 > width:
            x, y = 0.0, y + _LINE
        parts += [svg.box(x, y - 10, 11, 11, kind), svg.words(x + 16, y, name)]
        x += wide
    return svg.group("legend", *parts), y + 10
