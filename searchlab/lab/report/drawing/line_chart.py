"""Line charts: one line with a band per entry, over trials, time or a threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from searchlab.lab.report.drawing import svg
from searchlab.lab.report.drawing.marks import NARROW, EntryStyle, legend
from searchlab.lab.report.drawing.scale import Axis, Scale, scale
from searchlab.lab.results import Floats

_POINTS = 240  # more cannot be seen
_BOTTOM = 40.0


@dataclass(frozen=True, eq=False)
class Series:
    """A line; `low` and `high` bound its band, if it has one.  With `dots` its points are not joined."""

    look: EntryStyle
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    dots: bool = False

    def thinned(self) -> Series:
        """Thins a series to as many points as can be seen, keeping the last one."""
        if len(self.x) <= _POINTS or self.dots:
            return self
        keep = np.unique(np.linspace(0, len(self.x) - 1, _POINTS).round().astype(int))
        low, high = (None if v is None else v[keep] for v in (self.low, self.high))
        return Series(self.look, self.x[keep], self.y[keep], low, high)


def line_chart(
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    width: float,
    step: bool = False,
    level: float | None = None,
    named: bool = True,
) -> svg.Drawing:
    """Lines with bands, a legend above and round numbers on both axes; a dashed line at `level`.

    Without names there is no legend: something beside the figure identifies the lines.
    """
    tall = width * (0.46 if width > NARROW else 0.72)
    drawn = [s.thinned() for s in series]
    names, top = legend([s.look for s in drawn if not s.dots], width) if named else ("", 0.0)
    top += 24
    low, high = _range(drawn, y)
    low = low if level is None else min(low, level - 0.02 * abs(level))
    down = scale(y, low, high, top + tall, top)
    left = max((svg.room(down.label(t), 11) for t in down.ticks), default=0.0) + 10
    first, last = _ends(drawn)
    across = scale(x, first, last, left, width - 8)
    frame = _frame(across, down, x.title, y.title, width)
    clip = _clip(across, down)
    if level is not None:
        frame += svg.rule(across.start, down.at(level), across.end, down.at(level), "reference")
    ordered = [s for s in drawn if s.look.muted] + [s for s in reversed(drawn) if not s.look.muted]
    bands = [_band(s, across, down) for s in ordered if not step]
    lines = [_line(s, across, down, step) for s in ordered]
    marks = svg.element("g", *bands, *lines, **{"clip-path": f"url(#{clip[0]})"})
    data = {"x": across.data, "y": down.data, "x-title": x.title}
    body = names + clip[1] + frame + (marks if drawn else "")
    return svg.Drawing(width, top + tall + _BOTTOM, body, data)


def _band(s: Series, across: Scale, down: Scale) -> str:
    if s.low is None or s.high is None:
        return ""
    there = np.isfinite(s.low) & np.isfinite(s.high)
    xs = across(s.x[there]).tolist()
    forth = list(zip(xs, down(s.high[there]).tolist(), strict=True))
    back = list(zip(xs, down(s.low[there]).tolist(), strict=True))
    return s.look.group(svg.path(forth + back[::-1], "band", close=True)) if len(forth) > 1 else ""


def _line(s: Series, across: Scale, down: Scale, step: bool) -> str:
    there = np.isfinite(s.y)
    points = list(zip(across(s.x[there]).tolist(), down(s.y[there]).tolist(), strict=True))
    if not points:
        return ""
    if s.dots:
        marks = (svg.element("circle", **{"cx": x, "cy": y, "r": 2.5, "class": "dot"}) for x, y in points)
        return s.look.group(*marks, opacity="0.45")
    alone = {"cx": points[0][0], "cy": points[0][1], "r": 3.5, "class": "dot"}
    dot = svg.element("circle", **alone) if len(points) == 1 else ""
    return s.look.group(dot, svg.path(points, "line", step))


def _frame(across: Scale, down: Scale, x_title: str, y_title: str, width: float) -> str:
    left, bottom = across.start, down.start
    parts = [svg.words(0, down.end - 10, y_title, "axis-title")]
    for t in down.ticks:
        parts.append(svg.rule(left, down.at(t), width - 8, down.at(t), "grid"))
        parts.append(svg.words(left - 6, down.at(t) + 4, down.label(t), "tick", "end"))
    for t in across.ticks:
        parts.append(svg.rule(across.at(t), bottom, across.at(t), bottom + 4, "axis"))
        parts.append(svg.words(across.at(t), bottom + 17, across.label(t), "tick", "middle"))
    parts.append(svg.rule(left, bottom, width - 8, bottom, "axis"))
    parts.append(svg.words((left + width - 8) / 2, bottom + 34, x_title, "axis-title", "middle"))
    return "".join(parts)


def _clip(across: Scale, down: Scale) -> tuple[str, str]:
    """A clipping region whose name depends on its shape only, so that equal names mean equal regions."""
    x, y = across.start, down.end - 2
    wide, tall = across.end - x + 2, down.start - y
    name = "clip-" + "-".join(svg.number(v).replace(".", "_") for v in (x, y, wide, tall))
    return name, svg.element("clipPath", svg.box(x, y, wide, tall, ""), id=name)


def _range(series: Sequence[Series], axis: Axis) -> tuple[float, float]:
    """The range of lines and bands; the first points, often outliers, may lie outside."""
    values = []
    for s in series:
        skip = len(s.y) // 25
        for v in (s.y, s.low, s.high):
            if v is not None:
                seen = v[skip:]
                values.append(seen[np.isfinite(seen)])
    found = np.concatenate(values) if values else np.empty(0)
    if not len(found):
        return np.nan, np.nan
    low, high = float(found.min()), float(found.max())
    if axis.log:
        return low / 1.04, high * 1.04
    edge = 0.04 * (high - low)
    return low - edge, high + edge


def _ends(series: Sequence[Series]) -> tuple[float, float]:
    ends = [(float(s.x.min()), float(s.x.max())) for s in series if len(s.x)]
    return (min(a for a, _ in ends), max(b for _, b in ends)) if ends else (np.nan, np.nan)
