"""The knobs of a stream as a space: a threshold per layer, when all of a frame is computed, and the rule.

A rule is a structure, since it decides which thresholds there are; all others are values, so that nothing is compiled
again.  The threshold of a layer is the level of the whole stream, times a factor of the layer, times the standard
deviation of the map that it applies to: moves of one knob then change the error of the whole, or shift it between
layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from searchlab.search import Knob, Points, Sketch, Space, menu
from searchlab.video.residual_plan import ResidualPlan
from searchlab.video.stream import StreamOptions

LEVELS = tuple(round(0.02 * 2 ** (step / 2), 4) for step in range(13))  # shares of standard deviations
FACTORS = (0.25, 0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 2.83, 4.0)
REFRESHES = (0, 32, 16, 8)  # frames; 0 is never
FALLBACKS = (0.4, 0.6, 0.8, 1.0)  # shares of work above which frames are computed as a whole; 1 is never
NAME, VERSION = "stream", "1"
_SEEDS = 8


@dataclass(frozen=True)
class StreamChoice:
    """One point: the rule, the shares of standard deviations that are thresholds, and when all is computed."""

    rule: str
    shares: Mapping[str, float]
    options: StreamOptions

    @staticmethod
    def of(choice: Mapping[str, Any]) -> StreamChoice:
        """The choice that `Space.choice` describes."""
        knobs = choice["knobs"]
        shares = {name[2:]: knobs["level"] * factor for name, factor in knobs.items() if name.startswith("x ")}
        fallback = knobs["dense_above"]
        options = StreamOptions(knobs["refresh"] or None, dense_above=None if fallback == 1 else fallback)
        return StreamChoice(choice["sketch"], shares, options)

    @staticmethod
    def single(rule: str, plan: ResidualPlan, level: float, options: StreamOptions | None = None) -> StreamChoice:
        """One level for all layers."""
        return StreamChoice(rule, dict.fromkeys(plan.maps, level), options or StreamOptions())


def stream_space(plans: Mapping[str, ResidualPlan]) -> Space:
    """The space of streams, with a sketch for each rule; its seeds have one level for all layers."""
    sketches = [Sketch(rule, _knobs(plan)) for rule, plan in plans.items()]
    found = Space(sketches, NAME, VERSION)
    found.seed_with(lambda: _seeds(found))
    return found


def _knobs(plan: ResidualPlan) -> tuple[Knob, ...]:
    layers = (menu(f"x {name}", FACTORS) for name in plan.maps)
    return menu("level", LEVELS), *layers, menu("refresh", REFRESHES), menu("dense_above", FALLBACKS)


def _seeds(space: Space) -> Points:
    """Levels from the middle outwards, by turns of rules: small ones meet any bound, large ones are fast."""
    count = max(1, _SEEDS // len(space.sketches))
    spread = np.unique(np.linspace(0, len(LEVELS) - 1, count + 2).round().astype(int)[1:-1])
    order = sorted(spread.tolist(), key=lambda at: abs(at - len(LEVELS) // 2))
    rows = [_row(s, at, space.sketches[s].knobs) for at in order for s in range(len(space.sketches))]
    return Points.of(rows, space.width)


def _row(sketch: int, level: int, knobs: Sequence[Knob]) -> list[int]:
    fixed = {"level": level, "refresh": 0, "dense_above": FALLBACKS.index(0.8)}
    return [sketch, *(fixed.get(k.name, FACTORS.index(1.0)) for k in knobs)]
