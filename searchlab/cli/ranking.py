"""`searchlab leaderboard` and `searchlab compare`: what runs say about each other."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from searchlab.cli.boards import print_cards, print_checks, print_sheet
from searchlab.cli.output import AsCsv, AsJson, err, hint, out, print_rows
from searchlab.cli.output import form as program_form
from searchlab.errors import ResultError

if TYPE_CHECKING:
    from searchlab.lab.leaderboard import Sheet
    from searchlab.lab.results import Run
    from searchlab.lab.statistics import Settings


class Form(StrEnum):
    """How a table is written."""

    text = "text"
    markdown = "markdown"
    csv = "csv"
    json = "json"
    latex = "latex"
    html = "html"


class _Board(TyperGroup):
    """`searchlab leaderboard DIR` means `searchlab leaderboard show DIR`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Board,
    no_args_is_help=True,
    help="Rank the entries of runs, show what one of them is, and take a second look.\n\n"
    "searchlab leaderboard DIR... is short for searchlab leaderboard show DIR...",
)

_Dirs = Annotated[list[Path], typer.Argument(metavar="DIR", help="Folders of runs.")]
_Form = Annotated[Form, typer.Option("--format", "-f", help="How to write the tables.")]
_Out = Annotated[Path | None, typer.Option("--out", "-o", help="The file to write to.")]
_Json = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
_Csv = Annotated[bool, typer.Option("--csv", help="The same as --format csv.")]
_To = Annotated[str, typer.Option("--to", help="What scores are relative to: best, a baseline or an entry.")]
_Metric = Annotated[
    str, typer.Option(help="final: the best found; trials, time, log-time: area under the best so far.")
]
_Alpha = Annotated[float | None, typer.Option(help="The level of the tests; the experiment's, 0.05, if not given.")]
_Tie = Annotated[
    float | None,
    typer.Option(help="Differences up to this are ties, in percent; the measured noise if not given.", min=0.0),
]
_Blocks = Annotated[str, typer.Option(help="Blocks of the tests: seed (of a task) or task.")]
_Control = Annotated[str | None, typer.Option(help="Compare all others with this one only.")]
_Seed = Annotated[int, typer.Option(help="Of the resampling.")]


@app.command("show")
def leaderboard_command(
    dirs: _Dirs,
    card: Annotated[str | None, typer.Option(metavar="ENTRY", help="Show all that is known of this entry.")] = None,
    form: _Form = Form.text,
    output: _Out = None,
    to: _To = "best",
    metric: _Metric = "final",
    alpha: _Alpha = None,
    tie: _Tie = None,
    blocks: _Blocks = "seed",
    together: Annotated[bool, typer.Option(help="Rank runs of different machines together all the same.")] = False,
    seed: _Seed = 0,
    as_json: _Json = False,
    as_csv: _Csv = False,
) -> None:
    """Rank the entries of runs with intervals, and say which cannot be told apart.

    Runs of different machines get a table each; replays of the same recorded tables are ranked together.
    """
    from searchlab.lab.leaderboard import board_sheets, boards, cards, recorded_tables

    runs = _runs(dirs)
    form = _form(form, as_json, as_csv)
    if card is not None:
        if output is not None or form not in (Form.text, Form.json, Form.csv):
            raise ResultError(
                "a card is printed as text, JSON or CSV: use --card without --out and with no other --format"
            )
        print_cards(cards(runs, card), program_form(form is Form.json, form is Form.csv))
        return
    settings = _settings(runs, to, metric, alpha, tie, blocks, None, seed)
    tables, missing = recorded_tables(runs)
    found = boards(runs, settings, tables, together=together)
    sheets = [s for b in found for s in board_sheets(b)]
    _write(sheets, form, output)
    if form is Form.text and output is None:
        for name in missing:
            err.print(f"table {name} is not here: no score against random search", style="dim", soft_wrap=True)
        _hint(dirs, runs, found[0].standings[0].entry)


