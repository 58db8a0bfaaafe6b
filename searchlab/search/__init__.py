"""Search spaces: knobs, sketches and points as matrices of integers, with every move that searches make."""

from searchlab.errors import SpaceError
from searchlab.search.generator import SPACES, SpaceGenerator, space
from searchlab.search.knob import Knob, category, menu, split_knob
from searchlab.search.points import Points
from searchlab.search.recorded import RecordedSpace
from searchlab.search.sketch import Sketch
from searchlab.search.space import Sample, Size, Space
from searchlab.search.task import Task

__all__ = [
    "SPACES", "Knob", "Points", "RecordedSpace", "Sample", "Size", "Sketch", "Space", "SpaceError", "SpaceGenerator",
    "Task", "category", "menu", "space", "split_knob",
]  # fmt: skip
