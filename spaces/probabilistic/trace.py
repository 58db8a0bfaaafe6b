"""Trace: the instructions of a probabilistic program and what its draws gave."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from searchlab.errors import SpaceError, TraceError
from searchlab.ir.expr import Var
from searchlab.registry import nearest
from spaces.probabilistic import sampling
from spaces.probabilistic.instruction import (
    CATEGORICAL,
    LOCATION,
    POSTPROCESS,
    PURE,
    Decision,
    Handle,
    Instruction,
    from_data,
    to_data,
)


@dataclass(frozen=True)
class Trace:
    """Instructions in order; `decisions` maps the names of draws to what they gave.

    Decisions of draws that are not among the instructions are remembered for when the trace is completed.
    """

    instructions: tuple[Instruction, ...]
    decisions: Mapping[str, Decision]

    def draws(self) -> Iterator[Instruction]:
        """The sampling instructions."""
        return (i for i in self.instructions if i.samples)

    def draw(self, name: str) -> Instruction:
        """The sampling instruction of that name."""
        found = {i.name: i for i in self.draws()}
        if name not in found:
            raise SpaceError(f"the trace has no draw '{name}'{nearest(name, found)}")
        return found[name]

    def with_decision(self, name: str, value: int | Sequence[int]) -> Trace:
        """The trace with another outcome of one draw; what no longer fits after it is repaired by `replay`."""
        if decides_control_flow(self.draw(name)):
            raise SpaceError(f"draw '{name}' decided which instructions follow; take another sketch instead")
        among = self.decisions[name].among if name in self.decisions else ()
        chosen = value if isinstance(value, int) else tuple(int(x) for x in value)
        return Trace(self.instructions, {**self.decisions, name: Decision(chosen, among)})

    def without_decisions(self) -> Trace:
        """The trace as it was before anything was drawn; what decided which instructions follow is kept."""
        kept = {i.name for i in self.draws() if decides_control_flow(i)}
        return Trace(self.instructions, {n: d for n, d in self.decisions.items() if n in kept})

    @property
    def structure(self) -> tuple[Any, ...]:
        """Equal for traces that differ in numbers only: the instructions, and the decisions about structure."""
        names = [i.name for i in self.draws() if i.structural]
        return self.instructions, tuple((n, self.decisions[n].value) for n in names if n in self.decisions)

    @property
    def log_prior(self) -> float:
        """The logarithm of the probability that the program's draws come out like this."""
        for i in self.draws():
            if i.name not in self.decisions:
                raise SpaceError(f"draw '{i.name}' has no decision; replay the trace to make one")
        return sum(_log_probability(i, self.decisions[i.name]) for i in self.draws())

    # --- shorter forms ------------------------------------------------------------------------------------------------

    def simplified(self) -> Trace:
        """Without the tail of post-processing and without instructions whose results nothing uses."""
        kinds = [i.kind for i in self.instructions]
        return self._only(self._live(kinds.index(POSTPROCESS) if POSTPROCESS in kinds else len(kinds)))

    def live(self) -> Trace:
        """Without instructions whose results nothing uses."""
        return self._only(self._live(len(self.instructions)))

    def _live(self, end: int) -> list[int]:
        used: set[Handle | Var] = set()
        kept = []
        for n in reversed(range(end)):
            i = self.instructions[n]
            if i.kind not in PURE or used & set(i.outputs) or decides_control_flow(i):
                kept.append(n)
                used |= i.uses()
        return kept[::-1]

    def _only(self, kept: list[int]) -> Trace:
        """The instructions at some positions, with handles numbered anew in order; all decisions are kept."""
        numbers: dict[Handle, Handle] = {}

        def number(h: Handle) -> Handle:
            return numbers.setdefault(h, Handle(len(numbers)))

        return Trace(tuple(self.instructions[n].renumbered(number) for n in kept), self.decisions)

    # --- JSON ---------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The trace as text that any process can read back."""
        decisions = {n: [d.value, list(d.among)] for n, d in self.decisions.items()}
        return json.dumps({"instructions": [to_data(i) for i in self.instructions], "decisions": decisions})

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace that `to_json` wrote."""
        try:
            data = json.loads(text)
            instructions = tuple(from_data(i) for i in data["instructions"])
            decisions = {str(n): Decision(_value(v), tuple(a)) for n, (v, a) in data["decisions"].items()}
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise TraceError(f"not a trace: {e}") from e
        return Trace(instructions, decisions)

    def __str__(self) -> str:
        return "\n".join(_line(i, self.decisions.get(i.name) if i.samples else None) for i in self.instructions)


def decides_control_flow(i: Instruction) -> bool:
    """Whether Python went one way or another on what was drawn, so that the instructions themselves depend on it."""
    return i.kind == CATEGORICAL and i.structural


def _value(data: Any) -> int | tuple[int, ...]:
    return tuple(int(x) for x in data) if isinstance(data, list) else int(data)


def _log_probability(i: Instruction, d: Decision) -> float:
    if i.tiles:
        assert isinstance(d.value, tuple)
        return sampling.log_tile(d.value, i.arguments["max_innermost"], d.among[0] if d.among else None)
    assert isinstance(d.value, int)
    if i.kind == CATEGORICAL:
        return sampling.log_option(d.value, i.arguments["probs"])
    assert i.kind == LOCATION
    return -math.log(len(d.among)) if d.value in d.among else -math.inf


def _line(i: Instruction, d: Decision | None) -> str:
    """One instruction for people."""
    outputs = ", ".join(_name(x) for x in i.outputs)
    arguments = ", ".join(f"{k}={_name(v)}" for k, v in (*i.inputs, *i.attributes))
    chosen = "" if d is None else f"    # {d.value}"
    return f"{outputs}{' = ' if outputs else ''}{i.kind}({arguments}){chosen}"


def _name(value: Any) -> str:
    if isinstance(value, Handle):
        return f"%{value.number}"
    return f"({', '.join(map(_name, value))})" if isinstance(value, tuple) else str(value)
