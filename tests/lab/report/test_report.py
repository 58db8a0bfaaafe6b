"""Reports of made-up runs: everything is there, nothing comes from outside, and odd runs are no trouble."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from lab.made import failed_cell, made_run, renamed, saying

from searchlab.errors import ResultError
from searchlab.lab.report import Report
from searchlab.lab.report.raster import available
from searchlab.lab.results import Run

FIGURES = {
    "scores", "progress-trials", "progress-time", "task-1", "task-2", "task-1-time", "task-2-time", "profile",
    "critical-difference", "win-matrix", "model-quality", "ledger", "failures",
}  # fmt: skip
VOID = {"meta", "link", "wbr", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """A page as a list of tags with attributes; unbalanced tags are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def values(self, name: str) -> list[str]:
        return [a[name] or "" for _, a in self.tags if name in a]


def drawings(report: Report) -> list[str]:
    return [text for f in report.figures for text in (f.file, *(svg for _, svg in f.inline))]


def check(report: Report) -> Page:
    """What holds for every report."""
    page = Page(report.html)
    ids = page.values("id")
    assert {f.id for f in report.figures} <= set(ids)
    unique = [i for i in ids if not i.startswith("clip-")]  # the same region has the same name
    assert len(unique) == len(set(unique))
    assert {h[1:] for h in page.values("href") if h.startswith("#")} <= set(ids)
    addresses = [v for name in ("href", "src", "xlink:href") for v in page.values(name)]
    assert all(v.startswith(("#", "data:")) for v in addresses)
    assert not re.search(r"@import|url\((?!#)", report.html)
    for svg in drawings(report):
        assert "nan" not in svg.lower().replace("name", "").replace("finan", "")
        ElementTree.fromstring(svg)
    for line in ("Traceback", "nan %", "inf %", ">None<", ">nan<"):
        assert line not in re.sub(r"<script.*?</script>", "", report.html, flags=re.DOTALL)
    return page


@pytest.fixture(scope="module")
def report() -> Report:
    return Report.of([made_run({"random": 1.4, "evolutionary": 1.0, "local": 1.1}, baselines={"numpy": 2.0})])


def test_every_figure_and_table_is_there(report: Report) -> None:
    check(report)
    assert {f.id for f in report.figures} == FIGURES
    for table in ("leaderboard-table", "times-table", "pairs-table", "model-table", "ledger-table", "failure-table"):
        assert f'<table id="{table}">' in report.html
    for figure in report.figures:
        assert figure.title and figure.caption.endswith(".")


def test_the_headline_names_the_winner(report: Report) -> None:
    text = report.headline.text
    assert text.startswith("evolutionary is better than all others: ") and " % faster than local" in text
    assert "Wilcoxon" in report.headline.support
    assert "3 entries, 2 tasks, 10 seeds: 60 searches" in report.headline.extent


def test_the_leaderboard_has_the_speed_up_over_libraries(report: Report) -> None:
    assert "× numpy" in report.html


def test_the_data_can_be_taken_out(report: Report) -> None:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', report.html, re.DOTALL)
    (run,) = json.loads(text)["runs"]
    assert len(run["cells"]) == 60 and len(run["cells"][0]["seconds"]) == 40
    assert None in [s for c in run["cells"] for s in c["seconds"]]  # a failed trial


def test_the_same_runs_give_the_same_page() -> None:
    pages = [Report.of([made_run(seeds=3, trials=16)]).html for _ in range(2)]
    assert pages[0] == pages[1]


def test_names_are_escaped() -> None:
    evil = "<script>alert('x')</script> & \"y\" \x00\ud800"
    run = made_run([evil, "b"], [f"{evil} task"], 2, 8, name="n</title><b>")
    report = Report.of([replace(run, source=evil, command=evil, machine={"cpu": evil})])
    check(report)
    assert "<script>alert" not in report.html.replace("\\u003c", "<", 0) and "<b>" not in report.html


def few(name: str) -> Run:
    """Runs that leave something out."""
    if name == "one entry":
        return made_run(["only"], seeds=3, trials=16)
    if name == "one seed":
        return made_run(seeds=1, trials=16)
    if name == "one trial":
        return made_run(seeds=2, trials=1, failing=0.0)
    if name == "recorded":
        return made_run(seeds=3, trials=16, recorded=True)
    if name == "thirty entries":
        return made_run({f"strategy-{n}/with-a-long-name": 1 + n / 20 for n in range(30)}, seeds=2, trials=8)
    if name == "all failed":
        cells = [failed_cell(e, "t", s, "no <b>compiler</b>") for e in ("a", "b") for s in range(2)]
        return replace(made_run(), cells=tuple(cells))
    run = made_run(seeds=3, trials=16)
    if name == "some failed":
        return replace(run, cells=(*run.cells[:-1], failed_cell("evolutionary", "conv2d", 2)))
    if name == "no model":
        return replace(run, cells=tuple(replace(c, rounds=()) for c in run.cells))
    if name == "no ledger":
        return replace(run, cells=tuple(replace(c, ledger={}) for c in run.cells))
    if name == "nothing done":
        empty = {"state": "waiting", "seconds": np.empty(0), "elapsed": np.empty(0), "status": (), "best": None}
        return replace(run, cells=tuple(replace(c, rounds=(), ledger={}, **empty) for c in run.cells))
    if name == "only failed trials":
        bad = {"seconds": np.full(16, np.inf), "status": ("run",) * 16, "best": None}
        return replace(run, cells=tuple(replace(c, **bad) for c in run.cells))
    assert name == "a task is missing"
    return replace(run, cells=tuple(c for c in run.cells if (c.entry, c.task) != ("random", "conv2d")))


