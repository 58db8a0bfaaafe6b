"""`searchlab new`: creates the skeleton of a space, cost model, strategy or workload."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from searchlab.cli.output import AsCsv, AsJson, form, hint, out, print_rows


class PluginKind(StrEnum):
    """The kinds of plug-ins that can be created."""

    space = "space"
    model = "model"
    strategy = "strategy"
    workload = "workload"


def new_command(
    kind: Annotated[PluginKind, typer.Argument(help="The kind of plug-in.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits and hyphens.", show_default=False)],
    directory: Annotated[Path, typer.Option("--dir", help="The parent of its folder.")] = Path("."),
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Create a plug-in: a working module, its test, a package and an experiment.

    Existing files are never overwritten.
    """
    from rich.markup import escape

    from searchlab.lab.scaffold import KINDS, make

    wanted = form(as_json, as_csv)
    made = make(kind.value, name, directory)
    if wanted:
        fields = {"folder": str(made.folder), "files": list(made.files), "component": made.component}
        print_rows([fields], wanted)
        return
    out.print(f"[bold green]created[/] {escape(str(made.folder))}/  [dim]{', '.join(made.files)}[/]", soft_wrap=True)
    out.print(f"In experiments it is [bold]{escape(made.component)}[/], and after pip install -e . just {name}.\n")
    width = len("searchlab run experiment.yaml")
    hint(
        f"{f'cd {escape(str(made.folder))}'.ljust(width)}   [dim]edit {made.files[0]}[/]",
        f"{'python -m pytest'.ljust(width)}   [dim]does it conform to the contract of a {kind.value}?[/]",
        f"{'searchlab run experiment.yaml'.ljust(width)}   [dim]how does it compare with others?[/]",
        f"{f'searchlab list {KINDS[kind.value][1]}'.ljust(width)}   [dim]all that are installed[/]",
    )
