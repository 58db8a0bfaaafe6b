"""Streams: frame by frame through a compiled residual model, with a state that can be saved and resumed."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError
from searchlab.graph import CompiledModel, CompileOptions, GraphModule, compile
from searchlab.graph.model.profile import ModelProfile
from searchlab.ir.expr import value_of
from searchlab.targets import Target
from searchlab.video.accounting import (
    AcceleratorAccount,
    FrameAccount,
    LayerSize,
    accelerator,
    frame_layers,
    layer_sizes,
)
from searchlab.video.following import FollowingModel, followed
from searchlab.video.front import front_of
from searchlab.video.residual_graph import DENSE, FIRST, MAIN, residual
from searchlab.video.residual_options import ResidualOptions
from searchlab.video.residual_plan import ResidualPlan, Thresholds
from searchlab.wholefile import replace_file

Array = npt.NDArray[Any]
CUT_LEVEL = 0.1  # a change by this share of a frame's range of values is none that motion of a scene makes everywhere
_SAVED = ("shape", "sample", "thresholds", "numbers", "sizes")  # beside the state and the counts
SAMPLE = 8192  # elements of a frame that are looked at for its share of changes
PAUSES = (8, 64)  # frames through the plain graph before changes are tried again: at first, and at most
CALMER = 0.8  # changes are tried again where this share of the changes of the frame that was too dense is left


class ResidualModel:
    """A residual graph as native code, which any number of streams share."""

    def __init__(
        self,
        module: GraphModule | ResidualPlan,
        residual_options: ResidualOptions | None = None,
        target: Target | None = None,
        options: CompileOptions | dict[str, Any] | None = None,
        tuned: Any = None,
    ) -> None:
        self.plan = module if isinstance(module, ResidualPlan) else residual(module, residual_options)
        front = front_of(self.plan) if self.plan.options.follows else None
        if front is not None:
            self.plan = followed(self.plan, front)
        self.compiled: CompiledModel = compile(self.plan.module, target, tuned, options)
        self.following = None if front is None else FollowingModel(self.plan, front, self.compiled.parts.target)

    def dense(self, frame: Array) -> Any:
        """The output, by the graph as it was before it became residual: all of it is computed, and nothing is kept."""
        return self.compiled[DENSE](frame)

    @cached_property
    def dense_multiplications(self) -> float:
        """Half the operations of the plain graph; infinite if they depend on sizes.

        They are fewer than those of its layers where these are computed by Winograd's algorithm.
        """
        counts = [value_of(call.flops) for call in self.compiled[DENSE].facts.calls if call.flops is not None]
        return sum(math.inf if n is None else n for n in counts) / 2

    def first(self, frame: Array) -> tuple[Any, tuple[Array, ...]]:
        """The output and the state, all of it computed."""
        output, state = self.compiled[FIRST](frame)
        return output, tuple(state)

    def held(self, state: tuple[Array, ...], before: tuple[Array, ...] = ()) -> tuple[Array, ...]:
        """A state of `first` as a stream goes on from it, in the memory of the one before, if that is possible."""
        return state if self.following is None else self.following.held(state, before)

    def step(
        self, frame: Array, thresholds: Array, state: Sequence[Array], seconds: dict[str, float] | None = None
    ) -> tuple[Any, tuple[Array, ...], tuple[Array, ...]]:
        """The output, counts of changes and the next state, which may be the given one, changed in place.

        Adds the times of layers, each with the differences that it reads, to `seconds`; "" has those of all else.
        """
        if self.following is not None:
            steps: dict[str, float] | None = None if seconds is None else {}
            made = self.following.step(frame, thresholds, state, steps)
            for step, took in (steps or {}).items():
                owner = step if step in self.plan.skipping else ""
                assert seconds is not None
                seconds[owner] = seconds.get(owner, 0.0) + took
            return made
        main, given = self.compiled[MAIN], (frame, thresholds, tuple(state))
        if seconds is None:
            output, counts, after = main(*given)
        else:
            seen = main.observed(*given)
            output, counts, after = seen.result
            self._add(seconds, ModelProfile.of(MAIN, main.facts.calls, seen.sizes, [seen.times]))
        return output, tuple(counts), tuple(after)

    def _add(self, seconds: dict[str, float], profile: ModelProfile) -> None:
        """Adds the time of each call to that of the layer whose name its own begins with."""
        names = sorted((layer.name for layer in self.plan.layers), key=len, reverse=True)
        for call in profile.calls:
            owner = next((n for n in names if call.name == n or call.name.startswith(f"{n}_")), "")
            seconds[owner] = seconds.get(owner, 0.0) + call.seconds


@dataclass(frozen=True)
class StreamOptions:
    """When all of a frame is computed, and what is compared.

    `refresh` computes all of every so-manieth frame.  `cut` is the share of a frame's elements that must have changed
    by a tenth of the range of values for a scene cut.  `dense_above` is a share, of changed elements among all or of
    the time of the plain graph, as multiplications tell, above which changes are not worth it: then frames go through
    the plain graph, which keeps nothing, until they change less.  None is never.  `compare` computes all of every frame
    as well, for the errors of the account.
    """

    refresh: int | None = None
    cut: float | None = 0.5
    dense_above: float | None = None
    compare: bool = False

    def __post_init__(self) -> None:
        if self.refresh is not None and self.refresh < 1:
            raise GraphError(f"refresh = {self.refresh}; at least 1, or None for never, is accepted")
        for name in ("cut", "dense_above"):
            share = getattr(self, name)
            if share is not None and not 0 <= share <= 1:
                raise GraphError(f"{name} = {share}; a share from 0 to 1, or None for never, is accepted")


@dataclass
class _Kept:
    """What a stream keeps from frame to frame; of the last frame its shape and a sample.

    Without `state` the last frame went through the plain graph; `spare` is the state before, whose memory is reused.
    `since` counts frames since all was computed with a state, or since there is none; `busy` is the share of elements
    that had changed when changes were not worth it, 0 where they are; `pause` is how many frames the plain graph gets.
    """

    shape: tuple[int, ...]
    sample: Array
    state: tuple[Array, ...] = ()
    counts: tuple[Array, ...] | None = None
    number: int = 1
    since: int = 1
    busy: float = 0.0
    pause: int = 0
    spare: tuple[Array, ...] = ()


class Stream:
    """One stream of frames; `account` tells of the last one."""

    def __init__(
        self,
        model: ResidualModel | GraphModule,
        thresholds: Thresholds = 0.0,
        options: StreamOptions | None = None,
        relative: float | None = None,
    ) -> None:
        """`relative` instead of thresholds takes shares of standard deviations, as they are at the first frame."""
        self.model = ResidualModel(model) if isinstance(model, GraphModule) else model
        self.options = options or StreamOptions()
        self.thresholds = self.model.plan.thresholds(thresholds)
        self.relative = relative
        if relative is not None and (np.any(self.thresholds) or not 0 <= relative < np.inf):
            raise GraphError(f"relative = {relative}: thresholds are given, or a finite share of at least 0, not both")
        self.dense = ""  # why all of the last frame was computed
        self._kept: _Kept | None = None
        self._sizes: tuple[LayerSize, ...] = ()
        self._unit = 1.0  # of the first threshold, in values of frames
        self._errors: dict[str, float] = {}

    @property
    def number(self) -> int:
        """How many frames there were."""
        return 0 if self._kept is None else self._kept.number

    @property
    def state(self) -> tuple[Array, ...]:
        """What it keeps, as `plan.kept` says; the next frame may change it in place.  Empty after a plain frame."""
        return () if self._kept is None else self._kept.state

    @property
    def account(self) -> FrameAccount | None:
        """What the last frame took; None before the first."""
        kept = self._kept
        if kept is None:
            return None
        layers = frame_layers(self.model.plan, self._sizes, kept.counts)
        return FrameAccount(kept.number - 1, self.dense, layers, self._errors)

    def frame(self, image: npt.ArrayLike, seconds: dict[str, float] | None = None) -> Any:
        """The output for the next frame, (channels, height, width) or as the graph takes it.

        If only changes are computed, the times of layers are added to `seconds` (see `ResidualModel.step`).
        """
        given = self._as_frame(image)
        sample = _sample(given)
        self.dense, busy = self._why_dense(sample)
        before = self._kept
        made = _Kept(given.shape, sample, busy=busy)
        if before is not None:
            made.number, made.spare = before.number + 1, before.state or before.spare
            made.pause = before.pause
        if self.dense == "dense":
            output = self.model.dense(given)
            assert before is not None
            if before.state:  # a new pause, longer than the one before if changes were not worth it at once again
                made.pause = min(2 * before.pause or PAUSES[0], PAUSES[1])
            else:
                made.since = before.since + 1
        elif self.dense or before is None:
            output, state = self.model.first(given)
            if not self._sizes:
                self._sizes, self._unit = layer_sizes(self.model.plan, state), self._first_unit(given, state)
            made.state = self.model.held(state, made.spare)
            if before is None and self.relative is not None:
                found = self.model.plan.relative_thresholds(state, self.relative)
                self.thresholds = self.model.plan.thresholds(found)
        else:
            output, made.counts, made.state = self.model.step(given, self.thresholds, before.state, seconds)
            made.since, made.pause = before.since + 1, 0 if before.counts else before.pause
        made.spare = () if made.state else made.spare
        self._kept = made
        self._compare(given, output)
        return output

    def close(self) -> None:
        """Leaves its memory to the next stream of the model; it must not be used any more."""
        if self.model.following is not None and self._kept is not None:
            self.model.following.release(self._kept.state or self._kept.spare)
        self._kept = None

    def accelerator(self, units: int = 64) -> AcceleratorAccount:
        """What the last frame would take on an accelerator that skips zeros; a frame of changes only."""
        if self._kept is None or self._kept.counts is None:
            raise GraphError("the last frame was computed as a whole, or there was none, so no changes were counted")
        return accelerator(self.model.plan, self._kept.state, self._kept.counts, units)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything that the next frame depends on to a file of numpy (.npz), in one step."""
        kept = self._kept
        if kept is None:
            raise GraphError("a stream is saved after its first frame")
        held: dict[str, Any] = {f"state{slot}": array for slot, array in enumerate(kept.state)}
        held |= {f"count{n}": array for n, array in enumerate(kept.counts or ())}
        held["numbers"] = np.array([kept.number, kept.since, kept.busy, kept.pause, self._unit])
        held |= {"shape": np.array(kept.shape), "sample": kept.sample, "thresholds": self.thresholds}
        held["sizes"] = np.array([astuple(s) for s in self._sizes])
        replace_file(Path(path), lambda file: np.savez(file, **held))

    @staticmethod
    def resumed(model: ResidualModel, path: str | os.PathLike[str], options: StreamOptions | None = None) -> Stream:
        """The stream that was saved to a file, on the same model."""
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        stream = Stream(model, options=options)
        state, counts = (_numbered(arrays, name) for name in ("state", "count"))
        known = sorted([*arrays]) == sorted(
            [*(f"state{n}" for n in range(len(state))), *(f"count{n}" for n in range(len(counts))), *_SAVED]
        )
        if (
            not known
            or len(state) not in (0, len(model.plan.kept))
            or (arrays["thresholds"].shape != stream.thresholds.shape)
        ):
            raise GraphError(f"{os.fspath(path)} is not the state of a stream of this model")
        number, since, busy, pause, stream._unit = arrays["numbers"].tolist()
        stream.thresholds = arrays["thresholds"]
        stream._sizes = tuple(LayerSize(*row) for row in arrays["sizes"].tolist())
        shape = tuple(arrays["shape"].tolist())
        stream._kept = _Kept(shape, arrays["sample"], state, counts or None, int(number), int(since), busy, int(pause))
        return stream

    def _as_frame(self, image: npt.ArrayLike) -> Array:
        """The image as the graph takes it.

        Where it may become part of the state it is a copy: the caller may use the memory of the image again.
        """
        taken = np.array if self.model.following is None else np.asarray
        given = taken(image, np.float32, order="C")
        _, annotation = self.model.compiled[FIRST].facts.parameters[0]
        rank = getattr(annotation, "rank", None)
        given = given[None] if given.ndim + 1 == rank else given
        if self._kept is not None and given.shape != self._kept.shape:
            raise GraphError(f"a frame of shape {given.shape} in a stream of frames of shape {self._kept.shape}")
        return given

    def _why_dense(self, sample: Array) -> tuple[str, float]:
        """Why all of a frame is computed, "" if only changes are; and how busy the stream is then (see `_Kept`)."""
        options, kept = self.options, self._kept
        if kept is None:
            return "first", 0.0
        if options.refresh is not None and kept.since >= options.refresh and kept.state:
            return "refresh", 0.0
        if options.cut is None and options.dense_above is None:
            return "", 0.0
        before, size = kept.sample, np.abs(sample - kept.sample)
        if options.cut is not None and kept.state:
            level = CUT_LEVEL * float(before.max() - before.min())
            if np.count_nonzero(size > level) > options.cut * size.size:
                return "cut", 0.0
        if options.dense_above is not None and len(self.thresholds):
            share = np.count_nonzero(size > self.thresholds[0] * self._unit) / size.size
            if kept.busy and (kept.since < kept.pause or share > CALMER * kept.busy):
                return "dense", min(share, kept.busy)
            if share > options.dense_above or (kept.counts and self._work() > options.dense_above):
                return "dense", share
        return ("" if kept.state else "again"), 0.0

    def _first_unit(self, frame: Array, state: Sequence[Array]) -> float:
        """How large a change of frames is that changes by one what the first threshold applies to, such as bytes."""
        plan = self.model.plan
        slot = next(iter(plan.thresholded.values()), None)
        if slot is None or plan.kept[slot].of == plan.module[FIRST].parameters[0].name:
            return 1.0
        spread = float(state[slot].std())
        return float(frame.std()) / spread if spread else 1.0

    def _work(self) -> float:
        """The multiplications that the last frame took, or, where nothing is skipped, needed, to the plain graph's.

        Those that take less or more time than the plain graph's count accordingly, so that it is a share of time, too.
        """
        plan, following, kept = self.model.plan, self.model.following, self._kept
        whole = max(1, sum(size.whole for size in self._sizes))
        if following is None or kept is None or kept.counts is None:
            account = self.account
            assert account is not None
            taken = whole * (account.work if plan.skipping else account.density)
        else:  # without an account, whose densities take longer than small frames do
            computed = dict(zip(plan.skipping, kept.counts[len(plan.points) :], strict=True))
            taken = 0.0
            for layer, size in zip(plan.layers, self._sizes, strict=True):
                share = float(computed[layer.name][0]) / size.units if layer.name in computed else 1.0
                taken += size.whole * share / following.programs.speeds.get(layer.name, 1.0)
        return taken / min(whole, self.model.dense_multiplications)

    def _compare(self, frame: Array, output: Any) -> None:
        """The errors of the last frame, where they are asked for."""
        kept, self._errors = self._kept, {}
        if not self.options.compare or kept is None:
            return
        whole, state = self.model.first(frame)
        if kept.state:
            layers = self.model.plan.layers
            self._errors = {a.name: relative_error(kept.state[a.slot], state[a.slot]) for a in layers}
        self._errors["output"] = relative_error(output, whole)


def _sample(frame: Array) -> Array:
    """A copy of elements of a frame from which shares of all are estimated: looking at all of them takes longer."""
    step = max(1, frame.size // SAMPLE)
    while math.gcd(step, frame.shape[-1]) > 1:
        step += 1
    return frame.reshape(-1)[::step].copy()


def _numbered(arrays: dict[str, Array], name: str) -> tuple[Array, ...]:
    """The arrays called name0, name1, and so on."""
    found: list[Array] = []
    while f"{name}{len(found)}" in arrays:
        found.append(arrays[f"{name}{len(found)}"])
    return tuple(found)


def relative_error(found: Any, wanted: Any) -> float:
    """The L2 norm of the difference, relative to that of what is wanted; of tuples the largest."""
    if isinstance(wanted, tuple):
        return max((relative_error(a, b) for a, b in zip(found, wanted, strict=True)), default=0.0)
    a, b = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    norm = float(np.linalg.norm(b))
    return float(np.linalg.norm(a - b)) / norm if norm else float(np.any(a != b))
