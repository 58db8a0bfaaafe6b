"""`searchlab new` on the command line."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from searchlab.cli import app


def call(*args: object) -> Any:
    return CliRunner().invoke(app, ["new", *map(str, args)])


def test_it_says_what_was_made_and_what_to_do_next(tmp_path: Path) -> None:
    done = call("strategy", "my-strategy", "--dir", tmp_path)
    assert done.exit_code == 0
    for text in (
        "made",
        "my_strategy.py",
        "my_strategy:MyStrategy",
        "python -m pytest",
        "searchlab run experiment.yaml",
    ):
        assert text in done.stdout


def test_it_speaks_json(tmp_path: Path) -> None:
    found = json.loads(call("space", "my-space", "--dir", tmp_path, "--json").stdout)
    assert found["component"] == "my_space:MySpace"
    assert sorted(found["files"]) == sorted(p.name for p in (tmp_path / "my-space").iterdir())


def test_mistakes_end_with_two(tmp_path: Path) -> None:
    refused = call("strategy", "Bad Name", "--dir", tmp_path)
    assert refused.exit_code == 2
    assert "error: 'Bad Name' is not a valid name for a strategy" in refused.stderr
    assert call("tactic", "x").exit_code == 2
