"""The command `searchlab`: thin layers over the library that parse, call and print.

Only typer and rich are imported here, everything else by the command that needs it, so that help is instant.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from searchlab.cli import warned
from searchlab.cli.output import err, out
from searchlab.errors import SearchLabError

# The commands in the order of the help. Each has a module of its name, with a function NAME_command, or with an `app`
# where it has commands of its own.
COMMANDS = (
    "list", "show", "bench", "doctor", "noise", "run", "tune", "status", "schema", "records", "leaderboard", "report",
    "compare", "best", "replay", "models", "new",
)  # fmt: skip


class _Group(TyperGroup):
    """Errors that searchlab raises on purpose are the user's business: one line, no traceback.

    So are files that the system does not let us read or write, whichever command meets them.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            with warned.shown():
                return super().invoke(ctx)
        except OSError as e:
            if ctx.params.get("debug") or not e.filename:
                raise
            err.print(f"[bold red]error:[/] {escape_line(warned.of_file(e))}", soft_wrap=True)
            raise typer.Exit(2) from None
        except SearchLabError as e:
            if ctx.params.get("debug"):
                raise
            for problem in getattr(e, "problems", ()) or (e,):
                err.print(f"[bold red]error:[/] {escape_line(problem)}", soft_wrap=True)
            raise typer.Exit(2) from None


def escape_line(error: Exception | str) -> str:
    """The message as one line that rich prints as it is."""
    from rich.markup import escape

    return escape(" ".join(str(error).split()))


def _version(wanted: bool) -> None:
    if wanted:
        from searchlab import __version__

        out.print(f"searchlab {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with [bold]searchlab run experiments/quickstart.yaml[/], [bold]searchlab bench --quickstart[/] or"
    " [bold]searchlab list[/].",
)


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")] = False,
) -> None:
    """A laboratory for search algorithms on tensor programs: run experiments, compare strategies, export kernels.

    A WORKLOAD is an operator with parameters, such as matmul or conv2d:ci=64,co=64,h=56,w=56,k=3,padding=1.
    """


for _name in COMMANDS:
    _module = import_module(f"{__name__}.{_name}")
    if hasattr(_module, "app"):
        app.add_typer(_module.app, name=_name)
    else:
        app.command(_name)(getattr(_module, f"{_name}_command"))


def main() -> None:
    """Entry point. Exit codes: 0 fine, 1 something failed or was wrong, 2 bad usage."""
    sys.path.append(os.getcwd())  # a script's path leaves it out, but people name workloads of modules that are here
    app(prog_name="searchlab")
