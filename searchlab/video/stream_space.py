"""The knobs of a stream as a space: a threshold per layer, when all of a frame is computed, and the rule.

A rule is a structure, since it decides which thresholds there are; all others are values, so that nothing is compiled
again.  The threshold of a layer is the level of the whole stream, times what the tilt gives it by its depth, times one
factor for all maps that several layers read (errors in these count several times), times a factor of its own, times the
standard deviation of the map that it applies to: moves of one knob then change the error of the whole, shift it from
early layers to late ones, or from some layers to the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from searchlab.search import Knob, Points, Sketch, Space, menu
from searchlab.video.residual_plan import ResidualPlan
from searchlab.video.stream import StreamOptions

LEVELS = tuple(round(0.02 * 2 ** (step / 4), 4) for step in range(25))  # shares of standard deviations
TILTS = (0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # of the last layer to the first, geometric in between
FACTORS = (0.25, 0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 2.83, 4.0)
REFRESHES = (0, 32, 16, 8)  # frames; 0 is never
FALLBACKS = (0.4, 0.5, 0.6, 0.8, 1.0, 0.0)  # shares of work above which frames are computed as a whole; 0 is never
NAME, VERSION = "stream", "4"
_OWN, _FORKED = "x ", "forked x "  # what the knobs of layers are called by, the latter where several read a map
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
        factors = {
            name.partition("x ")[2]: factor * (knobs["forks"] if name.startswith(_FORKED) else 1.0)
            for name, factor in knobs.items()
            if name.startswith((_OWN, _FORKED))
        }
        depths = np.linspace(-0.5, 0.5, len(factors)) if len(factors) > 1 else np.zeros(1)
        tilted = knobs.get("level", 1.0) * knobs["tilt"] ** depths
        shares = {name: float(t * f) for t, (name, f) in zip(tilted, factors.items(), strict=True)}
        options = StreamOptions(knobs["refresh"] or None, dense_above=knobs["dense_above"] or None)
        return StreamChoice(choice["sketch"], shares, options)

    def at(self, level: float) -> StreamChoice:
        """The same with all thresholds times a level."""
        return replace(self, shares={name: level * share for name, share in self.shares.items()})

    @staticmethod
    def single(rule: str, plan: ResidualPlan, level: float, options: StreamOptions | None = None) -> StreamChoice:
        """One level for all layers."""
        return StreamChoice(rule, dict.fromkeys(plan.maps, level), options or StreamOptions())


def stream_space(plans: Mapping[str, ResidualPlan], fit: bool = False) -> Space:
    """The space of streams, with a sketch for each rule; its seeds have one level for all layers, or a tilt.

    With `fit` there is no knob for the level.
    """
    sketches = [Sketch(rule, _knobs(plan)[fit:]) for rule, plan in plans.items()]
    found = Space(sketches, NAME, VERSION)
    found.seed_with(lambda: _seeds(found))
    return found


def _knobs(plan: ResidualPlan) -> tuple[Knob, ...]:
    readers = Counter(plan.points[layer.point].name for layer in plan.layers)
    forked = {name for name in plan.maps if readers[name] > 1}
    layers = (menu(f"{_FORKED if name in forked else _OWN}{name}", FACTORS) for name in plan.maps)
    return (
        menu("level", LEVELS),
        menu("tilt", TILTS),
        *((menu("forks", FACTORS),) if forked else ()),
        *layers,
        menu("refresh", REFRESHES),
        menu("dense_above", FALLBACKS),
    )


def _seeds(space: Space) -> Points:
    """Levels that all layers share, from the middle outwards, then tilted ones, by turns of rules.

    Small levels meet any bound, large ones are fast.  Without a level: tilts, and factors of what several layers read.
    Streams fall back where the plain graph would be faster.
    """
    middle = len(LEVELS) // 2
    found = [(middle + step, 1.0, 1.0) for step in (0, 3, -4, 6)]
    found += [(middle + step, tilt, 1.0) for tilt in (4.0, 0.25) for step in (0, 3)]
    if space.sketches[0].knobs[0].name != "level":
        found = [(0, 1.0, 1.0), (0, 1.0, 0.35), (0, 2.0, 0.35), (0, 0.5, 0.35), (0, 2.0, 1.0), (0, 0.5, 1.0)]
    count = max(1, _SEEDS // len(space.sketches))
    fallback = FALLBACKS.index(1.0)
    rows = [_row(n, *seed, fallback, s.knobs) for seed in found[:count] for n, s in enumerate(space.sketches)]
    return Points.of(list(dict.fromkeys(map(tuple, rows))), space.width)


def _row(sketch: int, level: int, tilt: float, forks: float, fallback: int, knobs: Sequence[Knob]) -> list[int]:
    fixed = {"level": level, "tilt": TILTS.index(tilt), "refresh": 0, "dense_above": fallback}
    fixed["forks"] = FACTORS.index(forks)
    return [sketch, *(fixed.get(k.name, FACTORS.index(1.0)) for k in knobs)]
