"""Where output goes: tables for people that are never cut off, rows for programs, and how numbers look."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from searchlab.errors import SearchLabError
from searchlab.jsonfile import plain

T = TypeVar("T")

_KEYWORDS = ("program", "layout", "buffer", "assume", "alloc", "block", "init", "for", "if", "parallel", "vectorized")
_UNLIMITED = 1 << 16  # columns of files and pipes, which have no width

out = Console(highlight=False, width=None if sys.stdout.isatty() else _UNLIMITED)
err = Console(highlight=False, stderr=True, width=None if sys.stderr.isatty() else _UNLIMITED)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead, one object per line.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV instead; nested values get columns such as a.b.")]


class OutputForm(StrEnum):
    """Forms for programs: all values, unrounded, and nothing else on stdout."""

    json = "json"
    csv = "csv"


def form(as_json: bool, as_csv: bool) -> OutputForm | None:
    """What the options of a command ask for; None is text for people."""
    if as_json and as_csv:
        raise SearchLabError("--json and --csv exclude each other: give only one of them")
    return OutputForm.json if as_json else OutputForm.csv if as_csv else None


def print_rows(rows: Iterable[Mapping[str, Any]], form: OutputForm) -> None:
    """Rows for programs: JSON as they come, or CSV when all of them, and so all columns, are known."""
    if form is OutputForm.json:
        for row in rows:
            out.out(json.dumps(plain(row), allow_nan=False), highlight=False)
        return
    flat = [_flat(plain(row)) for row in rows]
    writer = csv.DictWriter(out.file, list(dict.fromkeys(name for row in flat for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)


def print_program(text: str) -> None:
    """A program, or code made of it; the words of programs stand out."""
    shown = Text(text.rstrip())
    if text.startswith("program "):
        shown.highlight_regex(rf"(?m)\b({'|'.join(_KEYWORDS)})\b(?=[^\n]*)", "cyan")
    out.print(shown, soft_wrap=True)


def kept(items: Iterable[T], into: list[T]) -> Iterator[T]:
    """The items as they come, each of which is put into the list, too."""
    for item in items:
        into.append(item)
        yield item


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """One cell for each value: nested names are joined by dots, lists by semicolons; lists of more are JSON."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            simple = all(not isinstance(v, Mapping | list) for v in value)
            found[prefix + name] = "; ".join(map(str, value)) if simple else json.dumps(value)
        else:
            found[prefix + name] = value
    return found


def table(*columns: str, right: Iterable[str] = (), title: str | None = None) -> Table:
    """A table in the one style of this command; columns named in `right` hold numbers."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left")
    made.title_style = "bold green"
    numbers = set(right)
    for number, name in enumerate(columns):
        style = "bold" if number == 0 else None
        made.add_column(name, justify="right" if name in numbers else "left", style=style, overflow="fold")
    return made


def print_table(made: RenderableType) -> None:
    """A table, or something with tables in it, with a blank line after it.

    On a terminal cells fold at spaces; where that is not enough, lines are longer than the terminal, which wraps them.
    Files and pipes get the width that the table needs.
    """
    width = out.width
    try:
        out.width = max(width, needed(made))
        out.print(made, crop=False)
    finally:
        out.width = width
    out.print()


def needed(made: RenderableType) -> int:
    """The columns without which a table would have to break words."""
    return Measurement.get(out, out.options.update(width=_UNLIMITED), made).minimum


def hint(*commands: str) -> None:
    """What to do next."""
    for number, command in enumerate(commands):
        out.print(f"[dim]{'next:' if number == 0 else '     '}[/] {command}", soft_wrap=True)


def made_of(factors: Mapping[str, str]) -> str:
    """What combinations are made of, in words: space: sketch, model: gbt."""
    return ", ".join(f"{k}: {v}" for k, v in factors.items())


def amount(value: float, unit: str) -> str:
    """A number with a decimal prefix: 231.2 Mflop."""
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def duration(seconds: float) -> str:
    """A time with three digits: 1.52 ms."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{three_digits(seconds / scale)} {unit}"
    return f"{three_digits(seconds / 1e-6)} us"


def cost(seconds: float, modelled: bool) -> str:
    """A time, or a modelled cost, which is kept as so many nanoseconds as it has cycles."""
    return f"{seconds * 1e9:,.0f} modelled cycles" if modelled else duration(seconds)


def three_digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
