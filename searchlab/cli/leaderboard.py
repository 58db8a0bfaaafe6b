"""`searchlab leaderboard`: the entries of runs in order, the card of one of them, and re-measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from searchlab.cli.boards import print_cards, print_checks
from searchlab.cli.output import AsCsv, AsJson, err, hint, print_rows
from searchlab.cli.output import form as program_form
from searchlab.cli.sheets import (
    AlphaOption,
    BlocksOption,
    CsvOption,
    Dirs,
    FormOption,
    JsonOption,
    MetricOption,
    OutOption,
    SeedOption,
    SheetForm,
    TieOption,
    ToOption,
    chosen_form,
    read_runs,
    settings_of,
    write_sheets,
)  # fmt: skip
from searchlab.errors import ResultError

if TYPE_CHECKING:
    from searchlab.lab.results import Run


class _Board(TyperGroup):
    """`searchlab leaderboard DIR` means `searchlab leaderboard show DIR`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Board,
    no_args_is_help=True,
    help="Rank the entries of runs, describe one of them, and re-measure results.\n\n"
    "searchlab leaderboard DIR... is short for searchlab leaderboard show DIR...",
)


@app.command("show")
def leaderboard_command(
    dirs: Dirs,
    card: Annotated[
        str | None,
        typer.Option(metavar="ENTRY", help="Show the card of this entry: its settings, results and command."),
    ] = None,
    form: FormOption = SheetForm.text,
    output: OutOption = None,
    to: ToOption = "best",
    metric: MetricOption = "final",
    alpha: AlphaOption = None,
    tie: TieOption = None,
    blocks: BlocksOption = "seed",
    together: Annotated[bool, typer.Option(help="Rank even runs of different machines together.")] = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Rank the entries of runs, with intervals, and show which cannot be told apart.

    Runs of different machines get separate tables; replays of the same recorded tables are ranked together.
    """
    from searchlab.lab.leaderboard import board_sheets, boards, cards, recorded_tables

    runs = read_runs(dirs)
    form = chosen_form(form, as_json, as_csv)
    if card is not None:
        if output is not None or form not in (SheetForm.text, SheetForm.json, SheetForm.csv):
            raise ResultError(
                "a card is printed as text, JSON or CSV: use --card without --out and with no other --format"
            )
        print_cards(cards(runs, card), program_form(form is SheetForm.json, form is SheetForm.csv))
        return
    settings = settings_of(runs, to, metric, alpha, tie, blocks, None, seed)
    tables, missing = recorded_tables(runs)
    found = boards(runs, settings, tables, together=together)
    sheets = [s for b in found for s in board_sheets(b)]
    write_sheets(sheets, form, output)
    if form is SheetForm.text and output is None:
        for name in missing:
            err.print(
                f"table {name} was not found: there is no score against random search", style="dim", soft_wrap=True
            )
        _hint(dirs, runs, found[0].standings[0].entry)


@app.command("validate")
def validate_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The run folder.")],
    sample: Annotated[int, typer.Option(min=1, help="Number of cells to check.")] = 5,
    entry: Annotated[str | None, typer.Option(help="Only cells of this entry.")] = None,
    tie: TieOption = None,
    rounds: Annotated[int, typer.Option(min=1, help="Number of measurements per candidate.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Re-measure a sample of a run's best candidates, and tell whether their times hold.

    Candidates of recorded tables are looked up again. Exit code 1 if a time does not hold.
    """
    import numpy as np

    from searchlab.lab.leaderboard.sheet import flat
    from searchlab.lab.leaderboard.validation import validate
    from searchlab.lab.run import load
    from searchlab.lab.statistics import ComparisonSettings

    wanted = program_form(as_json, as_csv)
    band = ComparisonSettings.of([load(folder)], band=None if tie is None else tie / 100).band
    checks = validate(folder, np.random.default_rng(seed), sample=sample, entry=entry, band=band, rounds=rounds)
    if wanted:
        print_rows(map(flat, checks), wanted)
    else:
        print_checks(checks, band)
    raise typer.Exit(0 if all(c.good for c in checks) else 1)


def _hint(dirs: Sequence[Path], runs: Sequence[Run], entry: str) -> None:
    import shlex

    from rich.markup import escape

    folders = escape(shlex.join(map(str, dirs)))
    varied = [f for f in _factors(runs) if len({c.factors.get(f) for r in runs for c in r.cells}) > 1]
    hint(
        f"searchlab leaderboard {folders} --card {escape(shlex.quote(entry))}   [dim]how to repeat it[/]",
        *(f"searchlab compare {folders} --by {escape(f)}   [dim]all else equal[/]" for f in varied[:1]),
        f"searchlab leaderboard validate {escape(shlex.quote(str(dirs[0])))}   [dim]re-measures the best programs[/]",
    )


def _factors(runs: Sequence[Run]) -> list[str]:
    """The factors that all cells have."""
    cells = [c for r in runs for c in r.cells]
    return [f for f in cells[0].factors if all(f in c.factors for c in cells)]
