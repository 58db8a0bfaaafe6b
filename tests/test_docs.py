"""Every Python snippet of the documentation runs: all of a page in order, in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def snippets(page: Path) -> list[str]:
    return SNIPPET.findall(page.read_text())


@pytest.mark.parametrize("page", [p for p in PAGES if snippets(p)], ids=lambda p: p.name)
def test_snippets_run(page: Path, tmp_path: Path) -> None:
    script = tmp_path / f"page_{page.stem}.py"  # by its own name it would hide packages such as spaces
    script.write_text("\n".join(snippets(page)))
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_there_are_snippets() -> None:
    assert sum(len(snippets(p)) for p in PAGES) >= 8
