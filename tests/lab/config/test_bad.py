"""Files with a mistake: every one is refused with its line, what is wrong and what is accepted.

The first line of each file in bad/ says which line the message names, and what it holds.
"""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from searchlab.cli import app
from searchlab.errors import ConfigError
from searchlab.lab.config import load

FILES = sorted((Path(__file__).parent / "bad").glob("*.yaml"))
COMMAND = get_command(app)  # once: making it takes longer than all the rest
HEAD = re.compile(rb"# line (\d+): (.+)\n")


def expected(path: Path) -> tuple[int, str]:
    match = HEAD.match(path.read_bytes())
    assert match, f"{path}: its first line says no line and message"
    return int(match[1]), match[2].decode()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_refused_with_line_and_reason(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line, fragment = expected(path)
    with pytest.raises(SystemExit) as ended:
        COMMAND(["run", str(path), "--dry-run"])
    printed = capsys.readouterr()
    assert ended.value.code == 2 and not printed.out, printed
    errors = printed.err.splitlines()
    assert all(e.startswith("error: ") and len(e) < 1000 for e in errors)
    found = [e for e in errors if f"{path.name}:{line}: " in e and fragment in e]
    assert found, f"not on line {line} with '{fragment}':\n{printed.err}"


def test_there_are_enough() -> None:
    assert len(FILES) >= 100


def test_all_mistakes_are_told_together(tmp_path: Path) -> None:
    file = tmp_path / "several.yaml"
    file.write_text("workloads: [matmull]\nseeds: []\nbudgt: {trials: 3}\nstrategy: a\nreport: {alpha: 7}\n")
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert [int(p.split(":")[1]) for p in caught.value.problems] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.mkdir(), "is a directory; name a YAML file"),
        (lambda p: None, "there is no file"),
        (lambda p: p.write_bytes(b"x: y\n" * (1 << 20)), "is too large for an experiment"),
    ],
)
def test_what_is_no_file_to_read(tmp_path: Path, make, message: str) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "it.yaml")
    with pytest.raises(ConfigError, match=message):
        load(tmp_path / "it.yaml")


def test_includes_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("include: b.yaml\nworkloads: [matmul]\n")
    (tmp_path / "b.yaml").write_text("\ninclude: a.yaml\n")
    with pytest.raises(ConfigError, match=r"b.yaml:2: 'a.yaml' includes itself, by way of a.yaml > b.yaml"):
        load(tmp_path / "a.yaml")


def test_a_mistake_in_an_included_file_is_told_there(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("# settings\nstrategy: evolve\n")
    (tmp_path / "top.yaml").write_text("include: base.yaml\nworkloads: [matmul]\n")
    with pytest.raises(ConfigError, match=r"base.yaml:2: unknown strategy 'evolve'"):
        load(tmp_path / "top.yaml")
