"""Arguments and options that commands on run folders share."""

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.", show_default=False)]
TaskOption = Annotated[str | None, typer.Option(help="Only this task: its label or a part of it.")]
EntryOption = Annotated[str | None, typer.Option(help="Only what this entry found: its name or a part of it.")]
