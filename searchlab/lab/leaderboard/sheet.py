"""Sheets: a table with its title, notes and method, in formats for people and programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from html import escape
from typing import Any

from searchlab.jsonfile import plain


@dataclass(frozen=True)
class Sheet:
    """A table: cells as text for people, and `records` with the same rows as flat values for programs."""

    title: str
    header: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]
    records: tuple[Mapping[str, Any], ...] = ()  # empty: another sheet has them
    left: frozenset[str] = frozenset()  # columns aligned left: text
    answer: str = ""  # the table as a sentence
    notes: tuple[str, ...] = ()
    method: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


def flat(row: Any) -> dict[str, Any]:
    """A row as flat named columns: what has an interval becomes three of them; what is not a number becomes None."""
    found: dict[str, Any] = {}
    for name, value in (asdict(row) if is_dataclass(row) and not isinstance(row, type) else dict(row)).items():
        if isinstance(value, Mapping) and set(value) == {"value", "low", "high"}:
            found |= {name: value["value"], f"{name}_low": value["low"], f"{name}_high": value["high"]}
        else:
            found[name] = value
    return {name: plain(value) for name, value in found.items()}


def markdown(sheets: Sequence[Sheet]) -> str:
    """Tables in GitHub's Markdown."""
    return "\n".join(_markdown(s) for s in sheets)


def _markdown(sheet: Sheet) -> str:
    def cell(text: str) -> str:
        return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(map(cell, cells))} |"

    rule = ["---" if h in sheet.left else "---:" for h in sheet.header]
    table = [line(sheet.header), f"| {' | '.join(rule)} |", *map(line, sheet.body)]
    parts = [f"### {sheet.title}", *([sheet.answer] if sheet.answer else []), "\n".join(table)]
    if sheet.notes:
        parts.append("\n".join(f"- {n}" for n in sheet.notes))
    if sheet.method:
        parts.append("\n".join(f"{m}.  " for m in sheet.method))
    return "\n\n".join(parts) + "\n"


def as_csv(sheets: Sequence[Sheet]) -> str:
    """One long table; the first column names the sheet of a row."""
    names = dict.fromkeys(name for s in sheets for r in s.records for name in r)
    text = io.StringIO()
    writer = csv.DictWriter(text, ["table", *names], lineterminator="\n")
    writer.writeheader()
    for s in sheets:
        for r in s.records:
            writer.writerow({"table": s.title, **{k: _joined(v) for k, v in r.items()}})
    return text.getvalue()


def _joined(value: Any) -> Any:
    return "; ".join(map(str, value)) if isinstance(value, list) else "" if value is None else value


def as_json(sheets: Sequence[Sheet]) -> str:
    """Everything, with unrounded numbers."""
    found = [
        {"title": s.title, "answer": s.answer, **plain(s.about), "rows": plain(s.records), "notes": s.notes}
        | {"method": s.method}
        for s in sheets
        if s.records
    ]
    return json.dumps(found, indent=1, allow_nan=False) + "\n"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "×": r"$\times$",
}  # fmt: skip


def latex(sheets: Sequence[Sheet]) -> str:
    """Tables for the package booktabs."""
    return "\n".join(_latex(s) for s in sheets)


def _latex(sheet: Sheet) -> str:
    def cell(text: str) -> str:
        return "".join(_LATEX.get(c, c) for c in text)

    def line(cells: Sequence[str]) -> str:
        return f"  {' & '.join(map(cell, cells))} \\\\"

    columns = "".join("l" if h in sheet.left else "r" for h in sheet.header)
    comments = [f"% {text}" for text in (sheet.answer, *sheet.notes, *sheet.method) if text]
    head = ["\\begin{table}", "\\centering", f"\\caption{{{cell(sheet.title)}}}", f"\\begin{{tabular}}{{{columns}}}"]
    rows = ["  \\toprule", line(sheet.header), "  \\midrule", *map(line, sheet.body), "  \\bottomrule"]
    return "\n".join([*comments, *head, *rows, "\\end{tabular}", "\\end{table}"]) + "\n"


def html(sheets: Sequence[Sheet]) -> str:
    """An HTML fragment without styles, for embedding in a page."""
    return "\n".join(_html(s) for s in sheets)


def _html(sheet: Sheet) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        kinds = ["" if h in sheet.left else ' class="number"' for h in sheet.header]
        return f"<tr>{''.join(f'<{tag}{k}>{escape(c)}</{tag}>' for k, c in zip(kinds, cells, strict=True))}</tr>"

    body = "\n".join(line(row, "td") for row in sheet.body)
    answer = f"<p>{escape(sheet.answer)}</p>\n" if sheet.answer else ""
    notes = "".join(f"<li>{escape(n)}</li>" for n in sheet.notes)
    method = "".join(f'<p class="method">{escape(m)}.</p>\n' for m in sheet.method)
    return (
        f'<section class="searchlab">\n<h3>{escape(sheet.title)}</h3>\n{answer}<table>\n'
        f"<thead>{line(sheet.header, 'th')}</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n"
        + (f'<ul class="notes">{notes}</ul>\n' if notes else "")
        + f"{method}</section>\n"
    )


FORMS: dict[str, Callable[[Sequence[Sheet]], str]] = {
    "markdown": markdown,
    "csv": as_csv,
    "json": as_json,
    "latex": latex,
    "html": html,
}
