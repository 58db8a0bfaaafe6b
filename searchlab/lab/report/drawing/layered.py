"""Layered graphs: boxes in rows below what they depend on, with lines that pass between the boxes of other rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from searchlab.lab.report.drawing import svg
from searchlab.lab.report.drawing.marks import swatches

_ROW, _TALL, _GAP = 46.0, 26.0, 8.0
_PASSING = 10.0  # the width that a line takes in the rows that it passes
_WIDEST = 250.0


@dataclass(frozen=True)
class GraphBox:
    """A box: its name, two texts, its class, the share of it that is filled, and the boxes above that it depends on."""

    name: str
    text: str
    note: str
    kind: str
    filled: float = 0.0
    above: tuple[str, ...] = ()
    hint: str = ""


@dataclass(frozen=True)
class _Slot:
    """A place in a row: of a box, or of a line on its way from `line[0]` to `line[1]`."""

    node: GraphBox | None
    line: tuple[str, str] = ("", "")


def layered_graph(nodes: Sequence[GraphBox], kinds: Sequence[tuple[str, str]], width: float) -> svg.Drawing:
    """Nodes, given in an order in which all follow what they depend on; `kinds` are classes and names of a legend."""
    names, top = swatches(kinds, width)
    rows = _rows(nodes)
    centres = [_centres(row, width) for row in rows]
    level = {slot.node.name: n for n, row in enumerate(rows) for slot in row if slot.node}
    at: dict[tuple[object, int], float] = {
        (slot.node.name if slot.node else slot.line, n): x
        for n, row in enumerate(rows)
        for slot, (x, _) in zip(row, centres[n], strict=True)
    }
    lines = [_line(above, node.name, level, at, top) for node in nodes for above in node.above]
    boxes = [
        _box(slot.node, x, wide, top + n * _ROW)
        for n, row in enumerate(rows)
        for slot, (x, wide) in zip(row, centres[n], strict=True)
        if slot.node
    ]
    return svg.Drawing(width, top + len(rows) * _ROW, names + "".join(lines) + "".join(boxes))


def levels(nodes: Sequence[GraphBox]) -> dict[str, int]:
    """The row of every node: one below the lowest that it depends on."""
    found: dict[str, int] = {}
    for node in nodes:
        found[node.name] = 1 + max((found[above] for above in node.above), default=-1)
    return found


def _rows(nodes: Sequence[GraphBox]) -> list[list[_Slot]]:
    """The slots of all rows, each near the middle of what it hangs on."""
    level = levels(nodes)
    rows: list[list[_Slot]] = [[] for _ in range(1 + max(level.values(), default=-1))]
    for node in nodes:
        rows[level[node.name]].append(_Slot(node))
        for above in node.above:
            for n in range(level[above] + 1, level[node.name]):
                rows[n].append(_Slot(None, (above, node.name)))
    place: dict[tuple[object, int], float] = {}
    for n, row in enumerate(rows):
        row.sort(key=lambda slot: _middle(slot, n, level, place))
        for number, slot in enumerate(row):
            place[slot.node.name if slot.node else slot.line, n] = (number + 0.5) / len(row)
    return rows


def _middle(slot: _Slot, row: int, level: Mapping[str, int], place: Mapping[tuple[object, int], float]) -> float:
    """The mean place of what a slot hangs on; sorting is stable, so ties stay in the order of the nodes."""
    if slot.node is None:
        above, _ = slot.line
        return place[above if level[above] == row - 1 else slot.line, row - 1]
    sides = [place[above if level[above] == row - 1 else (above, slot.node.name), row - 1] for above in slot.node.above]
    return sum(sides) / len(sides) if sides else 0.5


def _centres(row: Sequence[_Slot], width: float) -> list[tuple[float, float]]:
    """The centre and the width of every slot of a row, which is in the middle of the figure."""
    boxes = sum(slot.node is not None for slot in row)
    free = width - _PASSING * (len(row) - boxes) - _GAP * (len(row) - 1)
    wide = min(_WIDEST, max(free / boxes, 12.0)) if boxes else 0.0
    sizes = [wide if slot.node else _PASSING for slot in row]
    x = (width - sum(sizes) - _GAP * (len(row) - 1)) / 2
    found = []
    for size in sizes:
        found.append((x + size / 2, size))
        x += size + _GAP
    return found


def _line(above: str, below: str, level: Mapping[str, int], at: Mapping[tuple[object, int], float], top: float) -> str:
    """A line from the lower edge of one box to the upper edge of another, straight through the rows between them."""
    first, last = level[above], level[below]
    points = [(at[above, first], top + first * _ROW + _TALL)]
    for n in range(first + 1, last):
        x = at[(above, below), n]
        points += [(x, top + n * _ROW), (x, top + n * _ROW + _TALL)]
    points.append((at[below, last], top + last * _ROW))
    return svg.path(points, "edge")


def _box(node: GraphBox, x: float, wide: float, y: float) -> str:
    left, room = x - wide / 2, wide - 10 - svg.room(node.note, 11)
    parts = [svg.box(left, y, wide, _TALL, "node", node.hint)]
    if node.filled > 0:
        parts.append(svg.box(left, y + _TALL - 5, wide * min(node.filled, 1.0), 5, node.kind, node.hint))
    parts.append(svg.box(left, y, 3, _TALL, node.kind))
    if room > 24:
        parts.append(svg.words(left + 7, y + 16, svg.fitted(node.text, room - 6), full=node.text))
    if wide > svg.room(node.note, 11) + 6:
        parts.append(svg.words(left + wide - 5, y + 16, node.note, "note", "end"))
    return "".join(parts)
