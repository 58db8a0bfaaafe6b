"""The building blocks of a report: sections of paragraphs, tables, figures and collapsible texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from searchlab.lab.report.drawing import Drawing, EntryStyle
from searchlab.lab.report.drawing.theme import file_style

WIDE, NARROW = 800, 344  # pixels: the column of a page, and half of it or a phone


@dataclass(frozen=True)
class Figure:
    """A picture that can be drawn in any width; the caption says how it was computed."""

    id: str
    title: str
    caption: str
    draw: Callable[[float], Drawing]
    wide: bool = True
    small: Callable[[float], Drawing] | None = None  # drawn on the page instead, if several figures share a legend
    kind: str = field(default="figure", init=False)

    @property
    def inline(self) -> list[tuple[str, str]]:
        """(class, SVG) for every width that the page may show."""
        widths = [("wide", WIDE), ("narrow", NARROW)] if self.wide else [("any", NARROW)]
        label = f"{self.title}. {self.caption}"
        draw = self.small or self.draw
        return [(name, draw(width).inline(label)) for name, width in widths]

    @property
    def file(self) -> str:
        """The figure as a standalone SVG file."""
        return self.draw(WIDE if self.wide else NARROW).standalone(self.title, self.caption, file_style())


@dataclass(frozen=True)
class TableCell:
    """A cell of a table: its text, its sort key, and the entry whose colour it shows."""

    text: str
    sort: float | str | None = None
    look: EntryStyle | None = None
    tone: str = ""  # good | bad | soft
    hint: str = ""


@dataclass(frozen=True)
class Column:
    """A column; `hint` explains its contents if the title does not."""

    title: str
    number: bool = False
    hint: str = ""


@dataclass(frozen=True)
class TableBlock:
    """A table that can be sorted by each column."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    note: str = ""
    kind: str = field(default="table", init=False)


@dataclass(frozen=True)
class Words:
    """A paragraph; `tone` is lead, plain, note or warning."""

    text: str
    tone: str = "plain"
    kind: str = field(default="words", init=False)


@dataclass(frozen=True)
class FigureGrid:
    """Small figures side by side with one legend and one caption; those after the first `open` are collapsed."""

    figures: tuple[Figure, ...]
    looks: tuple[EntryStyle, ...]
    caption: str
    open: int = 8
    more: str = "more tasks"
    kind: str = field(default="grid", init=False)


@dataclass(frozen=True)
class CodeBlock:
    """A collapsible text."""

    title: str
    text: str
    unfolded: bool = False
    kind: str = field(default="code", init=False)


@dataclass(frozen=True)
class ProgramText:
    """The program found for a task: facts and collapsible texts."""

    task: str
    facts: tuple[tuple[str, str], ...]
    texts: tuple[CodeBlock, ...]
    kind: str = field(default="program", init=False)


@dataclass(frozen=True)
class FactList:
    """Names with values."""

    title: str
    items: tuple[tuple[str, str], ...]
    kind: str = field(default="facts", init=False)


Block = Figure | TableBlock | Words | FigureGrid | CodeBlock | ProgramText | FactList


@dataclass(frozen=True)
class Section:
    """A part of the report with its own heading."""

    id: str
    title: str
    blocks: tuple[Block, ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures inside, in order."""
        found: list[Figure] = []
        for b in self.blocks:
            found += [b] if isinstance(b, Figure) else b.figures if isinstance(b, FigureGrid) else ()
        return tuple(found)
