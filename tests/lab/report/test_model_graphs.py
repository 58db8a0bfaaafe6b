"""The inside of models on a page: drawings of graphs, long ones folded, memory over calls, and tables of calls."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.made import made_run

from searchlab.lab.report import Report
from searchlab.lab.report.drawing import GraphBox, layered_graph
from searchlab.lab.report.drawing.layered import levels
from searchlab.lab.report.sections.model_graphs import folded
from searchlab.lab.results import Run
from searchlab.lab.tuning.model_result import CallRecord, ModelResult, write_results
from searchlab.timing.turns import Times

CALLS = (
    CallRecord("stem", "conv2d_relu", "own", 4e-4, 40_000_000, (), 1 << 20),
    CallRecord("body", "conv2d_relu", "own", 5e-4, 50_000_000, ("stem",), 3 << 20),
    CallRecord("joined", "numpy.layer", "library", 1e-4, None, ("body", "stem"), 2 << 20),
)


@st.composite
def graphs(draw: st.DrawFn) -> list[CallRecord]:
    made: list[CallRecord] = []
    for n in range(draw(st.integers(1, 60))):
        reads = draw(st.sets(st.integers(0, n - 1), max_size=3)) if n else set()
        took = draw(st.integers(1, 1000)) / 1e6
        made.append(CallRecord(f"v{n}", "f", "own", took, None, tuple(f"v{r}" for r in sorted(reads)), n))
    return made


@given(graphs(), st.integers(4, 40))
def test_folding_keeps_time_order_and_the_longest_calls(calls: list[CallRecord], most: int) -> None:
    found = folded(calls, most)
    assert sum(c.seconds for c in found) == pytest.approx(sum(c.seconds for c in calls))
    assert len(found) <= max(most + 1, 1) and max(c.live for c in found) == max(c.live for c in calls)
    longest = sorted(calls, key=lambda c: -c.seconds)[: most // 2]
    assert {c.name for c in longest} <= {c.name for c in found}
    seen: set[str] = set()
    for call in found:
        assert set(call.reads) <= seen
        seen.add(call.name)


@given(graphs(), st.sampled_from([344.0, 800.0]))
def test_boxes_are_below_what_they_read_and_lines_avoid_them(calls: list[CallRecord], width: float) -> None:
    boxes = [GraphBox(c.name, c.callee, "1 µs", "p1", 0.1, c.reads, c.name) for c in calls]
    level = levels(boxes)
    assert all(level[a] < level[b.name] for b in boxes for a in b.above)
    drawing = layered_graph(boxes, [("p1", "own kernels")], width)
    assert drawing.body.count('class="node"') == len(boxes)
    assert drawing.body.count('class="edge"') == sum(len(b.above) for b in boxes)
    drawn = re.findall(r'<rect x="([\d.-]+)" y="([\d.-]+)" width="([\d.-]+)"[^>]*class="node"', drawing.body)
    for x, y, wide in ((float(v) for v in box) for box in drawn):
        beside = [float(a) for a, b, _ in drawn if float(b) == y and float(a) > x]
        assert not beside or x + wide < min(beside)


def reported(folder: Path, *results: ModelResult) -> Report:
    run: Run = replace(made_run(["a", "b"], seeds=2, trials=4), folder=str(folder))
    write_results(folder, results)
    return Report.of([run])


def test_the_page_shows_graph_memory_and_calls(tmp_path: Path) -> None:
    times = {"tuned": Times(1e-3, 1.1e-3, 3, 0.0)}
    result = ModelResult("net", "net.py:make", "native", times, calls=CALLS, held=4 << 20)
    report = reported(tmp_path, result)
    assert [f.id for f in report.figures if f.id.startswith("model-")] == ["model-1-graph", "model-1-memory"]
    page = report.html
    assert "Inside the models" in page and "net: the graph that runs" in page
    assert "at most 3.00 MiB. The plan (bounds) holds 4.00 MiB" in page
    assert "All calls take 1.00 ms, those of library functions 10 % of it." in page
    assert "body: conv2d_relu, 500 µs, 50.0 % of the time" in page
    assert page == reported(tmp_path, result).html  # as read from the file, byte for byte


def test_without_calls_there_is_no_section(tmp_path: Path) -> None:
    times = {"tuned": Times(1e-3, 1.1e-3, 3, 0.0)}
    page = reported(tmp_path, ModelResult("net", "net.py:make", "native", times)).html
    assert "Whole models, end to end" in page and "Inside the models" not in page


def test_long_graphs_are_folded(tmp_path: Path) -> None:
    calls = [CallRecord(f"v{n}", "f", "own", 1e-6 * (1 + n % 7), None, (f"v{n - 1}",) if n else ()) for n in range(90)]
    report = reported(tmp_path, ModelResult("deep", "deep.py:make", "native", {}, calls=tuple(calls), held=64))
    (figure,) = [f for f in report.figures if f.id == "model-1-graph"]
    assert "calls of little time are folded" in figure.caption and figure.file.count('class="node"') <= 33
