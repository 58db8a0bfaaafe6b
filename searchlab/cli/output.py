"""Where output goes and how numbers look."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

# Files and pipes have no width; 80 columns would cut tables that somebody wants to read later.
_WIDTH = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120

out = Console(highlight=False, width=_WIDTH)
err = Console(highlight=False, stderr=True, width=_WIDTH)


def table(*columns: str, right: Iterable[str] = (), title: str | None = None) -> Table:
    """A table in the one style of this command; columns named in `right` hold numbers."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left")
    made.title_style = "bold green"
    numbers = set(right)
    for number, name in enumerate(columns):
        style = "bold" if number == 0 else None
        made.add_column(name, justify="right" if name in numbers else "left", style=style, no_wrap=name in numbers)
    return made


def print_table(made: Table) -> None:
    """A table with a blank line after it."""
    out.print(made)
    out.print()


def json_line(**fields: Any) -> None:
    """One object on a line of its own."""
    out.out(json.dumps(fields), highlight=False)


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


def three_digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
