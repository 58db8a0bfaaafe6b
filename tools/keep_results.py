"""Keeps the results of runs in compact form: tables and two figures each, without records.

    python tools/keep_results.py RUN [RUN...] [--to docs/results]

Creates a folder per run with a page (claims, standings, provenance), its cells as CSV, the experiment as written, and
figures; and inserts its claims between the two marks of the parent folder's page, which keeps those of other runs.
"""

from __future__ import annotations

import argparse
import csv
from itertools import groupby
from pathlib import Path

from searchlab.lab.leaderboard import board_sheets
from searchlab.lab.leaderboard.sheet import markdown
from searchlab.lab.report import Report
from searchlab.lab.report.claims import HELD, OPEN, REFUTED, JudgedClaim, check
from searchlab.lab.results import CellResult, Run
from searchlab.lab.run import load

MARKS = ("<!-- statements -->", "<!-- end -->")
FIGURES = ("scores", "progress-trials")
MARK = {HELD: "**held**", REFUTED: "not held", OPEN: "not decided"}


def keep(folder: Path, to: Path) -> list[str]:
    """Writes the folder of a run; returns the lines of its claims for the parent page."""
    run = load(folder)
    report = Report.of([run])
    place = to / run.name
    place.mkdir(parents=True, exist_ok=True)
    (place / "experiment.yaml").write_text(run.source, encoding="utf-8")
    _write_cells(place / "cells.csv", run)
    drawn = [f for f in report.figures if f.id in FIGURES]
    for figure in drawn:
        (place / f"{figure.id}.svg").write_text(figure.file, encoding="utf-8")
    claims = check(report.material)
    (place / "README.md").write_text(_page(run, report, claims, [f"{f.id}.svg" for f in drawn]), encoding="utf-8")
    return [f"| [{run.name}]({run.name}/README.md) | {_row(c)} |" for c in claims]


def _page(run: Run, report: Report, claims: tuple[JudgedClaim, ...], figures: list[str]) -> str:
    sheets = markdown(board_sheets(report.material.board))
    said = report.headline
    lines = [
        f"# {run.name}",
        "",
        f"{said.text} {said.support}".strip(),
        "",
        *(f"- {limit}" for limit in said.limits),
        "",
        f"    {run.command}",
        "",
        _made(run),
        "",
        "| statement | result | figures | where it comes from |",
        "|---|---|---|---|",
        *(f"| {_row(c)} | {_cell(c.note)} |" for c in claims),
        "",
        *(f"![{name.removesuffix('.svg')}]({name})" for name in figures),
        "",
        sheets,
    ]
    return "\n".join(lines).rstrip() + "\n"


def _made(run: Run) -> str:
    """The date, machine and versions of the run; without the host name, which means nothing to others."""
    machine, versions = run.machine, run.versions
    noise = "" if run.noise is None else f" Noise of the run-offs: {run.noise:.1%}."
    cells, trials = len(run.cells), sum(len(c.seconds) for c in run.cells)
    wall = sum(float(c.elapsed[-1]) for c in run.cells if len(c.elapsed))
    packages = ", ".join(f"{n} {v}" for n, v in versions.items() if n not in ("revision", "searchlab"))
    return (
        f"{cells} cells, {trials} trials, {wall / 60:.0f} minutes of searching, {run.started[:10]};"
        f" {machine.get('cpu', 'unknown')}, {machine.get('cores', '?')} cores; {packages};"
        f" revision {versions.get('revision', 'unknown')[:12]}.{noise}"
    )


def _row(c: JudgedClaim) -> str:
    return f"{_cell(c.claim)} | {MARK[c.result]} | {_cell(c.figures)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _write_cells(path: Path, run: Run) -> None:
    names = sorted({n for c in run.cells for n in c.baselines})
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["entry", "task", "seed", "state", "trials", "search_s", "best_us", *(f"{n}_us" for n in names)])
        out.writerows(_line(c, names) for c in run.cells)


def _line(c: CellResult, names: list[str]) -> list[object]:
    times = [f"{1e6 * t:.3f}" if (t := c.baselines.get(n)) is not None else "" for n in names]
    spent = f"{c.elapsed[-1]:.1f}" if len(c.elapsed) else ""
    return [c.entry, c.task, c.seed, c.state, len(c.seconds), spent, f"{1e6 * c.final_s:.3f}", *times]


def insert(page: Path, lines: list[str]) -> None:
    """Inserts claims between the marks of a page, replacing earlier ones of the same runs."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    kept, after = rest.split(MARKS[1])
    old = [line for line in kept.splitlines() if line.startswith("| [")]
    new = {name: list(rows) for name, rows in groupby(lines, _name)}
    runs = dict.fromkeys(_name(line) for line in (*old, *lines))
    rows = [row for run in runs for row in new.get(run, [line for line in old if _name(line) == run])]
    table = ["", "| run | statement | result | figures |", "|---|---|---|---|", *rows, ""]
    page.write_text(MARKS[0].join([before, "\n".join(table) + MARKS[1] + after]), encoding="utf-8")


def _name(line: str) -> str:
    """The first cell of a row: the name of its run."""
    return line.split("|")[1]


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--to", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    lines = [line for folder in given.runs for line in keep(folder, given.to)]
    insert(given.to / "README.md", lines)


if __name__ == "__main__":
    main()
