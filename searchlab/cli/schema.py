"""`searchlab schema`: what an experiment's file may say, for editors and for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from searchlab.cli.output import hint, out


def schema_command(
    to: Annotated[Path | None, typer.Option("--out", "-o", help="Write it to a file instead.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the reference page in Markdown.")] = False,
) -> None:
    """Print the JSON schema of experiments, with which editors complete and validate YAML files.

    It includes the spaces, cost models and strategies that are installed here, with their options.
    """
    text = _text(markdown)
    if to is None:
        out.out(text, highlight=False)
        return
    from searchlab.errors import ConfigError

    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(f"{text}\n", encoding="utf-8")
    except OSError as e:
        raise ConfigError(f"{to} cannot be written: {e.strerror or e}") from None
    out.print(f"wrote {to}", soft_wrap=True)
    if not markdown:
        hint(f"put this line on top of a YAML file:  # yaml-language-server: $schema={to}")


def _text(markdown: bool) -> str:
    if markdown:
        from searchlab.lab.config.forms.reference import page

        return page().rstrip("\n")
    from searchlab.lab.config.forms.schema import schema

    return json.dumps(schema(), indent=2)
