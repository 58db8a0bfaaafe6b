"""Arguments and options that commands on run folders share."""

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.", show_default=False)]
TaskOption = Annotated[str | None, typer.Option(help="Only this task: its label or a part of it.")]
EntryOption = Annotated[str | None, typer.Option(help="Only programs that this entry found: its name or a part of it.")]
