"""The driver's side of slots: lanes, each backed by a remote actor, and the events they return."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from searchlab import interpreter
from searchlab.errors import MeasureError
from searchlab.measure.cluster import slot
from searchlab.measure.cluster.resources import Demand, alive, described
from searchlab.measure.cluster.slot import Factory, Parcel, SlotPlace

_FAILURES = 3
_LONGEST_REASON = 300


@dataclass(frozen=True)
class Event:
    """A call that has returned; `token` distinguishes calls of a lane or ticket, so that stale ones are ignored."""

    source: Any
    token: object
    future: Future[Any]


@dataclass(eq=False)
class Lane:
    """A sequence of actors, one at a time; a lost one is replaced."""

    name: str
    actor: Any = None
    place: SlotPlace | None = None
    token: object = None  # of the call in progress: `begin` or `exchange`
    failures: int = 0  # consecutive actors that did not start or could not work
    retired: str = ""  # the reason why no further actor is started

    @property
    def ready(self) -> bool:
        """Whether its actor has started."""
        return self.place is not None

    def expects(self, token: object) -> bool:
        """Whether an event belongs to the lane's current actor."""
        return token is self.token or token is self.actor


@dataclass(frozen=True)
class Setup:
    """How slots are made: the resources of an actor, how many workers it has, and their cores."""

    demand: Demand
    workers: int
    cores: int
    factory: Factory
    build: Demand = field(default_factory=lambda: Demand({"CPU": 1}))


class LanePool:
    """The lanes and builders of one measurer."""

    def __init__(self, ray: Any, lanes: int, setup: Setup) -> None:
        self.setup = setup
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._ray = ray
        self._slot = ray.remote(slot.Slot)
        self._build = ray.remote(slot.build).options(max_retries=0, **setup.build.options())
        factory = ray.cloudpickle.dumps(setup.factory)
        self._kit = ray.put(slot.Kit(factory, tuple(interpreter.search_path())))
        self.lanes = [Lane(f"slot{i}") for i in range(lanes)]
        for lane in self.lanes:
            self.start(lane)

    @property
    def workers(self) -> int:
        """The number of workers that can take a job now."""
        return self.setup.workers * sum(lane.ready for lane in self.lanes)

    # --- actors -------------------------------------------------------------------------------------------------------

    def start(self, lane: Lane) -> None:
        """Requests an actor; the lane is ready once it has answered."""
        # no restarts by Ray, which would hide what became of the jobs; two concurrent calls: `give` beside `exchange`
        options = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": 2, **self.setup.demand.options()}
        made = self._slot.options(**options)
        lane.actor = made.remote(lane.name, self.setup.workers, self.setup.cores, self._kit)
        lane.place = None
        lane.token = self._watch(lane, lane.actor.begin.remote())

    def revive(self) -> None:
        """Restarts stopped lanes."""
        for lane in self.lanes:
            if lane.actor is None and not lane.retired:
                self.start(lane)

    def arrived(self, lane: Lane, place: SlotPlace) -> None:
        """Takes note that the actor of a lane has started, and where."""
        lane.place, lane.token = place, None

    def replace(self, lane: Lane, reason: str, broken: bool) -> None:
        """Ends an actor that is lost, hangs or is broken, and starts another one unless that keeps failing."""
        lane.failures += broken or not lane.ready
        self.stop(lane)
        if lane.failures >= _FAILURES:
            lane.retired = reason
        else:
            self.start(lane)

    def stop(self, lane: Lane) -> None:
        """Ends an actor and everything it runs: its servers notice that it is gone."""
        actor, lane.actor, lane.place, lane.token = lane.actor, None, None, None
        if actor is not None:
            with suppress(Exception):  # it may be gone already, or its node
                self._ray.kill(actor)

    def close(self) -> None:
        """Ends all actors."""
        for lane in self.lanes:
            self.stop(lane)

    def shortage(self) -> str:
        """The requested and the available resources, for messages."""
        return f"each asks for {self.setup.demand}; {described(alive(self._ray))} (some of it may be in use)"

    # --- calls --------------------------------------------------------------------------------------------------------

    def send(self, lane: Lane, parcels: Sequence[Parcel]) -> None:
        """Gives jobs to a lane and ensures that a call waits for its outcomes."""
        if lane.token is None:
            lane.token = self._watch(lane, lane.actor.exchange.remote(parcels))
        else:
            # only a failure matters, and it means that the actor is lost
            self._watch(lane, lane.actor.give.remote(parcels), lane.actor)

    def build(self, source: Any, job: bytes) -> tuple[object, Any]:
        """Starts a build; the second value is for `cancel`."""
        reference = self._build.remote(job, self._kit)
        return self._watch(source, reference), reference

    def cancel(self, reference: Any) -> None:
        """Cancels a build, if it still runs."""
        with suppress(Exception):
            self._ray.cancel(reference, force=True)

    def wait(self, seconds: float) -> list[Event]:
        """The events so far, after waiting for the first."""
        try:
            found = [self.events.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self.events.empty():
            found.append(self.events.get())
        return found

    def _watch(self, source: Any, reference: Any, actor: Any = None) -> object:
        """Turns the result of a call into an event; for calls named after an actor, only failures."""
        token = actor or object()

        def finished(future: Future[Any]) -> None:
            if actor is None or future.exception() is not None:
                self.events.put(Event(source, token, future))

        reference.future().add_done_callback(finished)
        return token


def is_fault(error: BaseException) -> bool:
    """Whether a call failed because the slot is faulty, not because its actor is gone."""
    return isinstance(error, MeasureError) or isinstance(getattr(error, "cause", None), MeasureError)


def reason_of(error: BaseException) -> str:
    """One informative line of Ray's long message about a loss."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "because" in line]
    text = (telling or lines or [type(error).__name__])[-1]
    if "creation task" in text:  # the error itself is at the end of the traceback
        text = lines[-1]
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."
