"""Streams: frame by frame through a compiled residual model, with a state that can be saved and resumed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError
from searchlab.graph import CompiledModel, CompileOptions, GraphModule, compile
from searchlab.targets import Target
from searchlab.video.accounting import AcceleratorAccount, FrameAccount, accelerator, frame_layers
from searchlab.video.following import FollowingModel, followed
from searchlab.video.front import front_of
from searchlab.video.residual_graph import FIRST, MAIN, residual
from searchlab.video.residual_options import ResidualOptions
from searchlab.video.residual_plan import ResidualPlan, Thresholds

Array = npt.NDArray[Any]
CUT_LEVEL = 0.1  # a change by this share of a frame's range of values is none that motion of a scene makes everywhere


class ResidualModel:
    """A residual graph as native code, which any number of streams share."""

    def __init__(
        self,
        module: GraphModule,
        residual_options: ResidualOptions | None = None,
        target: Target | None = None,
        options: CompileOptions | dict[str, Any] | None = None,
        tuned: Any = None,
    ) -> None:
        self.plan: ResidualPlan = residual(module, residual_options)
        front = front_of(self.plan) if self.plan.options.follows else None
        if front is not None:
            self.plan = followed(self.plan, front)
        self.compiled: CompiledModel = compile(self.plan.module, target, tuned, options)
        self.following = None if front is None else FollowingModel(self.plan, front, self.compiled.parts.target)

    def first(self, frame: Array) -> tuple[Any, tuple[Array, ...]]:
        """The output and the state, all of it computed."""
        output, state = self.compiled[FIRST](frame)
        return output, tuple(state)

    def step(
        self, frame: Array, thresholds: Array, state: Sequence[Array]
    ) -> tuple[Any, tuple[Array, ...], tuple[Array, ...]]:
        """The output, counts of changes and the next state, which may be the given one, changed in place."""
        if self.following is not None:
            return self.following.step(frame, thresholds, state)
        output, counts, after = self.compiled[MAIN](frame, thresholds, tuple(state))
        return output, tuple(counts), tuple(after)


@dataclass(frozen=True)
class StreamOptions:
    """When all of a frame is computed, and what is compared.

    `refresh` computes all of every so-manieth frame.  `cut` is the share of a frame's elements that must have changed
    by a tenth of the range of values for a scene cut; `dense_above` the share that must have changed by more than the
    first threshold for changes not to be worth it.  None is never.  `compare` computes all of every frame as well, for
    the errors of the account.
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
        self.number = 0
        self.account: FrameAccount | None = None
        self._since = 0  # frames since all was computed
        self._state: tuple[Array, ...] = ()
        self._counts: tuple[Array, ...] | None = None
        self._last: Array | None = None

    def frame(self, image: npt.ArrayLike) -> Any:
        """The output for the next frame, (channels, height, width) or as the graph takes it."""
        given = self._as_frame(image)
        why = self._why_dense(given)
        whole = self.model.first(given) if why or self.options.compare else None
        if why:
            assert whole is not None
            output, self._state = whole
            self._counts, self._since = None, 0
            if self.number == 0 and self.relative is not None:
                found = self.model.plan.relative_thresholds(self._state, self.relative)
                self.thresholds = self.model.plan.thresholds(found)
        else:
            output, self._counts, self._state = self.model.step(given, self.thresholds, self._state)
        self._note(why, output, whole)
        self._last, self.number, self._since = given, self.number + 1, self._since + 1
        return output

    def accelerator(self, units: int = 64) -> AcceleratorAccount:
        """What the last frame would take on an accelerator that skips zeros; a frame of changes only."""
        if self._counts is None:
            raise GraphError("the last frame was computed as a whole, or there was none, so no changes were counted")
        return accelerator(self.model.plan, self._state, self._counts, units)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything that the next frame depends on to a file of numpy (.npz)."""
        if self._last is None:
            raise GraphError("a stream is saved after its first frame")
        held: dict[str, Any] = {f"state{slot}": array for slot, array in enumerate(self._state)}
        held |= {"numbers": np.array([self.number, self._since], np.int64), "thresholds": self.thresholds}
        with open(path, "wb") as file:
            np.savez(file, last=self._last, **held)

    @staticmethod
    def resumed(model: ResidualModel, path: str | os.PathLike[str], options: StreamOptions | None = None) -> Stream:
        """The stream that was saved to a file, on the same model."""
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        stream = Stream(model, options=options)
        wanted = [f"state{slot}" for slot in range(len(model.plan.kept))]
        if sorted(arrays) != sorted([*wanted, "numbers", "thresholds", "last"]) or (
            arrays["thresholds"].shape != stream.thresholds.shape
        ):
            raise GraphError(f"{os.fspath(path)} is not the state of a stream of this model")
        stream._state = tuple(arrays[name] for name in wanted)
        stream.thresholds, stream._last = arrays["thresholds"], arrays["last"]
        stream.number, stream._since = (int(n) for n in arrays["numbers"])
        return stream

    def _as_frame(self, image: npt.ArrayLike) -> Array:
        """A frame of its own: the caller may use the memory of the image again."""
        given = np.array(image, np.float32, order="C")
        _, annotation = self.model.compiled[FIRST].facts.parameters[0]
        rank = getattr(annotation, "rank", None)
        given = given[None] if given.ndim + 1 == rank else given
        if self._last is not None and given.shape != self._last.shape:
            raise GraphError(f"a frame of shape {given.shape} in a stream of frames of shape {self._last.shape}")
        return given

    def _why_dense(self, frame: Array) -> str:
        """Why all of a frame is computed; "" if only changes are."""
        options = self.options
        if self._last is None:
            return "first"
        if options.refresh is not None and self._since >= options.refresh:
            return "refresh"
        if options.cut is None and options.dense_above is None:
            return ""
        size = np.abs(frame - self._last)
        if options.cut is not None:
            level = CUT_LEVEL * float(self._last.max() - self._last.min())
            if np.mean(size > level) > options.cut:
                return "cut"
        if options.dense_above is not None and len(self.thresholds):
            return "dense" if np.mean(size > self.thresholds[0]) > options.dense_above else ""
        return ""

    def _note(self, why: str, output: Any, whole: tuple[Any, tuple[Array, ...]] | None) -> None:
        plan, errors = self.model.plan, {}
        if self.options.compare and whole is not None:
            errors = {a.name: relative_error(self._state[a.slot], whole[1][a.slot]) for a in plan.layers}
            errors["output"] = relative_error(output, whole[0])
        self.account = FrameAccount(self.number, why, frame_layers(plan, self._state, self._counts), errors)


def relative_error(found: Any, wanted: Any) -> float:
    """The L2 norm of the difference, relative to that of what is wanted; of tuples the largest."""
    if isinstance(wanted, tuple):
        return max((relative_error(a, b) for a, b in zip(found, wanted, strict=True)), default=0.0)
    a, b = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    norm = float(np.linalg.norm(b))
    return float(np.linalg.norm(a - b)) / norm if norm else float(np.any(a != b))
