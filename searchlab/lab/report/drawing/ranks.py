"""Critical-difference diagrams: mean ranks on a line, with a bar under those that cannot be told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from searchlab.lab.report.drawing import svg
from searchlab.lab.report.drawing.marks import NARROW, EntryStyle
from searchlab.lab.report.drawing.scale import Scale

_ROW = 20.0


def rank_diagram(
    ranked: Sequence[tuple[EntryStyle, float]],
    cliques: Sequence[Sequence[str]],
    width: float,
    difference: float | None = None,
) -> svg.Drawing:
    """`ranked`: entries with their mean ranks, best first. Half of the names are on the left, half on the right.

    In a narrow figure every entry has its own row, and vertical bars are drawn beside them.
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
    bars = _bars([sorted(at[n] for n in c) for c in cliques if len(c) > 1], across, top)
    lowest = top + 14 + 10 * bars[1]
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


def _bars(sets: Sequence[list[float]], across: Scale, top: float) -> tuple[str, int]:
    """The bars, each on the first level where it overlaps no other, with a dot per member; and the number of levels."""
    levels: list[float] = []
    parts = []
    for ranks in sorted(sets):
        level = next((n for n, end in enumerate(levels) if end < ranks[0]), len(levels))
        levels[level : level + 1] = [ranks[-1]]
        y = top + 10 + 10 * level
        parts.append(svg.rule(across.at(ranks[0]), y, across.at(ranks[-1]), y, "clique"))
        parts += [_member(across.at(rank), y) for rank in ranks]
    return "".join(parts), len(levels)


def _member(x: float, y: float) -> str:
    return svg.element("circle", **{"cx": x, "cy": y, "r": 3.6, "class": "member"})


def _name(
    look: EntryStyle, rank: float, across: Scale, top: float, y: float, left: bool, width: float, margin: float
) -> str:
    x, end = across.at(rank), (margin - 6 if left else width - margin + 6)
    line = svg.path([(x, top), (x, y - 4), (end, y - 4)], "leader")
    mark = svg.element("circle", **{"cx": x, "cy": top, "r": 3.5, "class": "dot"})
    figure, name = f"{rank:.2f}", svg.fitted(look.name, margin - 50)
    if left:
        words = svg.words(end - 44, y, name, "", "end", look.name) + svg.words(end - 4, y, figure, "note", "end")
    else:
        words = svg.words(end + 44, y, name, "", None, look.name) + svg.words(end + 4, y, figure, "note")
    return look.group(line, mark) + words


def _in_rows(ranked: Sequence[tuple[EntryStyle, float]], cliques: Sequence[Sequence[str]], width: float) -> svg.Drawing:
    count = len(ranked)
    place = {look.name: n for n, (look, _) in enumerate(ranked)}
    sets = sorted(sorted(place[n] for n in c) for c in cliques if len(c) > 1)
    room = width - 20 - 10 * len(sets)
    across = Scale(1.0, float(max(count, 2)), 8.0, room)
    top, tall = 34.0, 40.0
    parts = [_line(across, top, count), svg.words(0, 12, "mean rank", "axis-title")]
    for n, (look, rank) in enumerate(ranked):
        y = top + 20 + tall * n
        dot = svg.element("circle", **{"cx": across.at(rank), "cy": y + 14, "r": 5, "class": "dot"})
        parts += [svg.rule(across.start, y + 14, across.end, y + 14, "grid"), look.group(dot)]
        parts.append(svg.words(0, y, svg.fitted(f"{look.name}  {rank:.2f}", room), full=look.name))
    for n, members in enumerate(sets):
        x, heights = width - 8 - 10 * n, [top + 34 + tall * m for m in members]
        parts.append(svg.rule(x, heights[0], x, heights[-1], "clique"))
        parts += [_member(x, y) for y in heights]
    return svg.Drawing(width, top + tall * count + 10, "".join(parts))
