"""Search spaces: knobs, sketches and points as matrices of integers, with every move that searches make."""

from searchlab.search.errors import SpaceError
from searchlab.search.knob import Knob, category, menu, split_knob
from searchlab.search.points import Points
from searchlab.search.recorded import RecordedSpace
from searchlab.search.sketch import Sketch
from searchlab.search.space import Sample, Size, Space

__all__ = [
    "Knob", "Points", "RecordedSpace", "Sample", "Size", "Sketch", "Space", "SpaceError", "category", "menu",
    "split_knob",
]  # fmt: skip
