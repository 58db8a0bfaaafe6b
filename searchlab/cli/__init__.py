"""The command `searchlab`: thin layers over the library that parse, call and print.

Only typer and rich are imported here, everything else by the command that needs it, so that help is instant.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from searchlab.cli import leaderboard, records, warned
from searchlab.cli.bench import bench_command
from searchlab.cli.best import best_command
from searchlab.cli.compare import compare_command
from searchlab.cli.doctor import doctor_command
from searchlab.cli.list import list_command
from searchlab.cli.new import new_command
from searchlab.cli.noise import noise_command
from searchlab.cli.output import err, out
from searchlab.cli.replay import replay_command
from searchlab.cli.report import report_command
from searchlab.cli.run import run_command
from searchlab.cli.schema import schema_command
from searchlab.cli.show import show_command
from searchlab.cli.status import status_command
from searchlab.errors import SearchLabError


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


app.command("list")(list_command)
app.command("show")(show_command)
app.command("bench")(bench_command)
app.command("doctor")(doctor_command)
app.command("noise")(noise_command)
app.command("run")(run_command)
app.command("status")(status_command)
app.command("schema")(schema_command)
app.add_typer(records.app, name="records")
app.add_typer(leaderboard.app, name="leaderboard")
app.command("report")(report_command)
app.command("compare")(compare_command)
app.command("best")(best_command)
app.command("replay")(replay_command)
app.command("new")(new_command)


def main() -> None:
    """Entry point. Exit codes: 0 fine, 1 something failed or was wrong, 2 bad usage."""
    sys.path.append(os.getcwd())  # a script's path leaves it out, but people name workloads of modules that are here
    app(prog_name="searchlab")
