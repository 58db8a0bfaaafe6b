"""Charts as SVG text, from numbers: lines with bands, bars, heat maps, rank diagrams, layered graphs."""

from searchlab.lab.report.drawing.bars import Bar, interval_chart, stacked_chart
from searchlab.lab.report.drawing.layered import GraphBox, layered_graph
from searchlab.lab.report.drawing.line_chart import Series, line_chart
from searchlab.lab.report.drawing.marks import EntryStyle
from searchlab.lab.report.drawing.matrix import share_matrix
from searchlab.lab.report.drawing.ranks import rank_diagram
from searchlab.lab.report.drawing.scale import Axis, unit
from searchlab.lab.report.drawing.svg import Drawing

__all__ = [
    "Axis",
    "Bar",
    "Drawing",
    "EntryStyle",
    "GraphBox",
    "Series",
    "interval_chart",
    "layered_graph",
    "line_chart",
    "rank_diagram",
    "share_matrix",
    "stacked_chart",
    "unit",
]
