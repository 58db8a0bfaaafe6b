"""`searchlab compare`: the levels of one factor with everything else equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from searchlab.cli.output import hint
from searchlab.cli.sheets import (
    AlphaOption,
    BlocksOption,
    ControlOption,
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

if TYPE_CHECKING:
    from searchlab.lab.leaderboard import Sheet


def compare_command(
    dirs: Dirs,
    by: Annotated[str, typer.Option("--by", help="The factor to compare: entry, or a factor such as space.")] = "entry",
    form: FormOption = SheetForm.text,
    output: OutOption = None,
    to: ToOption = "best",
    metric: MetricOption = "final",
    alpha: AlphaOption = None,
    tie: TieOption = None,
    blocks: BlocksOption = "seed",
    control: ControlOption = None,
    together: Annotated[bool, typer.Option(help="Compare even runs of different machines.")] = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Compare the levels of one factor with everything else equal: same task, same seed, same other factors."""
    from searchlab.lab.leaderboard import comparison_sheets, pools
    from searchlab.lab.statistics import ComparedBy, compare, pooled

    form, runs = chosen_form(form, as_json, as_csv), read_runs(dirs)
    settings = settings_of(runs, to, metric, alpha, tie, blocks, control, seed)
    sheets: list[Sheet] = []
    for pool in pools(runs, together):
        sheets += comparison_sheets(compare(pooled(pool.runs), ComparedBy(by), settings), pool.where)
    write_sheets(sheets, form, output)
    if form is SheetForm.text and output is None:
        hint(f"searchlab report {' '.join(map(str, dirs))}   [dim]curves and diagrams as one page[/]")
