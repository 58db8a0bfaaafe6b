"""Critical-difference diagrams: mean ranks on a line, with a bar under those that cannot be told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from searchlab.lab.report.drawing import svg
from searchlab.lab.report.drawing.marks import NARROW, Look
from searchlab.lab.report.drawing.scale import Scale

_ROW = 20.0


def rank_diagram(
    ranked: Sequence[tuple[Look, float]],
    cliques: Sequence[Sequence[str]],
    width: float,
    difference: float | None = None,
) -> svg.Drawing:
    """`ranked`: entries with their mean ranks, best first. Half of the names hang on the left, half on the right.

    In a narrow figure every entry has a row of its own, and bars stand upright beside them.
    """
    if width < NARROW:
        return _in_rows(ranked, cliques, width)
    count = len(ranked)
    names = max((svg.room(look.name) for look, _ in ranked), default=0.0) + 54
    margin = min(names, width * 0.36)
    across = Scale(1.0, float(max(count, 2)), margin, width - margin)
    top = 54.0 if difference else 34.0
    parts = [_line(across, top, count), svg.words(0, top - 9, "mean rank", "axis-title")]
    if difference:
        parts.append(_difference(across, difference))
    at = {look.name: rank for look, rank in ranked}
    bars = _bars([(min(at[n] for n in c), max(at[n] for n in c)) for c in cliques if len(c) > 1], across, top)
    lowest = top + 14 + 9 * bars[1]
    half = math.ceil(count / 2)
    for n, (look, rank) in enumerate(ranked):
        level = n if n < half else count - 1 - n
        y = lowest + 12 + _ROW * level
        parts.append(_name(look, rank, across, top, y, left=n < half, width=width, margin=margin))
    return svg.Drawing(width, lowest + 12 + _ROW * max(half, 1), "".join(parts) + bars[0])


def _line(across: Scale, y: float, count: int) -> str:
    parts = [svg.rule(across.start, y, across.end, y, "axis")]
    every = max(1, math.ceil(count / max((across.end - across.start) / 24, 1)))
    for rank in range(1, max(count, 2) + 1, every):
        x = across.at(rank)
        parts += [svg.rule(x, y - 5, x, y, "axis"), svg.words(x, y - 9, str(rank), "tick", "middle")]
    return "".join(parts)


def _difference(across: Scale, difference: float) -> str:
    a, b = across.start, across.at(min(1.0 + difference, across.high))
    bar = svg.rule(a, 16, b, 16, "whisker") + svg.rule(a, 12, a, 20, "whisker") + svg.rule(b, 12, b, 20, "whisker")
    return bar + svg.words(b + 6, 20, f"critical difference {difference:.2f}", "note")


def _bars(spans: Sequence[tuple[float, float]], across: Scale, top: float) -> tuple[str, int]:
    """The bars, each on the first level where it meets no other; and the number of levels."""
    levels: list[float] = []
    parts = []
    for low, high in sorted(spans):
        level = next((n for n, end in enumerate(levels) if end < low), len(levels))
        levels[level : level + 1] = [high]
        y = top + 10 + 9 * level
        parts.append(svg.rule(across.at(low) - 3, y, across.at(high) + 3, y, "clique"))
    return "".join(parts), len(levels)


def _name(look: Look, rank: float, across: Scale, top: float, y: float, left: bool, width: float, margin: float) -> str:
    x, end = across.at(rank), (margin - 6 if left else width - margin + 6)
    line = svg.path([(x, top), (x, y - 4), (end, y - 4)], "leader")
    mark = svg.element("circle", **{"cx": x, "cy": top, "r": 3.5, "class": "dot"})
    figure, name = f"{rank:.2f}", svg.fitted(look.name, margin - 50)
    if left:
        words = svg.words(end - 44, y, name, "", "end", look.name) + svg.words(end - 4, y, figure, "note", "end")
    else:
        words = svg.words(end + 44, y, name, "", None, look.name) + svg.words(end + 4, y, figure, "note")
    return look.group(line, mark) + words


def _in_rows(ranked: Sequence[tuple[Look, float]], cliques: Sequence[Sequence[str]], width: float) -> svg.Drawing:
    count = len(ranked)
    place = {look.name: n for n, (look, _) in enumerate(ranked)}
    spans = sorted((min(place[n] for n in c), max(place[n] for n in c)) for c in cliques if len(c) > 1)
    across = Scale(1.0, float(max(count, 2)), 8.0, width - 20 - 9 * len(spans))
    top, tall = 34.0, 40.0
    parts = [_line(across, top, count), svg.words(0, 12, "mean rank", "axis-title")]
    for n, (look, rank) in enumerate(ranked):
        y = top + 20 + tall * n
        name = svg.fitted(f"{look.name}  {rank:.2f}", width - 20 - 9 * len(spans))
        dot = svg.element("circle", **{"cx": across.at(rank), "cy": y + 14, "r": 5, "class": "dot"})
        parts += [svg.rule(across.start, y + 14, across.end, y + 14, "grid"), look.group(dot)]
        parts.append(svg.words(0, y, name, full=look.name))
    for n, (first, last) in enumerate(spans):
        x = width - 8 - 9 * n
        parts.append(svg.rule(x, top + 20 + tall * first, x, top + 34 + tall * last, "clique"))
    return svg.Drawing(width, top + tall * count + 10, "".join(parts))
