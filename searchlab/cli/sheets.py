"""What `searchlab leaderboard` and `searchlab compare` share: their options, and tables in any form."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from searchlab.cli.boards import print_sheet
from searchlab.cli.output import form as program_form
from searchlab.cli.output import out
from searchlab.errors import ResultError

if TYPE_CHECKING:
    from searchlab.lab.leaderboard import Sheet
    from searchlab.lab.results import Run
    from searchlab.lab.statistics import ComparisonSettings


class SheetForm(StrEnum):
    """How a table is written."""

    text = "text"
    markdown = "markdown"
    csv = "csv"
    json = "json"
    latex = "latex"
    html = "html"


Dirs = Annotated[list[Path], typer.Argument(metavar="DIR", help="Run folders.")]
FormOption = Annotated[SheetForm, typer.Option("--format", "-f", help="The format of the tables.")]
OutOption = Annotated[Path | None, typer.Option("--out", "-o", help="The file to write to.")]
JsonOption = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="The same as --format csv.")]
ToOption = Annotated[str, typer.Option("--to", help="The reference of scores: best, a baseline or an entry.")]
MetricOption = Annotated[
    str, typer.Option(help="final: the best found; trials, time, log-time: area under the best so far.")
]
AlphaOption = Annotated[
    float | None, typer.Option(help="Significance level of the tests; the experiment's (0.05) if not given.")
]
TieOption = Annotated[
    float | None,
    typer.Option(help="Differences up to this, in percent, are ties; the measured noise if not given.", min=0.0),
]
BlocksOption = Annotated[str, typer.Option(help="Blocks of the tests: seed (of a task) or task.")]
ControlOption = Annotated[str | None, typer.Option(help="Compare all others only with this one.")]
SeedOption = Annotated[int, typer.Option(help="Seed of the resampling.")]


def chosen_form(form: SheetForm, as_json: bool, as_csv: bool) -> SheetForm:
    """The form that --format, --json and --csv ask for together."""
    short = program_form(as_json, as_csv)
    return form if short is None else SheetForm(short.value)


def read_runs(dirs: Sequence[Path]) -> list[Run]:
    """The runs of folders, of which at least one cell must have ended."""
    from searchlab.lab.run import load

    runs = [load(folder) for folder in dirs]
    if not any(c.state in ("done", "failed") for r in runs for c in r.cells):
        raise ResultError(f"no cell of {', '.join(map(str, dirs))} is finished; `searchlab run` resumes a run")
    return runs


def settings_of(
    runs: Sequence[Run],
    to: str,
    metric: str,
    alpha: float | None,
    tie: float | None,
    unit: str,
    control: str | None,
    seed: int,
) -> ComparisonSettings:
    """The settings of a comparison: options first, then what the experiment says."""
    from searchlab.lab.statistics import ComparisonSettings

    band = None if tie is None else tie / 100
    return ComparisonSettings.of(
        runs, metric=metric, to=to, band=band, alpha=alpha, unit=unit, control=control, seed=seed
    )


def write_sheets(sheets: Sequence[Sheet], form: SheetForm, output: Path | None) -> None:
    """Prints sheets in a form, or writes them to a file."""
    from searchlab.lab.leaderboard import FORMS

    if form is SheetForm.text and output is None:
        for sheet in sheets:
            print_sheet(sheet)
        return
    text = FORMS["markdown" if form is SheetForm.text else form.value](sheets)
    if output is None:
        out.out(text, highlight=False, end="")
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as e:
        raise ResultError(f"{output}: cannot write: {e.strerror or e}") from e
    out.print(f"written to {output}", markup=False, soft_wrap=True)
