"""The documentation is true: its Python runs, its YAML is accepted, its links lead somewhere, its tables are right.

A snippet whose first line is a comment with a file's name, such as `# mine.py`, is also written to that file.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
SNIPPET = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.(?:py|yaml))\n")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def snippets(page: Path, language: str) -> list[str]:
    return [text for kind, text in SNIPPET.findall(page.read_text()) if kind == language]


def having(language: str) -> list[Path]:
    return [p for p in PAGES if snippets(p, language)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def write_files(page: Path, folder: Path) -> None:
    for _, text in SNIPPET.findall(page.read_text()):
        if (match := FILE.match(text)) is not None:
            (folder / match[1]).write_text(text)


@pytest.mark.parametrize("page", having("python"), ids=name)
def test_snippets_run(page: Path, tmp_path: Path) -> None:
    """All of a page in order, in a process of its own."""
    write_files(page, tmp_path)
    script = tmp_path / f"page_{page.stem}.py"  # by its own name it would hide packages such as spaces
    script.write_text("\n".join(snippets(page, "python")))
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", having("yaml"), ids=name)
def test_experiments_are_accepted(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from searchlab.lab.cells import cells
    from searchlab.lab.config import load

    write_files(page, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for number, text in enumerate(snippets(page, "yaml")):
        (tmp_path / f"snippet-{number}.yaml").write_text(text)
        assert cells(load(tmp_path / f"snippet-{number}.yaml"))


def test_the_experiment_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from searchlab.lab.config import load
    from searchlab.lab.run import run

    write_files(ROOT / "README.md", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    experiment = load(tmp_path / "mine.yaml", ["seeds=0..1", "budget.trials=16"])
    assert run(experiment, tmp_path / "run", jobs=0).exit_code == 0


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(SNIPPET.sub("", page.read_text())):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), link
        if anchor:
            headings = [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in HEADING.findall(there.read_text())]
            assert anchor in headings, link


def test_the_output_that_the_page_of_intrinsics_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line, in order; dots stand for lines that are left out."""
    monkeypatch.setattr("searchlab.intrinsics.known._added", {})  # other tests may have added some
    from typer.testing import CliRunner

    from searchlab.cli import app

    text = (ROOT / "docs" / "intrinsics.md").read_text()
    command, block = re.search(r"^    \$ searchlab (.*)\n((?:    .*\n|\n)*)", text, re.MULTILINE).groups()  # type: ignore[union-attr]
    done = CliRunner().invoke(app, command.split())
    printed = iter([line.strip() for line in done.output.splitlines()])
    wanted = [line.strip() for line in block.splitlines() if line.strip() not in ("", "...")]
    assert len(wanted) > 10
    for line in wanted:
        assert line in printed, line  # which goes on behind the line that was found


def test_an_intrinsic_of_ones_own_is_short() -> None:
    (mine,) = (t for t in snippets(ROOT / "docs" / "intrinsics.md", "python") if t.startswith("# mine.py\n"))
    assert "Intrinsic(" in mine and "def emit(" in mine and len(mine.splitlines()) < 40


def test_tables_of_options_are_up_to_date() -> None:
    tool = [sys.executable, ROOT / "tools" / "option_tables.py", "--check"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(tool, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nmake them again: python tools/option_tables.py"


def test_every_component_is_listed() -> None:
    from searchlab.search import MODELS, SPACES, STRATEGIES

    pages = {page: (ROOT / page).read_text() for page in ("docs/components.md", "README.md")}
    plain = {"none", "random"}  # baselines among the models, which the short list of the README leaves out
    for registry in (SPACES, MODELS, STRATEGIES):
        for component, cls in registry.all().items():
            ours = cls.__module__.startswith(("searchlab.", "spaces.", "costmodels."))
            if not ours or component != cls.name:  # other tests give them other names
                continue
            for page, text in pages.items():
                listed = f"`{component}`" in text or (page == "README.md" and component in plain)
                assert listed, f"{page} does not name the {registry.kind} '{component}'"


def test_workloads_are_counted() -> None:
    from searchlab.workloads import networks, operators, suites

    ours = [o for o in operators().values() if o.function.__module__.startswith("searchlab.")]  # other tests add some
    counted = f"{len(ours)} operators, {len(networks())} networks, {len(suites())} suites"
    assert counted in (ROOT / "README.md").read_text(), counted


def test_there_are_snippets() -> None:
    assert sum(len(snippets(p, "python")) for p in PAGES) >= 30
    assert sum(len(snippets(p, "yaml")) for p in PAGES) >= 10
