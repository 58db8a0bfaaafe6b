"""The sketch space: structures are derived by rules from the program itself, without templates."""

from spaces.sketch.rules import DEFAULT_RULES, Answer, Rule
from spaces.sketch.space import SketchSpace
from spaces.sketch.state import Settings, State

__all__ = ["DEFAULT_RULES", "Answer", "Rule", "Settings", "SketchSpace", "State"]
