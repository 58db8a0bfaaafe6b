"""What a derivation rule is: it considers one stage of a state and returns the possible successor states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import Enum

from spaces.sketch.state import State


class Answer(Enum):
    """Whether a rule is applied to a stage, and whether later rules are still considered."""

    SKIP = "skip"
    APPLY = "apply"
    APPLY_AND_SKIP_REST = "apply and skip the rest"


class Rule(ABC):
    """One way to schedule a stage."""

    @abstractmethod
    def applies(self, state: State, block: str) -> Answer:
        """Whether the rule is applied to the stage `block`, the next one to be visited."""

    @abstractmethod
    def apply(self, state: State, block: str) -> Iterable[State]:
        """The successor states; `state.advance` moves on to the next stage."""
