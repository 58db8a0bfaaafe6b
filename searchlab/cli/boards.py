"""How leaderboards, cards and second looks appear on a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from searchlab.cli.output import OutputForm, duration, out, print_rows, print_table, table

if TYPE_CHECKING:
    from searchlab.lab.leaderboard import Card, Sheet
    from searchlab.lab.leaderboard.validation import Validation

_CALM = 5  # tie bands that rounds of one candidate may differ by before they are called into question


def print_sheet(sheet: Sheet) -> None:
    """The answer, the table, its notes and how it was made."""
    from rich.markup import escape

    made = table(*sheet.header, right=[h for h in sheet.header if h not in sheet.left], title=escape(sheet.title))
    for row in sheet.body:
        made.add_row(*map(escape, row))
    if sheet.answer:
        out.print(f"[bold]{escape(sheet.answer)}[/]\n", soft_wrap=True)
    print_table(made)
    for note in sheet.notes:
        out.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)
    for line in sheet.method:
        out.print(f"[dim]{escape(line)}[/]", soft_wrap=True)
    out.print()


def print_checks(checks: Sequence[Validation], band: float) -> None:
    """What became of every claim, and how many hold."""
    from rich.markup import escape

    right = ("seed", "claimed", "now", "ratio")
    made = table("entry", "task", "seed", "claimed", "now", "ratio", "", right=right)
    for c in checks:
        ratio = "-" if c.ratio is None else f"{c.ratio:.3f} [{c.low:.3f}, {c.high:.3f}]"
        style = "green" if c.good else "yellow" if c.seconds is None else "red"
        verdict = f"[{style}]{c.verdict}[/]{escape(f': {c.why}') if c.why else ''}"
        names = (escape(c.entry), escape(c.task), str(c.seed))
        made.add_row(*names, duration(c.claimed_s), _time(c.seconds), escape(ratio), verdict)
    print_table(made)
    spread = max((c.high / c.low - 1 for c in checks if c.low and c.high), default=0.0)
    if spread > _CALM * band:
        out.print(
            f"[yellow]note:[/] rounds differ by up to {100 * spread:.0f} %: the machine is busy; do not trust this",
            soft_wrap=True,
        )
    good = sum(c.good for c in checks)
    out.print(
        f"[bold]{good} of {len(checks)} hold[/] [dim]within {100 * band:.3g} %; ratio: new time over the claimed one,"
        " with its range over the rounds[/]",
        soft_wrap=True,
    )


def print_cards(found: Sequence[Card], form: OutputForm | None) -> None:
    """Cards one after the other, or as rows for programs."""
    from searchlab.jsonfile import plain

    if form:
        print_rows([plain(card) for card in found], form)
        return
    for card in found:
        _print_card(card)


def _print_card(card: Card) -> None:
    from rich.markup import escape

    where = f" in {card.folder}" if card.folder else ""
    facts = {
        "run": f"{card.run}{where}, started {card.started or 'at an unknown time'}",
        "settings": _short(card.config) or "unknown",
        "made of": ", ".join(f"{k}: {v}" for k, v in card.factors.items()) or "-",
        "seeds": ", ".join(map(str, card.seeds)),
        "machine": "recorded tables" if card.recorded else card.machine,
        "versions": ", ".join(f"{k} {v}" for k, v in card.versions.items()) or "unknown",
        "repeat it": card.command or "unknown",
    }
    out.print(f"\n[bold green]{escape(card.entry)}[/]")
    width = max(map(len, facts))
    for name, value in facts.items():
        out.print(f"  [dim]{name:{width}}[/]  {escape(value)}", soft_wrap=True)
    out.print()
    made = table("task", "cells", "failed", "median", "best", "candidate", right=("cells", "failed", "median", "best"))
    for t in card.tasks:
        made.add_row(escape(t.task), str(t.cells), str(t.failed), _time(t.median_s), _time(t.best_s), escape(t.best))
    print_table(made)
    for note in card.notes:
        out.print(f"[dim]note: {escape(note)}[/]", soft_wrap=True)


def _short(config: Mapping[str, Any]) -> str:
    """What was the same for all entries of a run, on one line."""
    import json

    shown = {k: config[k] for k in ("target", "budget", "measure") if config.get(k)}
    return ", ".join(f"{k}: {v if isinstance(v, str) else json.dumps(v)}" for k, v in shown.items())


def _time(seconds: float | None) -> str:
    return "-" if seconds is None or not math.isfinite(seconds) else duration(seconds)
