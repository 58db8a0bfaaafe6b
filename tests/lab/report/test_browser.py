"""The page in a real browser: nothing is logged, figures are there, clicks do what they say."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from lab.made import made_run

from searchlab.lab.report import Report

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((path for name in NAMES if (path := shutil.which(name))), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(NAMES)} is installed")

# Runs after the page's own script and leaves what it saw in the page.
PROBE = """
const seen = {};
const rows = table => [...document.querySelectorAll(`#${table} tbody tr`)];
const column = (table, n) => rows(table).map(r => r.cells[n].textContent.trim());
const shown = node => node.getBoundingClientRect().width > 0 && node.getBoundingClientRect().height > 0;
document.querySelectorAll('details').forEach(d => { d.open = true; });
const drawn = figure => [...figure.querySelectorAll('svg')].some(shown);
seen.figures = [...document.querySelectorAll('figure')].filter(drawn).map(f => f.id);
const heading = document.querySelectorAll('#leaderboard-table th button.sort')[1];
seen.before = column('leaderboard-table', 1);
heading.click();
seen.up = column('leaderboard-table', 1);
seen.state = heading.parentElement.getAttribute('aria-sort');
heading.click();
seen.down = column('leaderboard-table', 1);
const number = document.querySelectorAll('#leaderboard-table th button.sort')[2];
number.click();
seen.scores = column('leaderboard-table', 2).map(parseFloat);
const chip = document.querySelector('.entries button');
chip.click();
seen.pressed = chip.getAttribute('aria-pressed');
seen.muted = document.querySelectorAll(`[data-entry="${chip.dataset.toggle}"].muted`).length;
seen.marks = document.querySelectorAll(`[data-entry="${chip.dataset.toggle}"]`).length;
chip.click();
const svg = [...document.querySelectorAll('#progress-trials svg')].find(shown), box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.right - 30, clientY: box.top + 100, bubbles: true}));
seen.values = [...document.querySelectorAll('#values div')].map(d => d.textContent);
svg.dispatchEvent(new PointerEvent('pointerleave'));
seen.hidden = document.getElementById('values').hidden;
const blobs = [], make = URL.createObjectURL;
URL.createObjectURL = blob => { blobs.push(blob); return make(blob); };
HTMLAnchorElement.prototype.click = function () { seen.saved = [...seen.saved ?? [], this.download]; };
document.getElementById('data-json').click();
document.getElementById('data-csv').click();
seen.wide = document.documentElement.scrollWidth - innerWidth;
Promise.all(blobs.map(b => b.text())).then(texts => {
  seen.runs = JSON.parse(texts[0]).runs.length;
  seen.csv = texts[1].split('\\n').slice(0, 2);
  const note = document.createElement('pre');
  note.id = 'seen';
  note.textContent = JSON.stringify(seen);
  document.body.append(note);
});
"""


def visit(page: str, folder: Path, *options: str) -> tuple[dict[str, Any], list[str]]:
    """What the probe saw, and what the browser logged."""
    assert BROWSER is not None
    path = folder / "probed.html"
    path.write_text(page.replace("</body>", f"<script>{PROBE}</script></body>"), encoding="utf-8")
    common = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    ways = ["--virtual-time-budget=4000", f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run([BROWSER, *common, *options, *ways], capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    return json.loads(unescape(found[1])), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def report() -> Report:
    return Report.of([made_run({"random": 1.4, "evolutionary": 1.0, "local": 1.1}, seeds=3, trials=24)])


@pytest.mark.parametrize("width", [1280, 500])
def test_the_page_works(report: Report, tmp_path: Path, width: int) -> None:
    seen, log = visit(report.html, tmp_path, f"--window-size={width},900")
    assert log == []
    assert set(seen["figures"]) == {f.id for f in report.figures}
    assert seen["before"] == ["evolutionary", "local", "random"]
    assert (seen["up"], seen["down"]) == (sorted(seen["before"]), sorted(seen["before"], reverse=True))
    assert seen["state"] == "ascending" and seen["scores"] == sorted(seen["scores"])
    assert seen["pressed"] == "false" and seen["muted"] == seen["marks"] > 0
    assert seen["values"][0].startswith("trials: ") and len(seen["values"]) == 4 and seen["hidden"]
    assert seen["saved"] == ["made.json", "made.csv"] and seen["runs"] == 1
    assert seen["csv"][0] == "run,entry,task,seed,trial,seconds,elapsed,status"
    assert seen["csv"][1].startswith("made,random,matmul,0,0,")
    assert seen["wide"] <= 0  # nothing makes the page scroll sideways


def test_an_error_would_be_seen(report: Report, tmp_path: Path) -> None:
    page = report.html.replace("<body>", "<body><script>console.error('oops')</script>", 1)
    _, log = visit(page, tmp_path)
    assert len(log) == 1 and "oops" in log[0]
