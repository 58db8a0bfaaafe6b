"""Following changes through the front of a network, in place and by lists: work depends on what changed alone.

Of a list of pixels that may have changed, the largest change of each is compared with a threshold; changes of those
that pass are written one after the other, multiplied by the weights of every tap, and added to the sums that they
reach, which are the pixels that may have changed next.  All calls of a frame are made by one native function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.graph import CompiledModel, compile
from searchlab.targets import CpuTarget
from searchlab.video.call_writer import CallWriter
from searchlab.video.frame_calls import FrameCalls
from searchlab.video.front import TAIL, Front
from searchlab.video.front_programs import FrontPrograms
from searchlab.video.residual_graph import MAIN
from searchlab.video.residual_plan import ChangePoint, ResidualPlan
from searchlab.video.stream_memory import StreamMemory

Array = npt.NDArray[Any]


class HeldState(tuple[Array, ...]):
    """A state that is changed in place: `following` continues from it, and what it was before is gone."""

    following: Following


def followed(plan: ResidualPlan, front: Front) -> ResidualPlan:
    """The plan of a graph whose front is followed: its function of changes is not needed."""
    kept = {name: f for name, f in plan.module.functions.items() if name != MAIN}
    return replace(plan, module=replace(plan.module, functions=kept), skipping=tuple(front.layers))


class FollowingModel:
    """What the streams of a model have in common: the programs of its front, and the tail."""

    def __init__(self, plan: ResidualPlan, front: Front, target: CpuTarget) -> None:
        self.plan, self.front, self.programs = plan, front, FrontPrograms(plan, front, target)
        self.tail: CompiledModel | None = None if front.tail is None else compile(front.tail, target)
        self._idle: list[Following] = []

    def held(self, state: Sequence[Array], before: Sequence[Array] = ()) -> HeldState:
        """A state that is changed in place, in the memory of the one before, or of a stream that was released."""
        if isinstance(before, HeldState):
            following = before.following
        elif self._idle:
            following = self._idle.pop()
        else:
            return Following(self, state).state
        following.adopt(state)
        return following.state

    def release(self, state: Sequence[Array]) -> None:
        """Leaves the memory of a state to another stream."""
        if isinstance(state, HeldState):
            self._idle.append(state.following)

    def step(
        self, frame: Array, thresholds: Array, state: Sequence[Array], seconds: dict[str, float] | None = None
    ) -> tuple[Any, tuple[Array, ...], tuple[Array, ...]]:
        """The output, counts and the next state, which is the given one changed in place if it came from here."""
        following = (state if isinstance(state, HeldState) else self.held(state)).following
        output, counts = following.frame(frame, thresholds, seconds)
        return output, counts, following.state


class Following:
    """One stream: its memory, and the calls that change it from frame to frame."""

    def __init__(self, model: FollowingModel, state: Sequence[Array]) -> None:
        self.model, self.memory = model, StreamMemory(model.programs, state)
        self._thresholds: Array | None = None
        self.calls = CallWriter(self.memory).frame()
        self._all = CallWriter(self.memory, full=True, apart=True).frame()

    @cached_property
    def steps(self) -> FrameCalls:
        """The calls of a frame, each step of which can be made, and timed, by itself."""
        return CallWriter(self.memory, apart=True).frame()

    def adopt(self, state: Sequence[Array]) -> None:
        """Goes on from a state in which all was computed; memory and calls stay what they are."""
        self._thresholds = None
        self.memory.adopt(state)

    @property
    def state(self) -> HeldState:
        """The state; it refers to this stream and not the other way round, so that both are freed at once."""
        made = HeldState(a for a in self.memory.kept if a is not None)
        made.following = self
        return made

    def frame(
        self, frame: Array, thresholds: Array, seconds: dict[str, float] | None = None
    ) -> tuple[Any, tuple[Array, ...]]:
        """The output for a frame, and counts; adds times of layers to `seconds`."""
        plan, front = self.model.plan, self.model.front
        held = self.memory.maps[front.frame]
        held[...] = frame.reshape(held.shape)
        again = self._thresholds is None or not np.array_equal(thresholds, self._thresholds)
        if again:
            # Pixels that did not change may exceed another threshold.
            self._thresholds = np.array(thresholds)
            for number, point in self.memory.points.items():
                name = plan.points[number].name
                point.set_threshold(thresholds[plan.places[name]] if name in plan.places else 0.0)
        if seconds is None:
            (self._all if again else self.calls)()
        else:
            (self._all if again else self.steps).timed(seconds)
        output = self._tail()
        return output, self._counts()

    def _tail(self) -> Any:
        front = self.model.front
        given = [self.memory.image(name) for name in front.outputs]
        if self.model.tail is None:
            return given[0]
        made = self.model.tail[TAIL](*given)
        output, *kept = made if isinstance(made, tuple) and front.kept else (made,)
        values = dict(zip(front.kept, kept, strict=True))
        for slot, held in enumerate(self.model.plan.kept):
            if held.of in values:
                self.memory.kept[slot] = values[held.of]
        return output

    def _counts(self) -> tuple[Array, ...]:
        """Changed elements by channel of each change point, then the output pixels of layers, as far as computed."""
        programs, known = self.model.programs, self.memory.changed()
        changed = (
            known[number] if number in known else self._all_elements(point)
            for number, point in enumerate(self.model.plan.points)
        )
        whole = self.memory.groups.sum(axis=(0, 2)) * programs.pixels_of_group
        computed = np.minimum(whole, programs.pixels).astype(np.float32)
        return (*changed, *computed.reshape(-1, 1))

    def _all_elements(self, point: ChangePoint) -> Array:
        whole = self.memory.kept[point.slot]
        assert whole is not None
        channels = whole.shape[point.axis]
        return np.full(channels, whole.size // channels, np.float32)
