"""The sketch space: structures are derived from the program itself by rules, without templates."""

from spaces.sketch.rule import Answer, Rule
from spaces.sketch.rules import DEFAULT_RULES
from spaces.sketch.space import SketchSpace
from spaces.sketch.state import DerivationSettings, State

__all__ = ["DEFAULT_RULES", "Answer", "Rule", "DerivationSettings", "SketchSpace", "State"]
