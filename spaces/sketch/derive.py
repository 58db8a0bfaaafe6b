"""Derivation: rules are applied to the stages of a program from output to input until no stage is left."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from searchlab.errors import ScheduleError, SpaceError
from spaces.sketch.rule import Answer, Rule
from spaces.sketch.state import State

MOST_STATES = 1000


def derive(start: State, rules: Sequence[Rule]) -> list[State]:
    """All terminal states, in the order in which they were found."""
    queue = deque([start])
    found: list[State] = []
    visited = 0
    while queue:
        state = queue.popleft()
        visited += 1
        if visited > MOST_STATES:
            raise SpaceError(f"more than {MOST_STATES} states: a rule stays at one stage, or gives too many states")
        if not state.todo:
            found.append(state)
            continue
        after = _step(state, rules)
        if not after:
            names = ", ".join(type(r).__name__ for r in rules)
            raise SpaceError(f"no rule applies to stage '{state.todo[0]}'; the rules are {names}")
        queue.extend(after)
    return list({s.program.hash: s for s in reversed(found)}.values())[::-1]


def _step(state: State, rules: Sequence[Rule]) -> list[State]:
    block = state.todo[0]
    after: list[State] = []
    for rule in rules:
        answer = rule.applies(state, block)
        if answer is Answer.SKIP:
            continue
        try:
            after += rule.apply(state, block)
        except ScheduleError as e:
            raise SpaceError(f"rule {type(rule).__name__} on stage '{block}': {e}") from e
        if answer is Answer.APPLY_AND_SKIP_REST:
            break
    return after
