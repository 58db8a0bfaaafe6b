"""Search: spaces of candidates as integer matrices, and the interfaces of cost models and strategies."""

from searchlab.errors import SpaceError
from searchlab.search.generator import SPACES, SpaceGenerator, space
from searchlab.search.history import History, Trials
from searchlab.search.knob import Knob, category, menu, split_knob
from searchlab.search.model import MODELS, CostModel
from searchlab.search.points import Points, Sample
from searchlab.search.recorded import RecordedSpace
from searchlab.search.registries import REGISTRIES
from searchlab.search.rounding import Tails, check_tails, tile_knob
from searchlab.search.sketch import Deferred, Sketch
from searchlab.search.space import Size, Space
from searchlab.search.strategy import STRATEGIES, Scorer, Strategy
from searchlab.search.task import Task

__all__ = [
    "MODELS", "REGISTRIES", "SPACES", "STRATEGIES", "CostModel", "Deferred", "History", "Knob", "Points",
    "RecordedSpace", "Sample", "Scorer", "Size", "Sketch", "Space", "SpaceError", "SpaceGenerator", "Strategy", "Task",
    "Tails", "Trials", "category", "check_tails", "menu", "space", "split_knob", "tile_knob",
]  # fmt: skip
