"""`searchlab report`: one page about runs, and figures for papers and slides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from searchlab.cli.output import AsCsv, AsJson, err, form, hint, out, print_rows


def report_command(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR", help="Run folders, as made by `searchlab run`.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The page. [default: report.html in the run's folder]"),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", metavar="DIR", help="Write all figures there, too, as SVG and PNG.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Write one HTML page about one or more runs: who wins, by how much, with what certainty, and why.

    The page is self-contained: data, settings and figures are inside. Runs on one page are compared with each other.
    """
    from searchlab.lab.report import Report
    from searchlab.lab.report.raster import available
    from searchlab.lab.run import load

    wanted = form(as_json, as_csv)
    report = Report.of([load(folder) for folder in folders])
    page = report.write(output or folders[0] / "report.html")
    drawn = report.write_figures(figures, png=available()) if figures else ()
    if wanted:
        written = {"page": str(page), "figures": [str(p) for p in drawn], "headline": report.headline.text}
        print_rows([written], wanted)
    else:
        _print(report.headline.text, page, figures, len(drawn))
        if figures and not available():
            err.print(
                "no PNG files were written: they need resvg-py, pip install 'searchlab\\[figures]'", soft_wrap=True
            )
        if not show:
            hint(
                f"searchlab report {' '.join(map(str, folders))} --open",
                f"searchlab best {folders[0]} exports the programs",
            )
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def _print(headline: str, page: Path, figures: Path | None, count: int) -> None:
    out.print(headline, markup=False, soft_wrap=True)
    out.print()
    out.print(f"page     {page} ({page.stat().st_size / 1e6:.1f} MB)", markup=False, soft_wrap=True)
    if figures:
        out.print(f"figures  {figures} ({count} files)", markup=False, soft_wrap=True)
