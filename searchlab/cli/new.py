"""`searchlab new`: a space, cost model, strategy or workload of your own, to begin with."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from searchlab.cli.output import AsCsv, AsJson, form, hint, out, print_rows


class PluginKind(StrEnum):
    """What can be made."""

    space = "space"
    model = "model"
    strategy = "strategy"
    workload = "workload"


def new_command(
    kind: Annotated[PluginKind, typer.Argument(help="What it is to be.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Its name: small letters and digits, with hyphens.", show_default=False)],
    directory: Annotated[Path, typer.Option("--dir", help="Where its folder goes.")] = Path("."),
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Make a plug-in of your own: a module that works, its test, a package and an experiment.

    Nothing that exists is overwritten.
    """
    from rich.markup import escape

    from searchlab.lab.scaffold import KINDS, make

    wanted = form(as_json, as_csv)
    made = make(kind.value, name, directory)
    if wanted:
        fields = {"folder": str(made.folder), "files": list(made.files), "component": made.component}
        print_rows([fields], wanted)
        return
    out.print(f"[bold green]made[/] {escape(str(made.folder))}/  [dim]{', '.join(made.files)}[/]", soft_wrap=True)
    out.print(f"In experiments it is [bold]{escape(made.component)}[/], and after pip install -e . just {name}.\n")
    width = len("searchlab run experiment.yaml")
    hint(
        f"{f'cd {escape(str(made.folder))}'.ljust(width)}   [dim]{made.files[0]} is the one to change[/]",
        f"{'python -m pytest'.ljust(width)}   [dim]does it hold to what every {kind.value} must?[/]",
        f"{'searchlab run experiment.yaml'.ljust(width)}   [dim]what is it worth?[/]",
        f"{f'searchlab list {KINDS[kind.value][1]}'.ljust(width)}   [dim]what else there is[/]",
    )
