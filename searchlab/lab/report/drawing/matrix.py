"""Heat maps of shares: above one half in one colour, below in another, both deeper towards the ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from searchlab.lab.report.drawing import svg
from searchlab.lab.report.drawing.marks import NARROW, EntryStyle
from searchlab.lab.results import Floats

_DEEPEST = 0.75  # text stays readable on it


def share_matrix(looks: Sequence[EntryStyle], shares: Floats, width: float, row: str, column: str) -> svg.Drawing:
    """Rows against columns, titled `row` and `column`. A share that is NaN stays empty.

    In a narrow figure the names are above the cells, and rows show their numbers only.
    """
    count = max(len(looks), 1)
    narrow = width < NARROW
    longest = max((svg.room(f"{len(looks)}  {k.name}") for k in looks), default=0.0)
    left = 26.0 if narrow else min(longest + 16, width * 0.4)
    side = min((width - left) / count, 56.0)
    tall = min(side, 34.0)
    top = 46.0 + (18.0 * count + 8 if narrow else 0.0)
    parts = [svg.words(left, top - 34, column, "axis-title"), svg.words(0, top - 8, row, "axis-title")]
    for n, look in enumerate(looks):
        y = top + tall * (n + 0.5) + 4
        label = svg.fitted(f"{n + 1}  {look.name}", width if narrow else left - 8)
        parts.append(svg.words(0, 14 + 18.0 * n if narrow else y, label, full=look.name))
        if narrow and tall >= 14:
            parts.append(svg.words(0, y, str(n + 1), "tick"))
        if side >= 14:
            parts.append(svg.words(left + side * (n + 0.5), top - 8, str(n + 1), "tick", "middle", look.name))
        for m, other in enumerate(looks):
            share = float(shares[n, m])
            parts.append(_cell(left + side * m, top + tall * n, side, tall, share, f"{look.name} against {other.name}"))
    return svg.Drawing(width, top + tall * count + 6, "".join(parts))


def _cell(x: float, y: float, wide: float, tall: float, share: float, hint: str) -> str:
    edge = svg.box(x, y, wide, tall, "cell-edge")
    if not np.isfinite(share):
        return edge
    depth = round(abs(share - 0.5) * 2 * _DEEPEST, 3)
    kind = "win" if share > 0.5 else "lose"
    fill = svg.box(x, y, wide, tall, kind, f"{hint}: {100 * share:.0f} %", **{"fill-opacity": f"{depth:.3f}"})
    text = svg.words(x + wide / 2, y + tall / 2 + 4, f"{100 * share:.0f}", "", "middle") if wide >= 24 else ""
    return fill + edge + text