@pytest.mark.parametrize(
    ("name", "said", "absent"),
    [
        ("one entry", "only found a working program in 6 of 6 searches.", {"critical-difference", "win-matrix"}),
        ("one seed", "", set()),
        ("one trial", "", {"model-quality"}),
        ("recorded", "", set()),
        ("thirty entries", "strategy-0/with-a-long-name", set()),
        ("all failed", "No search found a working program.", {"progress-trials"}),
        ("some failed", "", set()),
        ("no model", "", {"model-quality"}),
        ("no ledger", "", {"ledger"}),
        ("nothing done", "No search has finished yet.", {"scores", "profile"}),
        ("only failed trials", "No search found a working program.", set()),
        ("a task is missing", "", {"profile"}),
    ],
)
def test_odd_runs(name: str, said: str, absent: set[str]) -> None:
    report = Report.of([few(name)])
    check(report)
    assert said in report.headline.text
    assert not absent & {f.id for f in report.figures}


def test_entries_that_did_the_same_are_named() -> None:
    run = made_run(["a"], seeds=2, trials=8)
    twins = tuple(renamed(c, entry="b", id=f"{c.id}-b") for c in run.cells)
    report = Report.of([replace(run, cells=run.cells + twins)])
    assert "a and b gave identical measurements in every search: they differ in name only" in report.headline.limits


def test_the_chosen_baseline_gets_a_column() -> None:
    run = made_run({"a": 1.0, "b": 2.0}, seeds=2, trials=8)
    report = Report.of([saying(run, report={"baseline": "b"})])
    assert "× b</button>" in report.html


def test_errors_of_cells_are_listed() -> None:
    assert "no &lt;b&gt;compiler&lt;/b&gt;" in Report.of([few("all failed")]).html


def test_few_seeds_are_called_a_hint() -> None:
    assert any("hint, not a claim" in line for line in Report.of([few("one seed")]).headline.limits)


def test_of_many_entries_the_leading_ones_stand_out() -> None:
    report = Report.of([made_run({f"entry-{n}": 1 + n / 20 for n in range(12)}, seeds=2, trials=8)])
    looks = report.material.looks.values()
    assert sum(not look.muted for look in looks) == 8
    assert "4 others" in next(f for f in report.figures if f.id == "progress-trials").file


def test_an_entry_has_one_colour_everywhere(report: Report) -> None:
    kinds: dict[str, set[str]] = {}
    for svg in drawings(report):
        for g in ElementTree.fromstring(svg).iter():
            if "data-name" in g.attrib:
                kinds.setdefault(g.attrib["data-name"], set()).add(g.attrib["class"])
    assert {name: len(found) for name, found in kinds.items()} == {"random": 1, "evolutionary": 1, "local": 1}
    assert len(set.union(*kinds.values())) == 3


def test_two_runs_on_one_page() -> None:
    report = Report.of([made_run(["a"], name="one", seeds=2, trials=8), made_run(["b"], name="two", seeds=2, trials=8)])
    check(report)
    assert report.material.entries == ("a", "b") and "one.yaml" in report.html and "two.yaml" in report.html


def test_runs_of_different_machines_are_not_compared() -> None:
    runs = [made_run(machine="m1", seeds=1, trials=4), made_run(machine="m2", seeds=1, trials=4, name="other")]
    with pytest.raises(ResultError, match="made on m1; other on m2"):
        Report.of(runs)


def test_no_cells_are_refused() -> None:
    with pytest.raises(ResultError, match="have no cells"):
        Report.of([Run("empty", ())])


def test_figures_as_files(report: Report, tmp_path: Path) -> None:
    files = report.write_figures(tmp_path / "figures", png=False)
    assert {p.stem for p in files} == FIGURES
    for path in files:
        text = path.read_text()
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and "var(--" not in text
        assert root[0].text and root[1].text  # title and description


@pytest.mark.skipif(not available(), reason="resvg-py is not installed")
def test_figures_as_png(tmp_path: Path) -> None:
    report = Report.of([made_run(["only"], ["t"], seeds=1, trials=4)])
    files = report.write_figures(tmp_path)
    pictures = [p.read_bytes() for p in files if p.suffix == ".png"]
    assert pictures and all(b.startswith(b"\x89PNG") for b in pictures)


def test_a_page_that_cannot_be_written_is_said(report: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match="cannot write the report"):
        report.write(tmp_path / "file" / "report.html")
    with pytest.raises(ResultError, match="cannot write figures"):
        report.write_figures(tmp_path / "file" / "figures")