@app.command("validate")
def validate_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.")],
    sample: Annotated[int, typer.Option(min=1, help="How many cells to check.")] = 5,
    entry: Annotated[str | None, typer.Option(help="Only cells of this entry.")] = None,
    tie: _Tie = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each candidate is measured.")] = 5,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Measure a sample of a run's best candidates again, and say whether their times hold.

    Candidates of recorded tables are looked up again. Exit code 1 if a time does not hold.
    """
    import numpy as np

    from searchlab.lab.leaderboard.sheet import flat
    from searchlab.lab.leaderboard.validation import validate
    from searchlab.lab.run import load
    from searchlab.lab.statistics import Settings

    wanted = program_form(as_json, as_csv)
    band = Settings.of([load(folder)], band=None if tie is None else tie / 100).band
    checks = validate(folder, np.random.default_rng(seed), sample=sample, entry=entry, band=band, rounds=rounds)
    if wanted:
        print_rows(map(flat, checks), wanted)
    else:
        print_checks(checks, band)
    raise typer.Exit(0 if all(c.good for c in checks) else 1)


def compare_command(
    dirs: _Dirs,
    by: Annotated[str, typer.Option("--by", help="What to compare: entry, or a factor such as space.")] = "entry",
    form: _Form = Form.text,
    output: _Out = None,
    to: _To = "best",
    metric: _Metric = "final",
    alpha: _Alpha = None,
    tie: _Tie = None,
    blocks: _Blocks = "seed",
    control: _Control = None,
    together: Annotated[bool, typer.Option(help="Compare runs of different machines all the same.")] = False,
    seed: _Seed = 0,
    as_json: _Json = False,
    as_csv: _Csv = False,
) -> None:
    """Compare the levels of one factor with everything else equal: same task, same seed, same other factors."""
    from searchlab.lab.leaderboard import comparison_sheets, pools
    from searchlab.lab.statistics import View, compare, pooled

    form, runs = _form(form, as_json, as_csv), _runs(dirs)
    settings = _settings(runs, to, metric, alpha, tie, blocks, control, seed)
    sheets: list[Sheet] = []
    for pool in pools(runs, together):
        sheets += comparison_sheets(compare(pooled(pool.runs), View(by), settings), pool.where)
    _write(sheets, form, output)
    if form is Form.text and output is None:
        hint(f"searchlab report {' '.join(map(str, dirs))}   [dim]curves and diagrams as one page[/]")


def _form(form: Form, as_json: bool, as_csv: bool) -> Form:
    """The form that --format, --json and --csv ask for together."""
    short = program_form(as_json, as_csv)
    return form if short is None else Form(short.value)


# --- reading ----------------------------------------------------------------------------------------------------------


def _runs(dirs: Sequence[Path]) -> list[Run]:
    from searchlab.lab.run import load

    runs = [load(folder) for folder in dirs]
    if not any(c.state in ("done", "failed") for r in runs for c in r.cells):
        raise ResultError(f"no cell of {', '.join(map(str, dirs))} is finished; `searchlab run` goes on with a run")
    return runs


def _settings(
    runs: Sequence[Run],
    to: str,
    metric: str,
    alpha: float | None,
    tie: float | None,
    unit: str,
    control: str | None,
    seed: int,
) -> Settings:
    from searchlab.lab.statistics import Settings

    band = None if tie is None else tie / 100
    return Settings.of(runs, metric=metric, to=to, band=band, alpha=alpha, unit=unit, control=control, seed=seed)


# --- printing ---------------------------------------------------------------------------------------------------------


def _hint(dirs: Sequence[Path], runs: Sequence[Run], entry: str) -> None:
    import shlex

    from rich.markup import escape

    folders = escape(shlex.join(map(str, dirs)))
    varied = [f for f in _factors(runs) if len({c.factors.get(f) for r in runs for c in r.cells}) > 1]
    hint(
        f"searchlab leaderboard {folders} --card {escape(shlex.quote(entry))}   [dim]what it is, how to repeat it[/]",
        *(f"searchlab compare {folders} --by {escape(f)}   [dim]everything else equal[/]" for f in varied[:1]),
        f"searchlab leaderboard validate {escape(shlex.quote(str(dirs[0])))}   [dim]a second look at what was found[/]",
    )


def _factors(runs: Sequence[Run]) -> list[str]:
    """The factors that all cells have."""
    cells = [c for r in runs for c in r.cells]
    return [f for f in cells[0].factors if all(f in c.factors for c in cells)]


def _write(sheets: Sequence[Sheet], form: Form, output: Path | None) -> None:
    from searchlab.lab.leaderboard import FORMS

    if form is Form.text and output is None:
        for sheet in sheets:
            print_sheet(sheet)
        return
    text = FORMS["markdown" if form is Form.text else form.value](sheets)
    if output is None:
        out.out(text, highlight=False, end="")
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as e:
        raise ResultError(f"{output}: cannot write: {e.strerror or e}") from e
    out.print(f"written to {output}", markup=False, soft_wrap=True)
