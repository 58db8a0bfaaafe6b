"""Every Python snippet of the documentation runs, in order, in one namespace per page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snippets = SNIPPET.findall(page.read_text())
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "snippet"}
    for number, code in enumerate(snippets):
        exec(compile(code, f"{page.name}, snippet {number}", "exec"), namespace)


def test_there_are_snippets() -> None:
    assert sum(len(SNIPPET.findall(p.read_text())) for p in PAGES) >= 8
