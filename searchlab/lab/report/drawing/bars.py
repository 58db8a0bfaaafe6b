"""Bar charts: values with intervals relative to a reference, and totals stacked from parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from searchlab.lab.report.drawing import svg
from searchlab.lab.report.drawing.marks import NARROW, EntryStyle, swatches
from searchlab.lab.report.drawing.scale import Axis, Scale, scale
from searchlab.lab.report.drawing.theme import PARTS

_ROW, _TALL_ROW = 28.0, 46.0  # the taller one has its name above the bar
_BOTTOM = 40.0


@dataclass(frozen=True)
class Bar:
    """A value with its interval, and the label to its right."""

    look: EntryStyle
    value: float
    low: float
    high: float
    note: str = ""


@dataclass(frozen=True)
class Rows:
    """The layout of rows: beside their names, or below them if the figure is narrow."""

    names: Sequence[str]
    notes: Sequence[str]
    width: float
    top: float

    @property
    def stacked(self) -> bool:
        """Whether names stand above their rows."""
        return self.width < NARROW

    @property
    def left(self) -> float:
        """Where bars may begin."""
        if self.stacked:
            return 8.0
        return min(max((svg.room(n) for n in self.names), default=0.0) + 14, self.width * 0.34)

    @property
    def right(self) -> float:
        """Where bars must end."""
        beside = 8.0 if self.stacked else max((svg.room(n, 11) for n in self.notes), default=0.0) + 14
        return self.width - beside

    @property
    def bottom(self) -> float:
        """Where the last row ends."""
        return self.top + len(self.names) * self._height + 4

    @property
    def _height(self) -> float:
        return _TALL_ROW if self.stacked else _ROW

    def middle(self, n: int) -> float:
        """The vertical centre of a row's bar."""
        return self.top + self._height * n + (30.0 if self.stacked else _ROW / 2)

    def words(self, n: int) -> str:
        """A row's name and note."""
        name, note = self.names[n], self.notes[n]
        if self.stacked:
            y = self.middle(n) - 14
            shown = svg.fitted(name, self.width - svg.room(note, 11) - 12)
            return svg.words(0, y, shown, full=name) + svg.words(self.width, y, note, "note", "end")
        y = self.middle(n) + 4
        shown = svg.words(self.left - 10, y, svg.fitted(name, self.left - 12), "", "end", name)
        return shown + svg.words(self.width, y, note, "note", "end")


def interval_chart(bars: Sequence[Bar], axis: Axis, width: float, reference: float | None = None) -> svg.Drawing:
    """One row per bar: from the reference to the value, with a whisker; without a reference, a dot."""
    rows = Rows([b.look.name for b in bars], [b.note for b in bars], width, 6.0)
    known = [v for b in bars for v in (b.low, b.high, b.value) if np.isfinite(v)]
    known += [reference] if reference is not None else []
    low, high = (min(known), max(known)) if known else (np.nan, np.nan)
    edge = 0.04 * (high - low)
    across = scale(axis, low - edge, high + edge, rows.left, rows.right)
    parts = [_across(across, 4, rows.bottom, axis.title, width)]
    if reference is not None:
        parts.append(svg.rule(across.at(reference), 4, across.at(reference), rows.bottom, "reference"))
    for n, bar in enumerate(bars):
        parts += [rows.words(n), _interval(bar, across, rows.middle(n), reference)]
    return svg.Drawing(width, rows.bottom + _BOTTOM, "".join(parts))


def _interval(bar: Bar, across: Scale, y: float, reference: float | None) -> str:
    parts: list[str] = []
    if not np.isfinite(bar.value):
        return ""
    x = across.at(bar.value)
    if reference is not None:
        start = across.at(reference)
        parts.append(bar.look.group(svg.box(min(x, start), y - 8, abs(x - start), 16, "bar")))
    if np.isfinite(bar.low) and np.isfinite(bar.high):
        a, b = across.at(bar.low), across.at(bar.high)
        parts += [svg.rule(a, y, b, y, "whisker"), svg.rule(a, y - 4, a, y + 4, "whisker")]
        parts.append(svg.rule(b, y - 4, b, y + 4, "whisker"))
    if reference is None:
        parts.append(bar.look.group(svg.element("circle", **{"cx": x, "cy": y, "r": 5, "class": "dot"})))
    return "".join(parts)


def stacked_chart(
    bars: Sequence[tuple[str, Mapping[str, float], str]], parts: Sequence[str], axis: Axis, width: float
) -> svg.Drawing:
    """One row per name: its stacked parts, in the order and colours of `parts`, with a note to the right."""
    kinds = {part: f"p{n % PARTS}" for n, part in enumerate(parts)}
    used = [p for p in parts if any(values.get(p, 0.0) > 0 for _, values, _ in bars)]
    names, top = swatches([(kinds[p], p) for p in used], width)
    rows = Rows([name for name, _, _ in bars], [note for _, _, note in bars], width, top + 4)
    longest = max((sum(values.values()) for _, values, _ in bars), default=1.0)
    across = scale(axis, 0.0, longest, rows.left, rows.right)
    drawn = [names, _across(across, top, rows.bottom, axis.title, width)]
    for n, (name, values, _) in enumerate(bars):
        y, done = rows.middle(n), 0.0
        drawn.append(rows.words(n))
        for part in used:
            value = values.get(part, 0.0)
            if value > 0:
                x, end = across.at(done), across.at(done + value)
                hint = f"{name}, {part}: {across.label(float(f'{value:.3g}'))}"
                drawn.append(svg.box(x, y - 9, end - x, 18, f"{kinds[part]} gap", hint))
                done += value
    return svg.Drawing(width, rows.bottom + _BOTTOM, "".join(drawn))


def _across(across: Scale, top: float, bottom: float, title: str, width: float) -> str:
    parts = []
    for t in across.ticks:
        parts.append(svg.rule(across.at(t), top, across.at(t), bottom, "grid"))
        parts.append(svg.words(across.at(t), bottom + 15, across.label(t), "tick", "middle"))
    half = svg.room(title) / 2
    middle = min(max((across.start + across.end) / 2, half), max(width - half, width / 2))
    return "".join(parts) + svg.words(middle, bottom + 34, svg.fitted(title, width), "axis-title", "middle", title)
