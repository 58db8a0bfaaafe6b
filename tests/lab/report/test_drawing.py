"""The drawing module: round ticks, names that fit, and pictures of odd numbers."""

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.lab.report.drawing import (
    Axis,
    Bar,
    Drawing,
    EntryStyle,
    Series,
    interval_chart,
    line_chart,
    rank_diagram,
    share_matrix,
    stacked_chart,
)
from searchlab.lab.report.drawing.scale import plain, scale
from searchlab.lab.report.drawing.svg import escape, fitted, room
from searchlab.lab.report.drawing.theme import COLOURS, DARK, LIGHT, entry_class, file_style

WIDTHS = (344.0, 800.0)
numbers = st.floats(allow_nan=True, allow_infinity=True, width=64) | st.floats(1e-9, 1e3)


def valid(drawing: Drawing) -> str:
    text = drawing.inline("label")
    root = ElementTree.fromstring(text)
    for node in root.iter():
        for name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height"):
            if name in node.attrib:
                assert np.isfinite(float(node.attrib[name]))
    assert "nan" not in "".join(node.attrib.get("d", "") for node in root.iter())
    return text


@given(st.lists(numbers, max_size=6), st.lists(numbers, max_size=6), st.booleans(), st.sampled_from(WIDTHS))
def test_lines_of_any_numbers(y: list[float], band: list[float], log: bool, width: float) -> None:
    count = min(len(y), len(band))
    high = np.array(band[:count])
    series = [Series(EntryStyle("a", 0), np.arange(float(count)), np.array(y[:count]), high / 2, high)]
    valid(line_chart(series, Axis("x"), Axis("y", log=log), width))


@given(st.lists(st.tuples(numbers, numbers, numbers), max_size=4), st.sampled_from(WIDTHS))
def test_intervals_of_any_numbers(rows: list[tuple[float, float, float]], width: float) -> None:
    bars = [Bar(EntryStyle(f"e{n}", n), *row) for n, row in enumerate(rows)]
    valid(interval_chart(bars, Axis("x"), width))
    valid(interval_chart(bars, Axis("x"), width, reference=1.0))


@pytest.mark.parametrize("width", WIDTHS)
def test_other_charts(width: float) -> None:
    looks = [EntryStyle(f"<entry {n}>", n) for n in range(5)]
    shares = np.array([[np.nan if a == b else 0.5 + (b - a) / 10 for b in range(5)] for a in range(5)])
    assert "&lt;entry 0&gt;" in valid(share_matrix(looks, shares, width, "row", "column"))
    ranked = [(look, 1.0 + look.number) for look in looks]
    assert valid(rank_diagram(ranked, [["<entry 0>", "<entry 1>"], ["<entry 4>"]], width, 1.5)).count("clique") == 1
    assert "0.5 s" in valid(stacked_chart([("a", {"run": 0.5}, "0.5 s"), ("b", {}, "")], ["run"], Axis("s"), width))
    valid(rank_diagram([], [], width))
    valid(share_matrix([], np.empty((0, 0)), width, "row", "column"))
    valid(stacked_chart([], [], Axis("s"), width))


@given(st.floats(1e-9, 1e9), st.floats(1.0001, 1e6), st.booleans())
def test_ticks_are_inside_and_few(low: float, factor: float, log: bool) -> None:
    made = scale(Axis("x", log=log), low, low * factor, 0.0, 700.0)
    ticks = made.ticks
    assert 1 <= len(ticks) <= 14 and ticks == sorted(set(ticks))
    assert all(made.low * 0.998 <= t <= made.high * 1.002 for t in ticks)


def test_numbers_in_words() -> None:
    assert [plain(v) for v in (0.0, 0.05, 12.0, 12000.0, 1e9)] == ["0", "0.05", "12", "12\u2009000", "1e+09"]


@given(st.text(max_size=60), st.floats(20, 400))
def test_names_fit(name: str, width: float) -> None:
    assert fitted(name, width) == name or room(fitted(name, width)) <= width
    ElementTree.fromstring(f"<a b='{escape(name)}'>{escape(name)}</a>")


def test_both_themes_have_the_same_names() -> None:
    assert LIGHT.keys() == DARK.keys() and "var(" not in file_style()


def test_entries_beyond_the_colours_get_another_dash() -> None:
    kinds = [entry_class(n) for n in range(4 * COLOURS)]
    assert len(set(kinds)) == len(kinds)
