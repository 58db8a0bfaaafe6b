"""Trials of streams: a clip through a compiled stream with given knobs, timed frame by frame and checked throughout.

Networks are compiled once per rule, and what the clip gives without thresholds is computed once: a trial costs a few
passes over the clip.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError
from searchlab.graph import GraphModule
from searchlab.graph.model_source import model_source
from searchlab.search import Space
from searchlab.targets import Target
from searchlab.video.accounting import FrameAccount
from searchlab.video.quantised import BYTE, quantised
from searchlab.video.residual_graph import residual
from searchlab.video.residual_options import FLOAT32, INT8, ResidualOptions
from searchlab.video.residual_plan import ResidualPlan
from searchlab.video.stream import ResidualModel, Stream, StreamOptions, relative_error
from searchlab.video.stream_space import StreamChoice, stream_space
from searchlab.video.video_settings import VideoSettings

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
_FITS, _CLOSE = 5, 0.98  # passes of a fit at most, and the share of the bound that is close enough
HIGHEST, _HALVINGS = 3.0, 10  # of one level for all layers, in standard deviations
_STEPPED = 4  # frames by which steps of bytes are chosen


@dataclass(frozen=True)
class LayerShare:
    """A layer over all frames of changes: its threshold, the shares of inputs that changed and that it computed."""

    layer: str
    threshold: float
    density: float
    computed: float
    whole: int


@dataclass(frozen=True, eq=False)
class StreamCheck:
    """A checked pass: the error of every frame, why frames were computed as a whole, and the shares of layers."""

    errors: Floats
    dense: tuple[str, ...]
    layers: tuple[LayerShare, ...]

    @property
    def error(self) -> float:
        """The largest error of a frame."""
        return float(self.errors.max())

    @property
    def drift(self) -> float:
        """How much larger errors are in the last third than in the first, on average."""
        third = max(1, len(self.errors) // 3)
        return float(self.errors[-third:].mean() - self.errors[:third].mean())

    @property
    def work(self) -> float:
        """The share of multiplications that frames of changes took."""
        whole = sum(a.whole for a in self.layers)
        return sum(a.whole * a.computed for a in self.layers) / whole if whole else 1.0


@dataclass(frozen=True)
class _Fitted:
    """A level that was tried."""

    level: float
    choice: StreamChoice
    check: StreamCheck


class StreamBench:
    """Everything that trials on one network and clip share."""

    def __init__(self, settings: VideoSettings, target: Target | None = None) -> None:
        self.settings, self.target = settings, target
        self._models: dict[str, ResidualModel] = {}
        self._scales: dict[str, dict[str, float]] = {}
        self._levels: dict[str, float] = {}

    @cached_property
    def clip(self) -> Array:
        """The frames."""
        found = self.settings.read()
        if len(found) < self.settings.frames:
            raise GraphError(f"{self.settings.label}: {self.settings.frames} frames are wanted, there are {len(found)}")
        return found

    @cached_property
    def plans(self) -> dict[str, ResidualPlan]:
        """The residual graph of every structure: a rule; where changes are followed, with blocks and products."""
        given, found = self.settings, {}
        for rule, products, block in itertools.product(given.rules, given.products, given.blocks):
            options = ResidualOptions(rule, given.granularity, given.kernel)
            quantises = options.follows and products == INT8
            if options.follows:
                options = replace(options, block=block, products=FLOAT32 if quantises else products)
            name = rule + (f" by {block}" if options.block != 1 else "")
            name += f" in {products}" if options.follows and products != FLOAT32 else ""
            if name not in found:
                found[name] = residual(self._quantised if quantises else self._module, options)
        return found

    @cached_property
    def _module(self) -> GraphModule:
        return model_source(self.settings.model).module

    @cached_property
    def _quantised(self) -> GraphModule:
        threads = None if self.target is None else {"threads": self.target.threads}
        frames = [frame[None] for frame in self.clip[:_STEPPED]]
        return quantised(self._module, BYTE, frames, options=threads, integers=True)

    @cached_property
    def first_structure(self) -> str:
        """The structure that stands for all where any would do."""
        return next(iter(self.plans))

    @cached_property
    def space(self) -> Space:
        """The knobs."""
        return stream_space(self.plans, self.settings.fit)

    def model(self, rule: str) -> ResidualModel:
        """The compiled residual graph of a rule."""
        if rule not in self._models:
            self._models[rule] = ResidualModel(self.plans[rule], target=self.target)
        return self._models[rule]

    @cached_property
    def dense_outputs(self) -> list[Any]:
        """What the clip gives without thresholds."""
        model = self.model(self.first_structure)
        return [model.dense(frame[None]) for frame in self.clip]

    def stream(self, choice: StreamChoice) -> Stream:
        """A new stream with given knobs."""
        model, scales = self.model(choice.rule), self._deviations(choice.rule)
        thresholds = {name: share * scales[name] for name, share in choice.shares.items()}
        return Stream(model, thresholds, choice.options)

    def _deviations(self, rule: str) -> dict[str, float]:
        """The standard deviation of each map at the first frame."""
        if rule not in self._scales:
            model = self.model(rule)
            _, state = model.first(self.clip[:1])
            self._scales[rule] = model.plan.relative_thresholds(state, 1.0)
        return self._scales[rule]

    def check(self, choice: StreamChoice) -> StreamCheck:
        """A pass over the clip that compares every frame."""
        stream, errors, accounts = self.stream(choice), [], []
        for frame, wanted in zip(self.clip, self.dense_outputs, strict=True):
            errors.append(relative_error(stream.frame(frame), wanted))
            account = stream.account
            assert account is not None
            accounts.append(account)
        stepped = [a for a in accounts if not a.dense]
        stream.close()
        held = dict(zip(stream.model.plan.thresholded, stream.thresholds.tolist(), strict=True))
        layers = tuple(_share(n, stepped, held, stream.model.plan) for n in range(len(stream.model.plan.layers)))
        return StreamCheck(np.array(errors), tuple(a.dense for a in accounts), layers if stepped else ())

    def tried(self, choice: StreamChoice) -> tuple[StreamChoice, StreamCheck]:
        """A point as it is tried, and its check: with `fit`, at the largest level that was found within the bound.

        A fit begins where one level for all layers would be, and goes on between levels that are within and that are
        not; if none is within, the last counts.
        """
        if not self.settings.fit:
            return choice, self.check(choice)
        bound, level = self.settings.relative_error, self._first_level(choice.rule)
        within: _Fitted | None = None
        beyond: _Fitted | None = None
        for _ in range(_FITS):
            last = _Fitted(level, choice.at(level), self.check(choice.at(level)))
            error = last.check.error
            if error <= bound:
                within = last if within is None or level > within.level else within
            else:
                beyond = last if beyond is None or level < beyond.level else beyond
            if _CLOSE * bound < error <= bound or not np.isfinite(error):
                break
            level = _next_level(last, within, beyond, bound)
        best = within or last
        return best.choice, best.check

    def _first_level(self, rule: str) -> float:
        """The largest level of a structure within the bound that all layers share."""
        if rule not in self._levels:
            self._levels[rule] = max(*self.one_level(rule=rule).shares.values(), HIGHEST / 2**_HALVINGS)
        return self._levels[rule]

    def one_level(
        self, error: float | None = None, options: StreamOptions | None = None, rule: str | None = None
    ) -> StreamChoice:
        """The largest level that, for all layers alike, is within the bound (or another error); by bisection."""
        rule = rule or self.first_structure
        bound = self.settings.relative_error if error is None else error
        low, high = 0.0, HIGHEST
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            good = self.check(StreamChoice.single(rule, self.plans[rule], middle, options)).error <= bound
            low, high = (middle, high) if good else (low, middle)
        return StreamChoice.single(rule, self.plans[rule], low, options)

    def seconds(self, choice: StreamChoice) -> Floats:
        """The time of every frame of a pass but the first, of which all is computed."""
        stream = self.stream(choice)
        found = _timed(stream.frame, self.clip)
        stream.close()
        return found

    def layer_seconds(self, choice: StreamChoice) -> dict[str, float]:
        """The time of each layer, with the differences and counts of what it reads, and of all else (""); medians.

        Frames in the first half of the clip are observed, whole ones left out.
        """
        stream = self.stream(choice)
        found: dict[str, list[float]] = {}
        for frame in self.clip[: max(3, len(self.clip) // 2)]:
            times: dict[str, float] = {}
            stream.frame(frame, times)
            for layer, seconds in times.items():
                found.setdefault(layer, []).append(seconds)
        stream.close()
        return {layer: float(np.median(all_)) for layer, all_ in found.items()}

    def dense_seconds(self) -> Floats:
        """The time of every frame but the first through the plain graph."""
        model = self.model(self.first_structure)
        return _timed(lambda frame: model.dense(np.array(frame[None])), self.clip)


def _next_level(last: _Fitted, within: _Fitted | None, beyond: _Fitted | None, bound: float) -> float:
    """Where the error would be just below the bound, if it were a power of the level."""
    aim = 0.99 * bound
    if within is None or beyond is None:
        factor = float(np.clip(aim / max(last.check.error, 1e-9), 0.2, 5.0))
        return last.level * math.pow(factor, 1.5)
    low, high = max(within.check.error, 1e-9), beyond.check.error
    share = float(np.clip(np.log(aim / low) / np.log(high / low), 0.1, 0.9)) if np.isfinite(high) else 0.5
    return float(within.level * (beyond.level / within.level) ** share)


def _timed(run: Any, clip: Array) -> Floats:
    found = []
    for frame in clip:
        start = time.perf_counter()
        run(frame)
        found.append(time.perf_counter() - start)
    return np.array(found[1:])


def _share(number: int, accounts: Sequence[FrameAccount], held: dict[str, float], plan: ResidualPlan) -> LayerShare:
    """A layer over several frames."""
    layer = plan.layers[number]
    mine = [a.layers[number] for a in accounts]
    computed = [1.0 if a.computed is None else a.computed for a in mine]
    threshold = held.get(plan.points[layer.point].name, 0.0)
    density = float(np.mean([a.density for a in mine])) if mine else 1.0
    whole = mine[0].whole if mine else 0
    return LayerShare(layer.name, threshold, density, float(np.mean(computed)) if computed else 1.0, whole)
