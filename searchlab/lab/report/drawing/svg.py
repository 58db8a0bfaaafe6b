"""SVG as text: elements, escaped text, paths, and estimates of text widths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape as _escape

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARGIN = 12.0  # around a figure that stands alone
_NARROW, _BROAD = frozenset("iljtfrI.,:;'|!()[] /"), frozenset("mwMW@%")


@dataclass(frozen=True)
class Drawing:
    """A picture without a frame; `data` becomes data- attributes, which the page's script reads."""

    width: float
    height: float
    body: str
    data: Mapping[str, str] = field(default_factory=dict)

    def inline(self, label: str) -> str:
        """The SVG for a page that has the style; screen readers read the label."""
        more = {f"data-{name}": text for name, text in self.data.items()}
        return self._svg(self.body, 0.0, {"role": "img", "aria-label": label, **more})

    def standalone(self, title: str, description: str, style: str) -> str:
        """A standalone SVG file, with title, description and style inside."""
        head = element("title", escape(title)) + element("desc", escape(description)) + element("style", style)
        ground = box(-_MARGIN, -_MARGIN, self.width + 2 * _MARGIN, self.height + 2 * _MARGIN, "ground")
        return self._svg(head + ground + self.body, _MARGIN, {"xmlns": "http://www.w3.org/2000/svg"})

    def _svg(self, content: str, margin: float, attributes: Mapping[str, str]) -> str:
        wide, tall = self.width + 2 * margin, self.height + 2 * margin
        view = f"{number(-margin)} {number(-margin)} {number(wide)} {number(tall)}"
        size: dict[str, object] = {"class": "figure", "width": wide, "height": tall, "viewBox": view}
        return element("svg", content, **size, **attributes)


def escape(text: object) -> str:
    """Text for XML."""
    return _escape(clean(str(text)))


def clean(text: str) -> str:
    """The text with a question mark for every character that XML and HTML do not allow."""
    return _NOT_XML.sub("?", text)


def number(value: float) -> str:
    """A coordinate, rounded to a tenth of a pixel."""
    return f"{value if abs(value) >= 0.05 else 0.0:.1f}".removesuffix(".0")


def element(tag: str, *content: str, **attributes: object) -> str:
    """An element; `content` is markup, attributes are escaped, and those that are None are left out."""
    made = "".join(
        f' {name}="{number(v) if isinstance(v, int | float) else escape(v)}"'
        for name, v in attributes.items()
        if v is not None
    )
    return f"<{tag}{made}>{''.join(content)}</{tag}>" if content else f"<{tag}{made}/>"


def group(kind: str, *content: str, **attributes: object) -> str:
    """Elements that share a class."""
    return element("g", *content, **{"class": kind}, **attributes)


def words(x: float, y: float, text: str, kind: str = "", anchor: str | None = None, full: str = "") -> str:
    """A line of text; `full` is the original of a shortened text."""
    hint = element("title", escape(full)) if full and full != text else ""
    return element("text", escape(text), hint, **{"x": x, "y": y, "class": kind or None, "text-anchor": anchor})


def rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return element("line", **{"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": kind})


def box(x: float, y: float, width: float, height: float, kind: str, hint: str = "", **more: object) -> str:
    """A rectangle; `hint` is its tooltip."""
    sides = {"x": x, "y": y, "width": max(width, 0.0), "height": max(height, 0.0), "class": kind}
    return element("rect", element("title", escape(hint)) if hint else "", **sides, **more)


def path(points: Iterable[tuple[float, float]], kind: str, step: bool = False, close: bool = False) -> str:
    """A line through points, either straight segments or steps."""
    found: list[str] = []
    for x, y in points:
        if not found:
            found.append(f"M{number(x)} {number(y)}")
        elif step:
            found.append(f"H{number(x)}V{number(y)}")
        else:
            found.append(f"L{number(x)} {number(y)}")
    return element("path", **{"class": kind, "d": "".join(found) + ("Z" if close else "")})


def room(text: str, size: float = 12.0) -> float:
    """The approximate width of a text in the widest common sans-serif font."""
    wide = sum(0.36 if c in _NARROW else 0.92 if c in _BROAD else 0.63 for c in text)
    return wide * size


def fitted(text: str, width: float, size: float = 12.0) -> str:
    """The text, shortened in the middle if it is too wide, since names differ at either end."""
    if room(text, size) <= width:
        return text
    for keep in range(len(text) - 1, 1, -1):
        short = text[: (keep + 1) // 2] + "…" + text[len(text) - keep // 2 :]
        if room(short, size) <= width:
            return short
    return "…"
